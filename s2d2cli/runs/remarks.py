"""What a reader of the report's tables has to know besides the numbers, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from s2d2cli.runs.approximate import MEANINGS, approximations
from s2d2cli.runs.baseline import spends_one_forward
from s2d2cli.runs.described import seed_lines
from s2d2cli.runs.metrics import SPEEDUP, Metric
from s2d2cli.runs.report import Report, Table
from s2d2cli.runs.samples import ROBUST, percent

FEW = 3  # sentences of one kind; more of them become one


def remarks(report: Report) -> list[str]:
    found = [*report.notes]
    for table in report.tables:
        found += [
            *seed_lines(table.rows),
            *best(table),
            *without_baseline(table),
            *published_accounting(table),
            *other_code(table),
            *other_software(table),
        ]
        found += [
            *approximate(table),
            *traced(table),
            *gaps(report, table),
            *nearly(report, table),
            *unpaired(table),
            *slower(table),
        ]
    return [*found, *(f"Not in the tables: {line}." for line in report.unfinished)]


def name(row: pd.Series) -> str:
    return f"{row['decoder']} {row['varied']}"


def baseline_of(table: Table, row: pd.Series) -> str:
    """Autoregressive decoding, or whatever the row is held against."""
    base = table.rows[table.rows["folder"] == row["baseline"]].iloc[0]
    return "autoregressive decoding" if base["decoder"] == "autoregressive" else name(base)


def best(table: Table) -> Iterator[str]:
    """The most accurate row against its baseline, and the command that shows the samples in which they differ."""
    rows = table.rows[table.rows["p_holm"].notna()]
    if rows.empty:
        return
    row, tests = rows.iloc[0], len(rows)
    base = table.rows[table.rows["folder"] == row["baseline"]].iloc[0]
    speed = f"{row['speedup']:.2f}x its tokens/s ({row['speedup_low']:.2f}-{row['speedup_high']:.2f}), "
    speed = speed if pd.notna(row["speedup_low"]) else ""
    yield (
        f"{name(row)}, the most accurate beside {baseline_of(table, row)}: "
        f"{speed}accuracy {row['accuracy']:.3f} against {base['accuracy']:.3f}, "
        f"p = {row['p_holm']:.2g}{f' after Holm over {tests} comparisons' if tests > 1 else ''}; "
        f"the samples that flipped: s2d2 compare {row['folder']} {row['baseline']} --flips"
    )


def without_baseline(table: Table) -> Iterator[str]:
    if table.rows["baseline"].isna().all() and len(table.rows) > 1:
        fully = all(settings.get("decode.context") == "full" for settings in table.rows["settings"])
        measure = "" if fully else "measure decoder=autoregressive in the same way, or "
        yield f"{table.title.partition(';')[0]} has no baseline, so no speed-up: {measure}name one with --baseline."


def published_accounting(table: Table) -> Iterator[str]:
    """Rows with the published code's forwards that only write the cache."""
    separate = ~table.rows["settings"].map(spends_one_forward).astype(bool)
    if separate.any():
        names = ", ".join(name(row) for _, row in table.rows[separate].iterrows())
        yield (
            f"Counted as the published code spends its forwards, one more for each finished block "
            f"(decode.commit=separate): {names}."
        )


def other_code(table: Table) -> Iterator[str]:
    versions = sorted(set(table.rows["code"]))
    if len(versions) > 1:
        yield (
            f"The rows of {table.title.partition(';')[0]} were made by different code ({', '.join(versions)}); "
            f"--strict-code sets them apart."
        )


def other_software(table: Table) -> Iterator[str]:
    versions = sorted(set(table.rows["software"]))
    if len(versions) > 1:
        yield f"The rows of {table.title.partition(';')[0]} ran on different software ({'; '.join(versions)})."


