"""A table of the report as text: for a terminal of any width, as Markdown, as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from rich.cells import cell_len
from rich.console import Group
from rich.markup import escape
from rich.text import Text

from s2d2cli.lossless import AUTOREGRESSIVE
from s2d2cli.runs.metrics import ACCURACY, METRICS, SPEEDUP, Metric
from s2d2cli.runs.palette import visible
from s2d2cli.runs.report import Report, Table
from s2d2cli.runs.samples import DRAWS, ROBUST, percent
from s2d2cli.runs.tables import plain_grid

FRONT, UNSURE = "*", "~"
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    mark: f"\\{mark}" for mark in "&%$#_{}"
}


@dataclass(frozen=True)
class Column:
    """`spare`: columns with the highest number go first when the terminal is narrow; those with 0 stay."""

    name: str
    cells: Callable[[pd.DataFrame], list[str]]
    spare: int = 0
    right: bool = True


def columns(table: Table, axes: Sequence[Metric]) -> list[Column]:
    """What this table can show; what would be empty in every row is left out."""
    plain = [metric for metric in axes if metric != SPEEDUP]
    wanted = [
        Column("decoder", lambda rows: list(rows["decoder"]), right=False),
        Column("settings", lambda rows: list(rows["varied"]), right=False),
        Column("lossless", lambda rows: list(rows["lossless"]), 2, right=False),
        Column("n", lambda rows: [str(n) for n in rows["n"]], 4),
        Column(ACCURACY.short, lambda rows: numbers(rows, ACCURACY)),
        Column("95 %", lambda rows: between(rows, ACCURACY, 2), 1),
        *(Column(metric.short, marked(metric)) for metric in plain),
        Column(versus(table), marked(SPEEDUP) if SPEEDUP in axes else factors, 0 if SPEEDUP in axes else 2),
        Column("its 95 %", lambda rows: between(rows, SPEEDUP, 2), 5),
        Column("p", lambda rows: [p_text(p) for p in rows["p_holm"]], 6),
        *(
            Column(metric.short, partial(numbers, metric=metric), 8 + place)
            for place, metric in enumerate(besides(axes))
        ),
        Column("length", lambda rows: [f"{tokens:.0f}" for tokens in rows["mean_tokens"]], 7),
        Column("alarms", lambda rows: list(rows["alarms"]), 3, right=False),
    ]
    return [column for column in wanted if any(column.cells(table.rows))]


def besides(axes: Sequence[Metric]) -> list[Metric]:
    """What a forward does and costs, beside the chosen axes: fewer forwards may have cost rows or time."""
    return [
        METRICS[key] for key in ("ms_per_forward", "rows_per_forward", "forwards_per_token") if METRICS[key] not in axes
    ]


def versus(table: Table) -> str:
    """The head of the speed-ups: what they are held against."""
    names = set(table.rows.loc[table.rows["folder"].isin(table.rows["baseline"]), "decoder"])
    return "vs AR" if names <= {AUTOREGRESSIVE} else "vs baseline"


def numbers(rows: pd.DataFrame, metric: Metric) -> list[str]:
    return ["?" if pd.isna(value) else f"{value:.{metric.digits}f}" for value in rows[metric.key]]


def factors(rows: pd.DataFrame) -> list[str]:
    return ["" if pd.isna(value) else f"{value:.2f}x" for value in rows[SPEEDUP.key]]


def between(rows: pd.DataFrame, metric: Metric, digits: int) -> list[str]:
    pairs = zip(rows[metric.low], rows[metric.high], strict=True)
    return ["" if pd.isna(low) else f"{low:.{digits}f}-{high:.{digits}f}" for low, high in pairs]


def p_text(p: float) -> str:
    return "" if pd.isna(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def marked(metric: Metric) -> Callable[[pd.DataFrame], list[str]]:
    """Numbers with their front marks behind them, all of one width so that the numbers stay aligned."""

    def cells(rows: pd.DataFrame) -> list[str]:
        marks = [mark(row, metric) for _, row in rows.iterrows()]
        width = max(map(len, marks))
        return [number + sign.ljust(width) for number, sign in zip(numbers(rows, metric), marks, strict=True)]

    return cells


def mark(row: pd.Series, metric: Metric) -> str:
    """* on the front; ~62 on it as measured, but only in 62 % of the bootstrap draws."""
    if not row[f"front_{metric.key}"]:
        return ""
    share = row[f"share_{metric.key}"]
    return FRONT if pd.isna(share) or share >= ROBUST else f"{UNSURE}{percent(share)}"


def legend(report: Report) -> str:
    axes = report.wish.axes
    meanings = "; ".join(
        f"{metric.short}: {metric.unit}{'' if metric.larger else ', less is better'}" for metric in axes
    )
    return (
        f"{FRONT} on the Pareto front of accuracy against that column; {UNSURE}62 on it as measured, but in only 62 % "
        f"of {DRAWS} bootstrap draws of the samples. {meanings}; vs: tokens/s over the baseline's; p: McNemar's exact "
        f"test of its accuracy against the baseline's, after Holm; lossless: the decoder of one token a step whose "
        f"tokens (sampled: distribution) it gives, AR for autoregressive; length: mean tokens of an answer; fwd/tok, "
        f"rows/fwd, ms/fwd: forwards of a row per token, and token rows and milliseconds of a batch's forward. A "
        f"column that would be empty is left out. Intervals are of the samples; what a busy machine does to tokens/s "
        f"comes on top."
    )


def terminal(table: Table, axes: Sequence[Metric], width: int) -> Group:
    """The table under its title, with as many columns as `width` characters allow, else a block for every row."""
    shown = columns(table, axes)
    filled = {column.name: column.cells(table.rows) for column in shown}
    left_out: list[str] = []
    while breadth(shown, filled) > width and any(column.spare for column in shown):
        left_out.append(max(shown, key=lambda column: column.spare).name)
        shown = [column for column in shown if column.name != left_out[-1]]
    title = Text(visible(table.title), style="bold")
    if breadth(shown, filled) > width:
        return Group(title, *blocks(table, axes))
    grid = plain_grid()
    for column in shown:
        grid.add_column(column.name, justify="right" if column.right else "left", no_wrap=True)
    for cells in zip(*(filled[column.name] for column in shown), strict=True):
        grid.add_row(*(escape(visible(cell)) for cell in cells))
    narrow = f"left out for want of width: {', '.join(left_out)}; the report's files have all columns"
    return Group(title, grid, *([Text(narrow, style="dim")] if left_out else []))


def breadth(shown: Sequence[Column], filled: dict[str, list[str]]) -> int:
    return sum(1 + max(map(cell_len, (column.name, *filled[column.name]))) for column in shown) - 1


def blocks(table: Table, axes: Sequence[Metric]) -> list[Text]:
    """Each row as a few lines of its own: what is left when no table fits."""
    shown = [column for column in columns(table, axes) if column.name not in ("decoder", "settings", "n", "length")]
    filled = [(column.name, column.cells(table.rows)) for column in shown]
    heads = zip(table.rows["decoder"], table.rows["varied"], strict=True)
    return [
        Text(
            visible(
                "\n".join([f"{name} {words}", *(f"  {key} {cells[i].strip()}" for key, cells in filled if cells[i])])
            )
        )
        for i, (name, words) in enumerate(heads)
    ]


def cells_of(table: Table, axes: Sequence[Metric]) -> tuple[list[Column], list[tuple[str, ...]]]:
    shown = columns(table, axes)
    return shown, list(zip(*(column.cells(table.rows) for column in shown), strict=True))


def as_markdown(table: Table, axes: Sequence[Metric]) -> str:
    shown, lines = cells_of(table, axes)
    frame = pd.DataFrame([[cell.replace("|", "\\|") for cell in line] for line in lines])
    aligned = ["right" if column.right else "left" for column in shown]
    heads = [column.name for column in shown]
    return str(frame.to_markdown(index=False, headers=heads, disable_numparse=True, colalign=aligned))


def as_latex(table: Table, axes: Sequence[Metric]) -> str:
    shown, lines = cells_of(table, axes)
    spec = "".join("r" if column.right else "l" for column in shown)
    return tabular(table.title, spec, [[column.name for column in shown], *lines])


def tabular(comment: str, spec: str, lines: Sequence[Sequence[str]]) -> str:
    """For `booktabs`, the first line being the head; everything that LaTeX would read is escaped."""
    head, *rows = [" & ".join(map(tex, line)) + r" \\" for line in lines]
    body = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([f"% {' '.join(comment.split())}", *body])


def tex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text.strip())
