"""A front as characters, for terminals: accuracy upwards, the speed to the right, a letter for every decoder."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd

from s2d2cli.runs.metrics import ACCURACY, Metric
from s2d2cli.runs.report import Table

NARROWEST, WIDEST, HEIGHT = 60, 100, 14
MARGIN = 7  # characters left of the picture, for the accuracies
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SEVERAL = "+"


def sketch(table: Table, metric: Metric, width: int) -> str | None:
    """None where it does not fit or would show nothing: fewer than two different places."""
    rows = table.rows.dropna(subset=[metric.key, ACCURACY.key])
    if width < NARROWEST or len(rows[[metric.key, ACCURACY.key]].drop_duplicates()) < 2:
        return None
    letters = dict(zip(rows["decoder"].unique(), LETTERS, strict=False))
    wide = min(width, WIDEST) - MARGIN - 2
    picture = drawn(rows, metric, letters, wide)
    top, bottom = (f"{value:{MARGIN - 1}.3f} " for value in (rows["accuracy"].max(), rows["accuracy"].min()))
    labels = [top, *[" " * MARGIN] * (HEIGHT - 2), bottom]
    low, high = (f"{value:.{metric.digits}f}" for value in (rows[metric.key].min(), rows[metric.key].max()))
    name = f" {metric.label}{'' if metric.larger else ', less is better'} "
    below = " " * MARGIN + low + name.center(wide + 1 - len(low) - len(high)) + high
    key = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    lines = [f"{label}|{''.join(line)}".rstrip() for label, line in zip(labels, picture, strict=True)]
    return "\n".join(
        [*lines, " " * MARGIN + "+" + "-" * wide, below, textwrap.fill(f"{key}; capital: on the front", width)]
    )


def drawn(rows: pd.DataFrame, metric: Metric, letters: dict[str, str], wide: int) -> list[list[str]]:
    picture = [[" "] * wide for _ in range(HEIGHT)]
    across, upwards = places(rows[metric.key], wide), places(rows["accuracy"], HEIGHT)
    for name, front, x, y in zip(rows["decoder"], rows[f"front_{metric.key}"], across, upwards, strict=True):
        letter = letters.get(name, "?")
        line, sign = picture[HEIGHT - 1 - y], letter.upper() if front else letter
        line[x] = sign if line[x] in (" ", sign) else merged(line[x], sign)
    return picture


def merged(there: str, new: str) -> str:
    """Two in one place: the front's letter wins; of different decoders neither does."""
    return max(there, new, key=str.isupper) if there.lower() == new.lower() else SEVERAL


def places(values: pd.Series, size: int) -> Sequence[int]:
    span = values.max() - values.min()
    return [round((value - values.min()) / span * (size - 1)) if span else size // 2 for value in values]
