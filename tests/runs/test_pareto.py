"""Fronts: ties, gaps, and agreement with the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from s2d2cli.runs.pareto import front, steps

NAN = float("nan")


def test_ties_stay_and_dominated_rows_go():
    accuracy, speed = [0.9, 0.9, 0.8, 0.8, 0.7], [1.0, 1.0, 2.0, 1.5, 2.0]
    assert front([accuracy, speed]).tolist() == [True, True, True, False, False]


def test_equal_in_one_axis_and_worse_in_the_other_is_dominated():
    assert front([[0.9, 0.9], [1.0, 2.0]]).tolist() == [False, True]


def test_gaps_are_on_no_front_and_dominate_nothing():
    assert front([[1.0, 0.5, NAN], [NAN, 0.5, 9.0]]).tolist() == [False, True, False]


def test_one_row_all_equal_and_none():
    assert front([[0.5], [1.0]]).tolist() == [True]
    assert front([[0.5] * 3, [1.0] * 3]).tolist() == [True] * 3
    assert front([[], []]).tolist() == []


values = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@given(values)
def test_front_is_what_the_definition_says(rows):
    expected = [not any(a >= x and b >= y and (a, b) != (x, y) for a, b in rows) for x, y in rows]
    assert front([[x for x, _ in rows], [y for _, y in rows]]).tolist() == expected


@given(values)
def test_drawn_front_falls_from_left_to_right(rows):
    """InferenceX#674: a front computed on one axis and drawn on another zig-zags."""
    x, y = [r[0] for r in rows], [r[1] for r in rows]
    front_x, front_y = steps(x, y, front([x, y]))
    assert (np.diff(front_x) > 0).all() and (np.diff(front_y) < 0).all()
