"""A run as one flat row, and its settings in the few words that tell it from the others of its table."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from s2d2cli.effect import brief, effective
from s2d2cli.lossless import AUTOREGRESSIVE
from s2d2cli.runs.approximate import approximations, word
from s2d2cli.runs.environment import hardware, target_files
from s2d2cli.runs.store import Record, RunFolder, decoder_name
from s2d2cli.tasks.statistics import mean_and_deviation

SHORT = {"decode.block_length": "block", "decode.denoising_steps": "steps"}  # long names make tables wide
SHARED = ("decode.temperature", "decode.top_k", "decode.top_p", "decode.max_new_tokens", "seed")
HIDDEN = ("decoder", "results", "task", "model", "device", "dtype", "backend", "batch_size", "limit", "repeats")


def row_of(folder: RunFolder, record: Record, measure: str | None = None) -> dict[str, Any]:
    """One flat row for the frame."""
    config = record["config"]
    share = record["measures"][measure] if measure else record
    return {
        "decoder": decoder_name(config["decoder"], config["router"]["kind"]),
        "n": record["n"],
        "measure": measure or "correct",
        "accuracy": share["accuracy"],
        "accuracy_low": share["interval"][0],
        "accuracy_high": share["interval"][1],
        "lossless": lossless_text(record),
        "traced": record.get("traced", False),
        **speeds(record),
        "mean_tokens": record["mean_tokens"],
        **record.get("verification", {}),
        "alarms": alarms_text(record),
        "warm_up": record.get("warm_up"),
        **company(record),
        "sampling": str([config["decode"][key] for key in ("temperature", "top_k", "top_p")]),
        "run_id": record["run_id"],
        "folder": str(folder.path),
        "settings": settings(record),
    }


def lossless_text(record: Record) -> str:
    """Whose tokens a run gives, of those that take one at a time; runs of before it was noted do not tell."""
    if "lossless" not in record:
        return ""
    return {None: "no", AUTOREGRESSIVE: "AR"}.get(record["lossless"], str(record["lossless"]))


def speeds(record: Record) -> dict[str, Any]:
    """What was counted and timed, and the metrics of it; a traced run's seconds hold the log, so they are left out."""
    speed, tokens, forwards = record["speed"], record["speed"].get("tokens"), record["speed"].get("forwards") or {}
    timed = {} if record.get("traced") else speed
    return {
        **interval_of("tokens_per_s", timed),
        **interval_of("tokens_per_forward", speed),
        "forwards_per_token": ratio(1, speed.get("tokens_per_forward")),
        "forwards_per_sample": ratio(sum(forwards.values()) if forwards else None, record["n"]),
        "rows_per_forward": ratio(speed.get("query_rows"), speed.get("model_forwards")),
        "ms_per_forward": ratio(1000 * timed.get("seconds", 0) or None, speed.get("model_forwards")),
        "seconds_per_sample": ratio(timed.get("seconds"), record["n"]),
        "latency_p50_s": timed.get("latency_p50_s"),
        "latency_p90_s": timed.get("latency_p90_s"),
        "peak_gib": ratio((record.get("memory") or {}).get("peak_bytes"), 2**30),
        "tokens": tokens,
        "forwards": sum(forwards.values()),
        **{f"forwards_{kind}": count for kind, count in forwards.items()},
        "seconds": speed.get("seconds"),
        **{f"seconds_{phase}": seconds for phase, seconds in (speed.get("seconds_by_phase") or {}).items()},
    }


def interval_of(key: str, speed: Record) -> dict[str, float | None]:
    low, high = speed.get(f"{key}_interval") or [None, None]
    return {key: speed.get(key), f"{key}_low": low, f"{key}_high": high}


def ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def company(record: Record) -> dict[str, Any]:
    """What must agree before two runs may stand in one table, and how much of the data they saw."""
    config, env = record["config"], record["environment"]
    return {
        "task": config["task"]["kind"],
        "task_settings": typed(config["task"], "task."),
        "data": f"{record['data']['origin']} {record['data']['sha256'][:12]}",
        "samples": record["samples"],
        "repeats": config["repeats"],
        "data_rows": record["data"]["rows"],
        "model": config["model"]["name"],
        "source": source(config["model"]),
        "weights": digest(target_files(record.get("model_files"))),
        "first_prompt": digest(record.get("first_prompt")),
        "scoring": typed(record["facts"]),
        "hardware": hardware(env),
        "devices": env.get("devices", 1),  # runs of before it was noted computed on one
        "dtype": env.get("dtype"),
        "backend": env["backend"],
        "batch_size": config["batch_size"],
        "code": f"{env.get('s2d2')} {env.get('revision') or 'installed'}",
        "software": ", ".join(f"{name} {env.get(name)}" for name in ("python", "torch", "transformers")),
    }