def approximate(table: Table) -> Iterator[str]:
    for key, meaning in MEANINGS.items():
        rows = table.rows[[key in approximations(settings) for settings in table.rows["settings"]]]
        if len(rows):
            names = ", ".join(name(row) for _, row in rows.iterrows()) if len(rows) <= FEW else f"{len(rows)} settings"
            yield f"{names} in {table.title.partition(';')[0]}: {meaning}."


def traced(table: Table) -> Iterator[str]:
    for _, row in table.rows[table.rows["traced"].astype(bool)].iterrows():
        yield (
            f"{name(row)} was traced: its seconds include the log, so its tok/s is not given; to have it, decode again "
            f"without --trace, with another --results folder."
        )


def gaps(report: Report, table: Table) -> Iterator[str]:
    """Rows without one of the numbers shown; a traced one has been told of, and so has a missing baseline."""
    for metric in report.wish.axes:
        rows = table.rows[table.rows[metric.key].isna() & ~table.rows["traced"].astype(bool)]
        if not rows.empty and metric != SPEEDUP:
            names = ", ".join(name(row) for _, row in rows.iterrows())
            yield f"No {metric.label} is known of {names}, so it is on no front against that."


def nearly(report: Report, table: Table) -> Iterator[str]:
    """Rows that the samples alone keep off a front as measured."""
    for metric in report.wish.axes:
        off = table.rows[~table.rows[f"front_{metric.key}"].astype(bool)]
        rows = off[off[f"share_{metric.key}"] > 1 - ROBUST].sort_values(f"share_{metric.key}", ascending=False)
        names = [f"{name(row)} ({percent(row[f'share_{metric.key}'])} %)" for _, row in rows.head(FEW).iterrows()]
        more = f" and {len(rows) - FEW} more" if len(rows) > FEW else ""
        if names:
            yield f"Off the front of {metric.label} as measured, but on it in some draws: {', '.join(names)}{more}."


def unpaired(table: Table) -> Iterator[str]:
    """A front of one row is sure without samples, so nothing is missed there."""
    rows = table.rows[table.rows["share_tokens_per_forward"].isna() & table.rows["tokens_per_forward"].notna()]
    if len(rows) and len(table.rows) > 1:
        names = ", ".join(name(row) for _, row in rows.iterrows()) if len(rows) <= FEW else f"{len(rows)} rows"
        yield (
            f"How sure the front is of {names} is not known, because samples.jsonl is missing there, or holds other "
            f"samples than those of the other rows."
        )


def slower(table: Table) -> Iterator[str]:
    """Who is slower than its baseline, and who only seems to be: a ratio whose interval covers 1 tells nothing."""
    below = table.rows[table.rows["speedup"] < 1]
    covers = below["speedup_high"] >= 1
    yield from of_speed(table, below[~covers], "slower")
    yield from of_speed(table, below[covers], "not clearly slower or faster")


def of_speed(table: Table, rows: pd.DataFrame, told: str) -> Iterator[str]:
    if len(rows) > FEW:
        yield f"{len(rows)} settings are {told} than {baseline_of(table, rows.iloc[0])} (speed-up below 1)."
        return
    for _, row in rows.iterrows():
        between = f", {row['speedup_low']:.2f}-{row['speedup_high']:.2f}" if pd.notna(row["speedup_low"]) else ""
        yield f"{name(row)} is {told} than {baseline_of(table, row)} ({row['speedup']:.2f}x{between})."


def failures(report: Report, bounds: Mapping[Metric, float]) -> list[str]:
    """Why the report does not pass these bounds; what was not measured does not pass."""
    found = [] if report.tables else ["there is no finished run"]
    for table in report.tables:
        for _, row in table.rows.iterrows():
            for metric, bound in bounds.items():
                value = row[metric.key]
                if pd.isna(value) or metric.sign * value < metric.sign * bound:
                    side = "at least" if metric.larger else "at most"
                    is_so = "is not known" if pd.isna(value) else f"is {value:.{metric.digits}f}"
                    found.append(f"{metric.label} of {name(row)} {is_so}, and must be {side} {bound:g}")
    return found + report.unfinished
