"""One run as text for the terminal, and what a reader of its score has to hear."""

from __future__ import annotations

from rich.console import Group
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from s2d2cli.runs.approximate import MEANINGS, approximations, word
from s2d2cli.runs.described import alarms_text, lossless_text, settings
from s2d2cli.runs.store import Record, decoder_name
from s2d2cli.runs.summary import FEW_SAMPLES, accuracy_text
from s2d2cli.runs.verification import TRACED

TRUNCATED_LIMIT, NO_ANSWER_LIMIT = 0.02, 0.2  # shares of the answers above which a warning is due


def plain_grid() -> Grid:
    """Columns a space apart, without lines: fits eighty characters and pastes well."""
    return Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)


def outcome_table(record: Record) -> Group:
    """One run for the terminal: accuracy, alarms, speed."""
    grid = plain_grid()
    grid.show_header = False
    for name, value in entries(record):
        grid.add_row(name, escape(value))
    parts: list[Text | Grid | Group] = [Text(run_title(record), style="bold"), grid]
    if record["calibration"]:
        parts += [Text(), calibration_table(record)]
    return Group(*parts)


def calibration_table(record: Record) -> Group:
    """Does the estimator foresee what is accepted? For each range of its estimate, and over all."""
    found = record["calibration"]
    grid = plain_grid()
    for name in ("E[K]", "verified steps", "predicted", "accepted"):
        grid.add_column(Text(name), justify="right")
    ranges = [f"{part['low']} to {part['high']}" for part in found["bins"]]
    for name, part in zip([*ranges, "all"], [*found["bins"], found], strict=True):
        grid.add_row(name, str(part["steps"]), f"{part['predicted']:.2f}", f"{part['accepted']:.2f}")
    title = f"accepted tokens of a verification as estimator={record['config']['estimator']['kind']} predicts them"
    return Group(Text(title, style="bold"), grid)


def run_title(record: Record) -> str:
    config = record["config"]
    decoder = decoder_name(config["decoder"], config["router"]["kind"])
    draft = config.get("draft_model")
    beside = f" drafted by {draft['name']}" if draft else ""
    return f"{config['task']['kind']} on {config['model']['name']}, {decoder}{beside}"


def entries(record: Record) -> list[tuple[str, str]]:
    if not record["n"]:
        return [("samples", f"0 of {record['samples']}")]
    few = f"; fewer than {FEW_SAMPLES}, so a rough figure" if record["n"] < FEW_SAMPLES else ""
    return [
        ("accuracy", accuracy_text(record)),
        *(("  " + name, measure_text(one)) for name, one in record["measures"].items()),
        ("correct", f"{record['correct']} of {record['n']} (data set: {record['data']['rows']}){few}"),
        ("data", f"{record['data']['origin']}, sha256 {record['data']['sha256'][:12]}"),
        *repeated_entries(record["repeated"]),
        ("alarms", alarms_text(record) or "none"),
        ("tokens", f"{record['speed']['tokens']}, {record['mean_tokens']:.1f} per answer"),
        *speed_entries(record["speed"]),
        *([("memory", memory_text(record["memory"]))] if record["memory"] else []),
        *verification_entries(record),
        *((word(key), f"{how}, {MEANINGS[key]}") for key, how in approximations(settings(record)).items()),
        *((("lossless", lossless_text(record)),) if lossless_text(record) else ()),
        ("warm-up", f"{record['warm_up'] or 'none'}; not counted"),
    ]


