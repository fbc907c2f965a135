"""Fronts: ties, gaps, and agreement with the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from s2d2cli.runs.pareto import front, front_share, hypervolume, staircase

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


@given(values, st.booleans())
def test_drawn_front_is_monotone_and_passes_its_points(rows, larger):
    """InferenceX#674: a front computed on one axis and drawn on another zig-zags."""
    x, y = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    mask = front([y, x if larger else -x])
    line_x, line_y = staircase(x, y, mask, larger)
    assert (np.diff(line_x) >= 0).all() and (np.diff(line_y) * (-1 if larger else 1) >= 0).all()
    assert ((np.diff(line_x) == 0) | (np.diff(line_y) == 0)).all()  # steps, not slopes
    assert set(zip(x[mask], y[mask], strict=True)) <= set(zip(line_x, line_y, strict=True))
    for a, b in zip(x, y, strict=True):  # no point lies beyond the line
        reach = line_y[line_x >= a] if larger else line_y[line_x <= a]
        assert b <= reach.max()


def test_no_front_no_line():
    assert [len(part) for part in staircase([NAN, 1.0], [0.5, 0.5], [False, False])] == [0, 0]


draws = st.integers(1, 5).flatmap(
    lambda rows: st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=rows, max_size=rows), min_size=1, max_size=6
    )
)


@given(draws)
def test_share_of_draws_counts_fronts(drawn):
    a_DR, b_DR = np.array(drawn, dtype=float)[..., 0], np.array(drawn, dtype=float)[..., 1]
    expected = np.mean([front([a_R, b_R]) for a_R, b_R in zip(a_DR, b_DR, strict=True)], axis=0)
    np.testing.assert_allclose(front_share(a_DR, b_DR), expected)


def test_a_row_with_a_gap_has_no_share_and_beats_nobody():
    shares = front_share(np.array([[1.0, 0.5]]), np.array([[NAN, 0.5]]))
    assert np.isnan(shares[0]) and shares[1] == 1


def test_hypervolume_is_the_area_under_the_steps():
    assert hypervolume([1.0], [2.0]) == 2.0
    assert hypervolume([1.0, 3.0, 2.0], [3.0, 1.0, 2.0]) == 1 + 2 + 3
    assert hypervolume([1.0, 3.0, 1.0], [3.0, 1.0, 1.0]) == hypervolume([3.0, 1.0, 1.0], [1.0, 3.0, 3.0]) == 5
    assert hypervolume([2.0, NAN, 0.5], [2.0, 9.0, 9.0], (1.0, 1.0)) == 1.0
    assert hypervolume([], []) == 0.0


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12))
def test_hypervolume_counts_the_unit_squares_below_a_point(points):
    squares = {(x, y) for a, b in points for x in range(a) for y in range(b)}
    assert hypervolume([a for a, _ in points], [b for _, b in points]) == len(squares)
