"""Pareto fronts: which rows no other row beats, and how often that holds when the samples are drawn anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def front(columns: Sequence[ArrayLike]) -> NDArray[np.bool_]:
    """True for rows that no row dominates; every column is better when larger.

    A row dominates another when it is at least as good in all columns and better in one, so equal rows stand on the
    front together. A row with a NaN is on no front and dominates nothing.
    """
    values: NDArray[Any] = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    whole: NDArray[np.bool_] = ~np.isnan(values).any(axis=1)
    mask: NDArray[np.bool_] = whole.copy()
    for row in np.flatnonzero(whole):
        others = values[whole]
        dominating = (others >= values[row]).all(axis=1) & (others > values[row]).any(axis=1)
        mask[row] = not dominating.any()
    return mask


def front_share(a_DR: Floats, b_DR: Floats) -> Floats:
    """For each row the share of draws in which it is on the front of these two; NaN for a row with a NaN.

    Comparisons with NaN are false, so such a row dominates nothing in here either.
    """
    shares_R = np.full(a_DR.shape[1], np.nan)
    for row in np.flatnonzero(~(np.isnan(a_DR) | np.isnan(b_DR)).any(axis=0)):
        a_D1, b_D1 = a_DR[:, [row]], b_DR[:, [row]]
        beaten_DR = (a_DR >= a_D1) & (b_DR >= b_D1) & ((a_DR > a_D1) | (b_DR > b_D1))
        shares_R[row] = 1 - beaten_DR.any(axis=1).mean()
    return shares_R


def staircase(x: ArrayLike, y: ArrayLike, mask: ArrayLike, larger: bool = True) -> tuple[Floats, Floats]:
    """The front as a line by rising x: what y can be had at this x or a better one.

    Where a larger x is better it falls, and steps down behind each point; else it rises, and steps up at each. It is
    led on to the edges of the data, so that a front of one point shows too.
    """
    both, on = np.column_stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)]), np.asarray(mask, dtype=bool)
    points = np.unique(both[on], axis=0)
    if not len(points):
        return points[:, 0], points[:, 1]
    (left, lowest), (right, _) = np.nanmin(both, axis=0), np.nanmax(both, axis=0)
    first, last = points[0], points[-1]
    line = [(left, first[1]) if larger else (first[0], lowest), first]
    for before, after in zip(points[:-1], points[1:], strict=True):
        line += [(before[0], after[1]) if larger else (after[0], before[1]), after]
    line.append((last[0], lowest) if larger else (right, last[1]))
    return np.array(line)[:, 0], np.array(line)[:, 1]


def hypervolume(a: ArrayLike, b: ArrayLike, reference: tuple[float, float] = (0.0, 0.0)) -> float:
    """The area that these points dominate above the reference; both are better when larger. Rows with a NaN count for
    nothing."""
    pairs = np.column_stack([np.asarray(a, dtype=float), np.asarray(b, dtype=float)]) - np.asarray(reference)
    above = pairs[(pairs > 0).all(axis=1)]
    area, reached = 0.0, 0.0
    for width, height in above[np.lexsort((-above[:, 1], -above[:, 0]))]:  # from the right; each adds what is higher
        area += width * max(0.0, height - reached)
        reached = max(reached, height)
    return float(area)