def warnings(record: Record) -> list[str]:
    """What a reader of this score has to hear, a sentence each."""
    n, alarms = record["n"], record["alarms"]
    found = []
    if n and alarms["truncated"] / n > TRUNCATED_LIMIT:
        most = record["config"]["decode"]["max_new_tokens"]
        found.append(
            f"{alarms['truncated']} of {n} answers were cut off at {most} new tokens, so the accuracy is a lower "
            f"bound; raise decode.max_new_tokens"
        )
    if n and alarms["no_answer"] / n > NO_ANSWER_LIMIT:
        found.append(
            f"nothing to judge was found in {alarms['no_answer']} of {n} answers; look at samples.jsonl: does the "
            f"prompt suit this model?"
        )
    if alarms["errors"]:
        found.append(f"{alarms['errors']} of {n} answers could not be scored and count as wrong; see samples.jsonl")
    if alarms["mask_token"]:
        found.append(f"{alarms['mask_token']} of {n} answers hold a mask token, which is a fault of the decoder")
    if record["data"].get("published") is False:
        found.append(f"the rows of {record['data']['origin']} are not those of the published benchmark")
    return found


def measure_text(measure: Record) -> str:
    if measure["accuracy"] is None or measure["interval"] is None:
        return f"{measure['correct']} of {measure['of']}"
    low, high = measure["interval"]
    return f"{measure['accuracy']:.3f}, {low:.3f}-{high:.3f} ({measure['correct']} of {measure['of']})"


def repeated_entries(repeated: Record | None) -> list[tuple[str, str]]:
    """Samples decoded several times: how far one repeat's accuracy is from the next, and pass@k."""
    if repeated is None:
        return []
    spread = f"mean {repeated['mean']:.3f}, standard deviation {repeated['deviation']:.3f} between them"
    passed = ", ".join(f"pass@{k} {share:.3f}" for k, share in repeated["pass_at_k"].items())
    return [("repeats", f"{len(repeated['accuracies'])}, {spread}"), ("", passed)]


def memory_text(memory: Record) -> str:
    return f"{memory['peak_bytes'] / 2**30:.2f} GiB at most, of the {memory['of']}"


def between(interval: list[float] | None, digits: int) -> str:
    return f" ({interval[0]:.{digits}f}-{interval[1]:.{digits}f})" if interval else ""


def speed_entries(speed: Record) -> list[tuple[str, str]]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in speed["forwards"].items() if count)
    per_second = f"{speed['tokens_per_s']:.1f} tokens/s" if speed["tokens_per_s"] else "no time measured"
    per_second += between(speed["tokens_per_s_interval"], 1)
    per_forward = f"{speed['tokens_per_forward'] or 0:.2f} tokens/forward"
    per_forward += between(speed["tokens_per_forward_interval"], 2)
    phases = ", ".join(f"{seconds:.2f} {phase}" for phase, seconds in speed["seconds_by_phase"].items() if seconds)
    latency = f"{speed['latency_p50_s']:.2f} s median, {speed['latency_p90_s']:.2f} s 90th, "
    return [
        ("forwards", f"{sum(speed['forwards'].values())} ({kinds})"),
        ("speed", f"{per_forward}, {per_second}"),
        ("seconds", f"{speed['seconds']:.2f} ({phases})"),
        ("latency", f"{latency}{speed['latency_p99_s']:.2f} s 99th percentile of a sample"),
    ]


def verification_entries(record: Record) -> list[tuple[str, str]]:
    """What a person tunes a router with."""
    rates, speed = record["verification"], record["speed"]
    traced = [("traced", f"yes: {TRACED}"), *margin_entries(record.get("margin"))]
    if not speed["verified"]:
        return traced if record["traced"] else []
    entries = [
        ("verified", f"{speed['verified']} of {speed['drafted_steps']} steps ({rates['verify_rate']:.2f})"),
        (
            "accepted",
            f"{rates['accepted_per_verification']:.2f} tokens per verification, "
            f"{rates['accepted_share']:.2f} of all new tokens",
        ),
    ]
    return entries + (traced if record["traced"] else [])


def margin_entries(margin: Record | None) -> list[tuple[str, str]]:
    """Why another GPU may give other answers."""
    if margin is None:
        return []
    near = f"{margin['near']} of {margin['decided']} tokens unmasked within {margin['within']} of unmask.threshold"
    return [("margin", f"{near}; other hardware may decide those otherwise")]
