"""Pareto fronts: which rows no other row beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


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


def steps(x: ArrayLike, y: ArrayLike, mask: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The front's corner points by rising x, for a line that steps down between them (`steps-post` mirrored)."""
    points = np.column_stack([np.asarray(x, dtype=float)[mask], np.asarray(y, dtype=float)[mask]])
    points = np.unique(points, axis=0)
    return points[:, 0], points[:, 1]
