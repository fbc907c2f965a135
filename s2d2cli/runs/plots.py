"""One table as a figure: accuracy against each of the chosen metrics."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure  # not pyplot: no display is needed, or looked for

from s2d2cli.runs.metrics import ACCURACY, Metric
from s2d2cli.runs.palette import visible
from s2d2cli.runs.pareto import staircase
from s2d2cli.runs.report import Report, Table
from s2d2cli.runs.samples import ROBUST, percent
from s2d2cli.runs.styles import styles_for

ACROSS = 2  # panels beside each other
TALL = 270  # points from the bottom of a panel to its top, roughly
MAKER = "s2d2 report"  # by this, in the file, a later report knows the figures that it may remove
MOST = 12  # labels on one front
VEIL = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5}  # so that labels read over lines


def draw(report: Report, table: Table, stem: Path) -> list[Path]:
    """Write the figure as PNG and SVG beside each other."""
    axes = report.wish.axes
    wide = min(ACROSS, len(axes))
    down = -(-len(axes) // wide)
    figure = Figure(figsize=(6 * wide, 5 * down + 0.6), layout="constrained")
    panels = figure.subplots(down, wide, sharey=True, squeeze=False)
    styles = styles_for(table.rows["decoder"])
    for place, metric in zip(panels.flat, axes, strict=False):
        panel(place, table.rows, metric, styles)
        lay_beside(place, report.beside(table), metric)
    for place in panels.flat[len(axes) :]:
        place.remove()
    for left in panels[:, 0]:
        left.set_ylabel("accuracy (bars: 95 % interval)")
    found = [place.get_legend_handles_labels() for place in panels.flat]
    handles = {name: handle for some, names in found for handle, name in zip(some, names, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(4, 2 * wide), frameon=False)
    figure.suptitle("\n".join(textwrap.wrap(safe(table.title), 55 * wide)), fontsize=10)
    files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with rc_context({"svg.fonttype": "none"}), catch_warnings():  # letters as letters: smaller, and can be searched
        filterwarnings("ignore", message="Glyph")  # a letter that the font lacks is drawn as a box
        for file, key in zip(files, ("Software", "Creator"), strict=True):
            figure.savefig(file, dpi=150, metadata={key: MAKER})
    return files


def safe(words: str) -> str:
    """Text as it is: matplotlib reads what stands between dollars as a formula, and XML knows no control characters."""
    return visible(words).replace("$", r"\$")


def panel(place: Any, rows: pd.DataFrame, metric: Metric, styles: dict[str, tuple[str, str]]) -> None:
    """Points with their intervals, and the front of exactly these two axes as a step line."""
    rows = rows.dropna(subset=[metric.key, ACCURACY.key])
    draw_front(place, rows, metric)
    for name, (color, marker) in styles.items():
        size = 11 if marker == "*" else 7
        mine = rows[rows["decoder"] == name]
        place.errorbar(
            mine[metric.key], mine[ACCURACY.key], xerr=bars(mine, metric), yerr=bars(mine, ACCURACY), fmt="none",
            elinewidth=0.8, ecolor=(color, 0.3), zorder=2,
        )  # fmt: skip
        doubtful = unsure(mine, metric)
        for part, inside, label in ((mine[~doubtful], color, safe(name)), (mine[doubtful], "white", None)):
            place.plot(
                part[metric.key], part[ACCURACY.key], marker, color=color, markersize=size, markerfacecolor=inside,
                label=label, zorder=3,
            )  # fmt: skip
    label_front(place, rows, metric)
    place.set_xlabel(metric.label if metric.larger else f"{metric.label} (less is better)")
    place.tick_params(labelleft=True)
    place.grid(color="#eeeeee")
    place.set_axisbelow(True)
    place.spines[["top", "right"]].set_visible(False)


def unsure(rows: pd.DataFrame, metric: Metric) -> np.ndarray:
    """Points that stand on the front, but not in enough of the bootstrap draws: they are drawn hollow."""
    doubtful: np.ndarray = (rows[f"front_{metric.key}"] & (rows[f"share_{metric.key}"] < ROBUST)).to_numpy(dtype=bool)
    return doubtful


def draw_front(place: Any, rows: pd.DataFrame, metric: Metric) -> None:
    x, y = staircase(rows[metric.key], rows[ACCURACY.key], rows[f"front_{metric.key}"], metric.larger)
    if len(x):
        place.plot(x, y, color="#777777", linewidth=1.2, zorder=1, label="Pareto front (hollow: not robust)")


def bars(rows: pd.DataFrame, metric: Metric) -> np.ndarray | None:
    """Lengths of the error bars, (2, points): down from the middle, and up; none where there is no interval."""
    if rows[metric.low].isna().all():
        return None
    ends = rows[[metric.low, metric.key, metric.high]].to_numpy(dtype=float)
    return np.asarray(np.maximum(np.nan_to_num(np.diff(ends, axis=1).T), 0))


def label_front(place: Any, rows: pd.DataFrame, metric: Metric) -> None:
    """Name the front's points, of a long one every so many; the table has the others."""
    marked = rows[rows[f"front_{metric.key}"].astype(bool)]
    labels = sorted({(row[ACCURACY.key], row[metric.key], words(row, metric)) for _, row in marked.iterrows()})
    (left, right), (low, high) = place.get_xlim(), place.get_ylim()
    above = -np.inf
    for y, x, text in labels[:: -(-len(labels) // MOST) or 1]:  # each above the one below it
        height = TALL * (y - low) / (high - low)
        above = max(height + 6, above + 9)
        side, shift = ("right", -6) if x > (left + right) / 2 else ("left", 6)
        look = {"xytext": (shift, above - height), "ha": side, "fontsize": 7.5, "bbox": VEIL, "zorder": 4}
        place.annotate(safe(text), (x, y), textcoords="offset points", **look)


def words(row: pd.Series, metric: Metric) -> str:
    """What the front's point is, and how sure its place is unless it is."""
    share = row[f"share_{metric.key}"]
    text = f"{row['decoder']} {row['varied']}".replace("=", " ")
    return f"{text} ({percent(share)} %)" if share < ROBUST else text


def lay_beside(place: Any, rows: pd.DataFrame, metric: Metric) -> None:
    """Published rows where they have a number for this axis, in grey, each with its number in the list of them."""
    if metric.key not in rows:
        return
    known = rows[rows[metric.key].notna() & rows[ACCURACY.key].notna()]
    if known.empty:
        return
    label = "published, not measured here (numbers as in report.md)"
    place.plot(known[metric.key], known[ACCURACY.key], "x", color="#777777", label=label, zorder=2)
    for number, row in known.iterrows():
        where = (row[metric.key], row[ACCURACY.key])
        place.annotate(str(number), where, textcoords="offset points", xytext=(4, 2), fontsize=7, color="#777777")
