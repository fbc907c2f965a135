"""One table as a figure: accuracy against tokens per second and against tokens per forward pass."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure  # not pyplot: no display is needed, or looked for
from matplotlib.patheffects import withStroke

from s2d2cli.runs.pareto import steps
from s2d2cli.runs.report import ACCURACY, SPEEDS, Metric, Table

# Okabe and Ito's colours, told apart by readers with any colour vision; the marker says the same once more.
STYLES = {
    "autoregressive": ("#000000", "*"),
    "static": ("#56B4E9", "s"),
    "dynamic": ("#0072B2", "o"),
    "sequential": ("#999999", "v"),
    "s2d2 never": ("#CC79A7", "P"),
    "s2d2 always": ("#D55E00", "D"),
    "s2d2 min_span": ("#009E73", "^"),
}
OTHERS = (("#E69F00", "X"), ("#F0E442", "h"), ("#882255", "<"), ("#44AA99", ">"), ("#AA4499", "p"))


def draw(table: Table, stem: Path) -> list[Path]:
    """Write the figure as PNG and SVG beside each other."""
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    styles = styles_for(table.rows)
    for axes, metric in zip(panels, SPEEDS, strict=True):
        panel(axes, table.rows, metric, styles)
    panels[0].set_ylabel("accuracy (bars: 95 % interval)")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("\n".join(textwrap.wrap(table.title, 110)), fontsize=10)
    files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


def styles_for(rows: pd.DataFrame) -> dict[str, tuple[str, str]]:
    names = sorted(
        rows["decoder"].unique(), key=lambda name: list(STYLES).index(name) if name in STYLES else len(STYLES)
    )
    new = [name for name in names if name not in STYLES]
    extra = {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(new)}
    return {name: STYLES.get(name) or extra[name] for name in names}


def panel(axes: Any, rows: pd.DataFrame, metric: Metric, styles: dict[str, tuple[str, str]]) -> None:
    """Points with their intervals, and the front of exactly these two axes as a step line."""
    draw_front(axes, rows, metric)
    for name, (color, marker) in styles.items():
        mine = rows[rows["decoder"] == name].dropna(subset=[metric.key, ACCURACY.key])
        intervals = {
            "xerr": x_bars(mine, metric),
            "yerr": bars(mine, "low", ACCURACY.key, "high"),
        }
        size = 11 if marker == "*" else 7
        axes.errorbar(
            mine[metric.key], mine[ACCURACY.key], **intervals, fmt=marker, color=color, markersize=size, label=name,
            elinewidth=0.8, ecolor=(color, 0.3), zorder=3,
        )  # fmt: skip
    label_front(axes, rows, metric)
    axes.set_xlabel(metric.label)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_front(axes: Any, rows: pd.DataFrame, metric: Metric) -> None:
    """A step line through the front, led on to the edges of the data, so that a front of one point shows too."""
    x, y = steps(rows[metric.key], rows[ACCURACY.key], rows[f"front_{metric.key}"].to_numpy())
    if len(x):
        line = [rows[metric.key].min(), *x, x[-1]], [y[0], *y, rows[ACCURACY.key].min()]
        axes.step(*line, where="pre", color="#777777", linewidth=1.2, zorder=1, label="Pareto front")


def x_bars(rows: pd.DataFrame, metric: Metric) -> np.ndarray | None:
    low, high = f"{metric.key}_low", f"{metric.key}_high"
    if low not in rows or rows[low].isna().any():
        return None
    return bars(rows, low, metric.key, high)


def bars(rows: pd.DataFrame, low: str, middle: str, high: str) -> np.ndarray:
    """Lengths of the error bars, (2, points): down from the middle, and up."""
    lengths: np.ndarray = np.diff(rows[[low, middle, high]].to_numpy(), axis=1).T
    return lengths


def label_front(axes: Any, rows: pd.DataFrame, metric: Metric) -> None:
    """Name the front's points, inside the panel; the table has the others."""
    middle = (rows[metric.key].min() + rows[metric.key].max()) / 2
    marked = rows[rows[f"front_{metric.key}"]]
    labels = {(row["varied"].replace("=", " "), row[metric.key], row[ACCURACY.key]) for _, row in marked.iterrows()}
    for words, x, y in sorted(labels):
        side = {"ha": "right", "xytext": (-6, 6)} if x > middle else {"ha": "left", "xytext": (6, 6)}
        halo = [withStroke(linewidth=2.5, foreground="white")]
        axes.annotate(words, (x, y), textcoords="offset points", fontsize=7.5, path_effects=halo, zorder=2, **side)
