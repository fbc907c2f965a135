"""The report as one page for a browser: everything in one file, which asks no network for anything.

Python computes, the page only draws: fronts, shares and intervals are the frame's. Model and task names come from
outside, so the data travel as JSON without a "<", and the page writes them as text only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from s2d2cli.runs.described import flat
from s2d2cli.runs.metrics import ACCURACY, METRICS, SPEEDS, Metric
from s2d2cli.runs.pareto import staircase
from s2d2cli.runs.published import CAVEAT, WORDS, named
from s2d2cli.runs.remarks import remarks
from s2d2cli.runs.report import Report, Table
from s2d2cli.runs.report_table import legend, mark
from s2d2cli.runs.store import Record
from s2d2cli.runs.styles import styles_for
from s2d2cli.runs.web_page import filled

ABOUT = ("folder", "hardware", "devices", "dtype", "backend", "batch_size", "data", "source", "code", "warm_up")


def page(report: Report, out: Path) -> str:
    return filled("report", data(report, out))


def data(report: Report, out: Path) -> dict[str, Any]:
    names = [name for table in report.tables for name in table.rows["decoder"]]
    shown = [metric for metric in SPEEDS if any(table.rows[metric.key].notna().any() for table in report.tables)]
    return {
        "metrics": {metric.key: described(metric) for metric in METRICS.values()},
        "axes": [metric.key for metric in shown],
        "first": report.wish.axes[0].key,
        "styles": styles_for(names),
        "caveat": CAVEAT,
        "legend": legend(report),
        "remarks": remarks(report),
        "tables": [plain_table(report, table, shown, out) for table in report.tables],
    }


def described(metric: Metric) -> dict[str, Any]:
    return {"label": metric.label, "unit": metric.unit, "larger": metric.larger, "digits": metric.digits}


def plain_table(report: Report, table: Table, shown: list[Metric], out: Path) -> dict[str, Any]:
    rows = table.rows
    return {
        "title": table.title,
        "task": rows["task"].iloc[0],
        "lines": {metric.key: line(rows, metric) for metric in shown},
        "rows": [plain_row(row, report.records[row["folder"]], shown, out) for _, row in rows.iterrows()],
        "published": [plain_published(row) for _, row in report.beside(table).iterrows()],
    }


def line(rows: pd.DataFrame, metric: Metric) -> list[list[float]]:
    x, y = staircase(rows[metric.key], rows[ACCURACY.key], rows[f"front_{metric.key}"], metric.larger)
    return [[float(a), float(b)] for a, b in zip(x, y, strict=True)]


def plain_row(row: pd.Series, record: Record, shown: list[Metric], out: Path) -> dict[str, Any]:
    """What the page shows of a run: in its table, at its point, and when it is opened."""
    folder = quote(Path(os.path.relpath(Path(row["folder"]).resolve(), out.resolve())).as_posix())
    names = {"samples": "samples.jsonl", "config": "config.yaml", "record": "run.json"}
    return {
        "id": row["run_id"],
        "decoder": row["decoder"],
        "router": record["config"]["router"]["kind"],
        "settings": row["varied"],
        "n": int(row["n"]),
        "alarms": row["alarms"],
        "baseline": row["folder"] == row["baseline"],
        "p": known(row["p_holm"]),
        "values": {metric.key: values(row, metric) for metric in (ACCURACY, *shown)},
        "front": {metric.key: mark(row, metric) for metric in shown},
        "links": {"folder": f"{folder}/"} | {name: f"{folder}/{file}" for name, file in names.items()},
        "about": {name: str(row[name]) for name in ABOUT} | flipped(row),
        "config": flat(record["config"]),
        "phases": record["speed"].get("seconds_by_phase") or {},
        "lengths": record["speed"].get("by_length") or [],
    }


def flipped(row: pd.Series) -> dict[str, str]:
    """The command that lists the samples in which the run and its baseline differ."""
    if pd.isna(row["p_value"]):
        return {}
    return {"samples that flipped": f"s2d2 compare {row['folder']} {row['baseline']} --flips"}


def values(row: pd.Series, metric: Metric) -> list[float | None]:
    return [known(row[name]) for name in (metric.key, metric.low, metric.high)]


def known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def plain_published(row: pd.Series) -> dict[str, Any]:
    numbers = {key: known(row[key]) for key in METRICS if key in row}
    return {name: str(row[name]) for name in WORDS} | {
        "name": named(row["model"], row["method"], row["setting"]),
        "values": numbers,
    }
