"""Intervals and tests against known values."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2d2cli.tasks.statistics import mcnemar_exact, ratio_interval, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (1055, 1319, 77.8, 82.1),
        (1187, 1319, 88.3, 91.5),
        (275, 500, 50.6, 59.3),
        (350, 500, 65.8, 73.9),
        (80, 100, 71.1, 86.7),
        (8, 10, 49.0, 94.3),
        (0, 10, 0.0, 27.8),
        (10, 10, 72.2, 100.0),
    ],
)
def test_wilson(successes, n, low, high):
    assert wilson(successes, n) == (pytest.approx(low / 100, abs=1e-3), pytest.approx(high / 100, abs=1e-3))


def test_wilson_without_items_says_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


@settings(deadline=None)
@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_is_symmetric(case):
    successes, n = case
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert wilson(n - successes, n) == (pytest.approx(1 - high), pytest.approx(1 - low))


def test_wilson_covers_as_often_as_it_says():
    rng = random.Random(0)
    trials = [sum(rng.random() < 0.9 for _ in range(100)) for _ in range(1000)]
    covered = sum(low <= 0.9 <= high for low, high in (wilson(successes, 100) for successes in trials))
    assert 0.92 < covered / 1000 < 0.98


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [(30, 15, 0.036), (60, 45, 0.17), (0, 0, 1.0), (5, 5, 1.0), (6, 0, 0.03125), (1000, 1000, 1.0)],
)
def test_mcnemar(only_a, only_b, p):
    assert mcnemar_exact(only_a, only_b) == pytest.approx(p, abs=2e-3 if p == 0.17 else 5e-4)
    assert mcnemar_exact(only_b, only_a) == mcnemar_exact(only_a, only_b)


def test_a_constant_ratio_has_no_spread():
    low, high = ratio_interval([2, 4, 40], [1, 2, 20])
    assert (low, high) == (pytest.approx(2), pytest.approx(2))


def test_the_ratio_is_of_sums_and_the_seed_fixes_it():
    rng = random.Random(1)
    seconds = [rng.uniform(1, 3) for _ in range(400)]
    tokens = [40 * s + rng.gauss(0, 20) for s in seconds]
    low, high = ratio_interval(tokens, seconds)
    assert low < sum(tokens) / sum(seconds) < high
    # Linearised: the standard error of the ratio is sd(tokens - 40 seconds) / (sqrt(n) mean(seconds)) = 0.5.
    assert high - low == pytest.approx(2 * 1.96 * 0.5, rel=0.1)
    assert ratio_interval(tokens, seconds) == (low, high)
    assert ratio_interval(tokens, seconds, seed=1) != (low, high)
    narrow = ratio_interval(tokens, seconds, confidence=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_one_long_item_dominates_the_ratio_and_widens_the_interval():
    low, high = ratio_interval([10, 10, 10, 1000], [1, 1, 1, 10])
    assert low == pytest.approx(10)
    assert high > 90


def test_items_without_a_denominator_are_drawn_too():
    low, high = ratio_interval([0, 6], [0, 2])
    assert (low, high) == (pytest.approx(3), pytest.approx(3))


@pytest.mark.parametrize(("numerators", "denominators"), [([], []), ([1.0], []), ([1, 2], [1]), ([1], [0])])
def test_ratios_need_pairs(numerators, denominators):
    with pytest.raises(ValueError, match="as many denominators as numerators and a sum above 0"):
        ratio_interval(numerators, denominators)
