"""Run folders to one frame, and the frame to comparable tables with their Pareto fronts.

Rows are compared only when all that is not a decoder setting agrees: task and its settings, data, number of samples,
model, machine, number format, backend, batch size. Otherwise they stand in tables of their own, and a sentence says
what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from s2d2cli.effect import effective
from s2d2cli.errors import ConfigError
from s2d2cli.runs.environment import hardware
from s2d2cli.runs.pareto import front
from s2d2cli.runs.store import SCHEMA, Record, RunFolder, damage, decoder_name
from s2d2cli.runs.summary import FEW_SAMPLES
from s2d2cli.tasks.statistics import mean_and_deviation


@dataclass(frozen=True)
class Metric:
    """A column that can be an axis of a front; all of them are better when larger."""

    key: str
    label: str
    unit: str
    digits: int


ACCURACY = Metric("accuracy", "accuracy", "share of samples answered correctly, with its 95 % Wilson interval", 3)
THROUGHPUT = Metric("tokens_per_s", "tokens/s", "new tokens per second of decoding, whole batches", 1)
PER_FORWARD = Metric("tokens_per_forward", "tokens/forward", "new tokens per forward pass of a row, prefill counted", 2)
SPEEDS = (THROUGHPUT, PER_FORWARD)
PROTOCOL = (
    "task",
    "task_settings",
    "data",
    "samples",
    "repeats",
    "model",
    "source",
    "hardware",
    "dtype",
    "backend",
    "batch_size",
)
SHORT = {"decode.block_length": "block", "decode.denoising_steps": "steps"}  # long names make tables wide
SHARED = ("decode.temperature", "decode.top_k", "decode.top_p", "decode.max_new_tokens", "seed")
HIDDEN = ("decoder", "results", "task", "model", "device", "dtype", "backend", "batch_size", "limit", "repeats")


@dataclass
class Table:
    """Rows that may be compared, best accuracy first."""

    title: str
    rows: pd.DataFrame


@dataclass
class Report:
    tables: list[Table]
    notes: list[str]
    unfinished: list[str]


def find_runs(folders: Iterable[Path]) -> list[RunFolder]:
    """Run folders: each given one, or those inside it."""
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"no folder {str(folder)!r} with runs; `s2d2 eval` and `s2d2 sweep` write to results/")
        inside = sorted(path.parent for path in folder.glob("*/run.json"))
        found += [folder] if (folder / "run.json").is_file() else inside
    return [RunFolder(path) for path in dict.fromkeys(found)]


def build(folders: Sequence[RunFolder], measure: str | None = None) -> Report:
    """Accuracy is what the task counts as correct, or one of its other measures: `paper`, `instruction_strict`, ..."""
    done, unfinished = [], []
    for folder in folders:
        record = folder.record()
        try:
            if record is not None and is_done(record) and measure is not None and measure not in record["measures"]:
                known = ", ".join(record["measures"]) or "none"
                unfinished.append(f"{folder.path}: has no measure {measure!r}, its measures are: {known}")
            elif record is not None and is_done(record):
                done.append(row_of(folder, record, measure))
            else:
                unfinished.append(unfinished_line(folder, record))
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # damaged where no check looked
            unfinished.append(f"{folder.path}: run.json cannot be used ({type(error).__name__}: {error})")
    tables, notes = split(pd.DataFrame(done)) if done else ([], [])
    return Report(tables, notes, unfinished)


def is_done(record: Record) -> bool:
    return record.get("schema") == SCHEMA and not damage(record) and record["status"] == "success"


def unfinished_line(folder: RunFolder, record: Record | None) -> str:
    if record is None:
        return f"{folder.path}: run.json cannot be read"
    if record.get("schema", SCHEMA) != SCHEMA:
        return f"{folder.path}: run.json is of schema {record.get('schema')}, and this version of s2d2 reads {SCHEMA}"
    if "schema" not in record or damage(record):
        return f"{folder.path}: run.json cannot be used, it {damage(record) or 'names no schema'}"
    there = folder.path / "samples.jsonl"
    written = len(folder.rows()) if there.is_file() else record["n"]  # run.json is stale when the run was killed
    error = f", {record['error']['type']}: {record['error']['message']}" if record["error"] else ""
    return f"{folder.path}: {record['status']}, {written} of {record['samples']} samples{error}"


def row_of(folder: RunFolder, record: Record, measure: str | None = None) -> dict[str, Any]:
    """One flat row for the frame."""
    config, env, speed = record["config"], record["environment"], record["speed"] or {}
    share = record["measures"][measure] if measure else record
    per_forward = speed.get("tokens_per_forward_interval") or [None, None]
    per_second = speed.get("tokens_per_s_interval") or [None, None]
    return {
        "decoder": decoder_name(config["decoder"], config["router"]["kind"]),
        "n": record["n"],
        "measure": measure or "correct",
        "accuracy": share["accuracy"],
        "low": share["interval"][0],
        "high": share["interval"][1],
        "traced": record.get("traced", False),
        "tokens_per_s": None if record.get("traced") else speed.get("tokens_per_s"),
        "tokens_per_s_low": None if record.get("traced") else per_second[0],
        "tokens_per_s_high": None if record.get("traced") else per_second[1],
        "latency_p50_s": speed.get("latency_p50_s"),
        "latency_p90_s": speed.get("latency_p90_s"),
        "peak_bytes": (record.get("memory") or {}).get("peak_bytes"),
        "tokens_per_forward": speed.get("tokens_per_forward"),
        "tokens_per_forward_low": per_forward[0],
        "tokens_per_forward_high": per_forward[1],
        "mean_tokens": record["mean_tokens"],
        **record.get("verification", {}),
        "alarms": alarms_text(record),
        "task": config["task"]["kind"],
        "task_settings": str(sorted(config["task"].items())),
        "data": f"{record['data']['origin']} {record['data']['sha256'][:12]}",
        "samples": record["samples"],
        "repeats": config["repeats"],
        "data_rows": record["data"]["rows"],
        "model": config["model"]["name"],
        "source": f"{config['model']['source']}@{config['model']['revision']}",
        "hardware": hardware(env),
        "dtype": env.get("dtype"),
        "backend": env["backend"],
        "batch_size": config["batch_size"],
        "sampling": str([config["decode"][key] for key in ("temperature", "top_k", "top_p")]),
        "run_id": record["run_id"],
        "folder": str(folder.path),
        "settings": settings(record),
    }


def alarms_text(record: Record) -> str:
    """Counts that should be 0; a few truncated answers or missing numbers belong to a fast decoder's errors."""
    rung = [f"{count} {name.replace('_', ' ')}" for name, count in record["alarms"].items() if count]
    mixed = [f"resumed with other {', '.join(record['resumed_with'])}"] if record["resumed_with"] else []
    return "; ".join(rung + mixed)