def source(model: Mapping[str, Any]) -> str:
    """Where the weights came from; models of before there were adapters had none."""
    adapter = f" + {model['adapter']}@{model['adapter_revision']}" if model.get("adapter") else ""
    return f"{model['source']}@{model['revision']}{adapter}"


def digest(value: Any) -> str:
    """A few letters that differ when the value does."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def alarms_text(record: Record) -> str:
    """Counts that should be 0; a few truncated answers or missing numbers belong to a fast decoder's errors."""
    rung = [f"{count} {name.replace('_', ' ')}" for name, count in record["alarms"].items() if count]
    mixed = [f"resumed with other {', '.join(record['resumed_with'])}"] if record["resumed_with"] else []
    return "; ".join(rung + mixed)


def settings(record: Record) -> dict[str, Any]:
    """The decoder's settings that have an effect, dotted."""
    effect = brief(effective(record["config"], record.get("without_effect", {})))
    return flat({key: value for key, value in effect.items() if key not in HIDDEN})


def flat(tree: Record, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted ones."""
    entries: dict[str, Any] = {}
    for key, value in tree.items():
        entries |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return entries


def varied(rows: pd.DataFrame) -> list[str]:
    """For each row its block length, what differs between the rows of its decoder, how it samples if that does, and
    what makes it approximate."""
    texts = []
    for decoder, mine in zip(rows["decoder"], rows["settings"], strict=True):
        peers = rows.loc[rows["decoder"] == decoder, "settings"]
        differing = [key for key in mine if differs(key, peers) or (key in SHARED and differs(key, rows["settings"]))]
        steps_given = mine["decode.denoising_steps"] != mine["decode.block_length"]
        shown = ["decode.block_length"] + (["decode.denoising_steps"] if steps_given else [])
        always = {"draft_model", *approximations(mine)}
        shown += [key for key in mine if (key in differing and key not in SHORT) or key in always]
        texts.append(" ".join(f"{name}={plain(mine[key])}" for key, name in zip(shown, names(shown), strict=True)))
    return texts


def typed(settings: Record, prefix: str = "") -> str:
    """Settings as a user would type them, in one order."""
    return shlex.join(f"{prefix}{key}={plain(value)}" for key, value in sorted(settings.items()))


def plain(value: Any) -> str:
    """A value as it is typed. 0.1 + 0.2 is 0.3 to a reader, and to the run id."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{','.join(map(plain, value))}]"
    return str(float(f"{value:.12g}")) if isinstance(value, float) else str(value)


def differs(key: str, settings: Iterable[Record]) -> bool:
    """Whether those that have this setting disagree."""
    return len({str(one[key]) for one in settings if key in one}) > 1


def names(keys: Sequence[str]) -> list[str]:
    """As short as they can be told apart: the last word, the group for its `kind`, else the whole key."""
    short = [SHORT.get(key, word(key)) for key in keys]
    return [name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)]


def seed_lines(rows: pd.DataFrame) -> list[str]:
    """Rows that are alike but for their seed: the mean, and how far one seed is from the next."""
    lines = []
    alike = [str({key: value for key, value in one.items() if key != "seed"}) for one in rows["settings"]]
    for _, group in rows.groupby(alike, sort=False):
        by_seed = {
            one.get("seed"): accuracy for one, accuracy in zip(group["settings"], group["accuracy"], strict=True)
        }
        if len(by_seed) > 1:
            mean, deviation = mean_and_deviation(list(by_seed.values()))
            shown = group["varied"].iloc[0].replace(f"seed={group['settings'].iloc[0]['seed']}", "").strip()
            lines.append(
                f"{group['decoder'].iloc[0]} {shown}: {len(by_seed)} seeds, accuracy {mean:.3f} on average, "
                f"standard deviation {deviation:.3f} between them."
            )
    return lines
