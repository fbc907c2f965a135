"""The report as files: one page for a browser, Markdown, LaTeX, CSV, and a figure per table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from s2d2cli.runs.html import page
from s2d2cli.runs.published import CAVEAT, as_text
from s2d2cli.runs.remarks import remarks
from s2d2cli.runs.report import Report, Table
from s2d2cli.runs.report_table import as_latex, as_markdown, legend, tabular


def write(report: Report, out: Path) -> list[Path]:
    """Everything there is, into one folder. Figures of an earlier report there that has other tables are removed."""
    from s2d2cli.runs.plots import draw

    out.mkdir(parents=True, exist_ok=True)
    earlier = figures_of(out)
    texts = {"report.html": page(report, out), "report.md": markdown(report), "report.tex": latex(report)}
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8", errors="replace")
    frame(report).to_csv(out / "report.csv", index=False)
    figures = [file for i, table in enumerate(report.tables, 1) for file in draw(report, table, out / stem(table, i))]
    for file in earlier - set(figures):
        file.unlink(missing_ok=True)
    return [*(out / name for name in texts), out / "report.csv", *figures]


def figures_of(out: Path) -> set[Path]:
    """The figures in this folder that a report drew, and nothing else that is called so."""
    from s2d2cli.runs.plots import MAKER

    return {file for file in out.glob("pareto-*") if file.is_file() and MAKER.encode() in file.read_bytes()}


def stem(table: Table, index: int) -> str:
    words = f"pareto-{index}-{table.rows['task'].iloc[0]}-{table.rows['model'].iloc[0]}"
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in words)


def markdown(report: Report) -> str:
    parts = ["# Accuracy against speed", legend(report)]
    for table in report.tables:
        parts += [f"## {table.title}", as_markdown(table, report.wish.axes)]
        beside = report.beside(table)
        if not beside.empty:
            parts += [
                f"### {CAVEAT.capitalize()}",
                str(as_text(beside).to_markdown(index=False, disable_numparse=True)),
            ]
    return "\n\n".join([*parts, *remarks(report)]) + "\n"


def latex(report: Report) -> str:
    parts = ["% needs \\usepackage{booktabs}"]
    for table in report.tables:
        parts.append(as_latex(table, report.wish.axes))
        beside = report.beside(table)
        if not beside.empty:
            shown = as_text(beside)
            parts.append(
                tabular(CAVEAT, "l" * len(shown.columns), [[*map(str, shown.columns)], *shown.values.tolist()])
            )
    return "\n\n".join(parts) + "\n"


def frame(report: Report) -> pd.DataFrame:
    """All rows with all numbers; `table` tells which rows may be compared."""
    parts: list[Any] = [table.rows.assign(table=index) for index, table in enumerate(report.tables, 1)]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"settings": []})
    settings = pd.DataFrame(list(whole.pop("settings")))
    both: pd.DataFrame = pd.concat([whole, settings.add_prefix("config.")], axis=1)
    return both


def as_json(report: Report) -> dict[str, Any]:
    """The frame as plain values, NaN as null, and the sentences that belong to it."""
    rows = json.loads(frame(report).to_json(orient="records", double_precision=15))
    titles = [table.title for table in report.tables]
    beside = [json.loads(report.beside(table).to_json(orient="records")) for table in report.tables]
    return {"tables": titles, "rows": rows, "published": sum(beside, []), "remarks": remarks(report)}