def settings(record: Record) -> dict[str, Any]:
    """The decoder's settings that have an effect, dotted."""
    effect = effective(record["config"], record.get("without_effect", {}))
    return flat({key: value for key, value in effect.items() if key not in HIDDEN})


def flat(tree: Record, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted ones."""
    entries: dict[str, Any] = {}
    for key, value in tree.items():
        entries |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return entries


def split(frame: pd.DataFrame) -> tuple[list[Table], list[str]]:
    """Comparable rows together, and a sentence for every task and model that needs more than one table."""
    tables, notes = [], []
    for (task, model), rows in frame.groupby(["task", "model"], sort=False):
        groups = [group for _, group in rows.groupby(list(PROTOCOL), sort=False, dropna=False)]
        differing = [key for key in PROTOCOL if rows[key].astype(str).nunique() > 1]
        tables += [Table(title(group, differing), completed(group)) for group in groups]
        if differing:
            named = " and ".join(
                "number of samples" if key == "samples" else key.replace("_", " ") for key in differing
            )
            verb = "differs" if len(differing) == 1 else "differ"
            notes.append(f"{task} on {model} stands in {len(groups)} tables, because {named} {verb} between runs.")
    return tables, notes


def title(rows: pd.DataFrame, differing: Sequence[str]) -> str:
    first = rows.iloc[0]
    extra = [f"{key.replace('_', ' ')} {first[key]}" for key in differing if key in ("data", "source", "task_settings")]
    few = f", fewer than {FEW_SAMPLES}: rough" if first["samples"] < FEW_SAMPLES else ""
    size = f"{first['samples']} of {first['data_rows']} samples{few}"
    counted = "" if first["measure"] == "correct" else f" ({first['measure']})"
    machine = f"{first['hardware']}, {first['dtype']}, {first['backend']}, batch {first['batch_size']}"
    return "; ".join([f"{first['task']}{counted} on {first['model']}", size, machine, *extra])


def completed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what they have only in company: settings that vary, speed-ups, front marks."""
    rows = rows.copy()
    rows["varied"] = varied(rows)
    rows["speedup"] = speedups(rows)
    for metric in SPEEDS:
        rows[f"front_{metric.key}"] = front([rows[ACCURACY.key], rows[metric.key]])
    ranked: pd.DataFrame = rows.sort_values(["accuracy", "tokens_per_forward"], ascending=False, kind="stable")
    ranked.index = pd.RangeIndex(len(ranked))
    return ranked


def varied(rows: pd.DataFrame) -> list[str]:
    """For each row its block length, what differs between the rows of its decoder, and how it samples if that does."""
    texts = []
    for decoder, mine in zip(rows["decoder"], rows["settings"], strict=True):
        peers = rows.loc[rows["decoder"] == decoder, "settings"]
        differing = [key for key in mine if differs(key, peers) or (key in SHARED and differs(key, rows["settings"]))]
        steps_given = mine["decode.denoising_steps"] != mine["decode.block_length"]
        shown = ["decode.block_length"] + (["decode.denoising_steps"] if steps_given else [])
        shown += [key for key in differing if key not in SHORT]
        texts.append(" ".join(f"{name}={mine[key]}" for key, name in zip(shown, names(shown), strict=True)))
    return texts


def differs(key: str, settings: Iterable[Record]) -> bool:
    """Whether those that have this setting disagree."""
    return len({str(one[key]) for one in settings if key in one}) > 1


def names(keys: Sequence[str]) -> list[str]:
    """As short as they can be told apart: the last word, the group for its `kind`, else the whole key."""
    short = [SHORT.get(key, key.removesuffix(".kind").rpartition(".")[2]) for key in keys]
    return [name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)]


def seed_lines(rows: pd.DataFrame) -> list[str]:
    """Rows that are alike but for their seed: the mean, and how far one seed is from the next."""
    lines = []
    alike = [str({key: value for key, value in one.items() if key != "seed"}) for one in rows["settings"]]
    for _, group in rows.groupby(alike, sort=False):
        if len(group) > 1:
            mean, deviation = mean_and_deviation(group["accuracy"].tolist())
            shown = group["varied"].iloc[0].replace(f"seed={group['settings'].iloc[0]['seed']}", "").strip()
            lines.append(
                f"{group['decoder'].iloc[0]} {shown}: {len(group)} seeds, accuracy {mean:.3f} on average, "
                f"standard deviation {deviation:.3f} between them."
            )
    return lines


def speedups(rows: pd.DataFrame) -> list[float | None]:
    """Tokens per second against autoregressive decoding with the same sampling; the fastest one when there are more."""
    plain = rows[rows["decoder"] == "autoregressive"].groupby("sampling")["tokens_per_s"].max()
    bases = [plain.get(sampling) for sampling in rows["sampling"]]
    pairs = zip(rows["tokens_per_s"], bases, strict=True)
    return [speed / base if base and pd.notna(speed) else None for speed, base in pairs]
