"""The report for people and for files: terminal table, Markdown, CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from s2d2cli.runs.report import ACCURACY, PER_FORWARD, THROUGHPUT, Metric, Report, Table, alarms_text, seed_lines
from s2d2cli.runs.store import Record, decoder_name
from s2d2cli.runs.summary import FEW_SAMPLES, accuracy_text
from s2d2cli.runs.verification import TRACED

FRONT = "*"
COLUMNS = ("decoder", "settings", "n", "accuracy", "95 %", "tok/s", "vs AR", "tok/fwd", "length", "alarms")
SPARE = ("n", "length", "alarms")  # left out of a narrow terminal; the title has n, the files have all
LEFT = ("decoder", "settings", "alarms")
WIDE = 100
TRUNCATED_LIMIT, NO_ANSWER_LIMIT = 0.02, 0.2  # shares of the answers above which a warning is due
LEGEND = (
    f"{FRONT} on the Pareto front of accuracy against that column. tok/s: {THROUGHPUT.unit}; vs AR: the same against "
    f"autoregressive decoding; tok/fwd: {PER_FORWARD.unit}; length: mean tokens of an answer."
)


def cells(row: pd.Series) -> dict[str, str]:
    values = (
        row["decoder"],
        row["varied"],
        str(row["n"]),
        number(row, ACCURACY),
        f"{row['low']:.2f}-{row['high']:.2f}",
        number(row, THROUGHPUT) + mark(row, THROUGHPUT),
        "" if pd.isna(row["speedup"]) else f"{row['speedup']:.2f}x",
        number(row, PER_FORWARD) + mark(row, PER_FORWARD),
        f"{row['mean_tokens']:.0f}",
        row["alarms"],
    )
    return dict(zip(COLUMNS, values, strict=True))


def number(row: pd.Series, metric: Metric) -> str:
    return "?" if pd.isna(row[metric.key]) else f"{row[metric.key]:.{metric.digits}f}"


def mark(row: pd.Series, metric: Metric) -> str:
    return FRONT if row[f"front_{metric.key}"] else " "


def plain_grid() -> Grid:
    """Columns a space apart, without lines: fits eighty characters and pastes well."""
    return Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)


def terminal(table: Table, width: int) -> Group:
    """The table under its title, with as many columns as `width` characters allow."""
    shown = [name for name in COLUMNS if width >= WIDE or name not in SPARE]
    grid = plain_grid()
    for name in shown:
        grid.add_column(name, justify="left" if name in LEFT else "right", no_wrap=name != "alarms")
    for _, row in table.rows.iterrows():
        line = cells(row)
        grid.add_row(*(escape(line[name]) for name in shown))
    return Group(Text(table.title, style="bold"), grid)


def remarks(report: Report) -> list[str]:
    """What a reader of the tables has to know, a sentence each."""
    slower = [
        f"{row['decoder']} {row['varied']} is slower than autoregressive decoding ({row['speedup']:.2f}x)."
        for table in report.tables
        for _, row in table.rows.iterrows()
        if pd.notna(row["speedup"]) and row["speedup"] < 1
    ]
    lost = [f"Not in the tables: {line}." for line in report.unfinished]
    traced = [
        f"{row['decoder']} {row['varied']} was traced: its seconds include the log, so its tok/s is not given; "
        f"to have it, decode again without --trace, with another --results folder."
        for table in report.tables
        for _, row in table.rows.iterrows()
        if row["traced"]
    ]
    seeds = [line for table in report.tables for line in seed_lines(table.rows)]
    return [*report.notes, *seeds, *traced, *(slower if len(slower) <= 3 else [many_slower(slower)]), *lost]


def many_slower(slower: list[str]) -> str:
    return f"{len(slower)} settings are slower than autoregressive decoding (speed-up below 1)."


def markdown(report: Report) -> str:
    parts = ["# Accuracy against speed", LEGEND]
    for table in report.tables:
        frame = pd.DataFrame([cells(row) for _, row in table.rows.iterrows()])
        aligned = ["left" if name in LEFT else "right" for name in COLUMNS]
        parts += [f"## {table.title}", str(frame.to_markdown(index=False, disable_numparse=True, colalign=aligned))]
    return "\n\n".join([*parts, *remarks(report)]) + "\n"


def frame(report: Report) -> pd.DataFrame:
    """All rows with all numbers; `table` tells which rows may be compared."""
    parts: list[Any] = [table.rows.assign(table=index) for index, table in enumerate(report.tables, 1)]
    whole = pd.concat(parts, ignore_index=True)
    settings = pd.DataFrame(list(whole.pop("settings")))
    both: pd.DataFrame = pd.concat([whole, settings.add_prefix("config.")], axis=1)
    return both


def write(report: Report, out: Path) -> list[Path]:
    """CSV, Markdown and a figure per table."""
    from s2d2cli.runs.plots import draw

    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(markdown(report), encoding="utf-8")
    frame(report).to_csv(out / "report.csv", index=False)
    figures = [file for i, table in enumerate(report.tables, 1) for file in draw(table, out / stem(table, i))]
    return [out / "report.md", out / "report.csv", *figures]


def stem(table: Table, index: int) -> str:
    words = f"pareto-{index}-{table.rows['task'].iloc[0]}-{table.rows['model'].iloc[0]}"
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in words)


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
    return f"{config['task']['kind']} on {config['model']['name']}, {decoder}"


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
    traced = [("traced", f"yes: {TRACED}")]
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
