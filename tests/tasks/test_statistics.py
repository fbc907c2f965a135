"""Intervals and tests against known values."""

import itertools
import random
import tracemalloc
from fractions import Fraction
from math import comb, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2d2cli.tasks import statistics
from s2d2cli.tasks.statistics import (
    holm,
    mcnemar_exact,
    mean_and_deviation,
    mean_pass_at_k,
    paired_difference,
    paired_interval,
    paired_ratio_interval,
    pass_at_k,
    ratio_interval,
    wilson,
)


@pytest.mark.parametrize(
    ("share", "n", "low", "high"),
    [
        (0.8, 1319, 77.8, 82.1),
        (0.9, 1319, 88.3, 91.5),
        (0.55, 500, 50.6, 59.3),
        (0.7, 500, 65.8, 73.9),
        (0.6, 164, 52.4, 67.2),
        (0.8, 164, 73.2, 85.4),
        (0.5, 541, 45.8, 54.2),
        (0.7, 541, 66.0, 73.7),
        (0.8, 100, 71.1, 86.7),
        (0.8, 10, 49.0, 94.3),
    ],
)
def test_wilson_at_the_sizes_of_the_benchmarks(share, n, low, high):
    found = wilson(share * n, n)
    assert found == (pytest.approx(low / 100, abs=5e-4), pytest.approx(high / 100, abs=5e-4))


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
    with pytest.raises(ValueError, match="as many denominators as numerators and a sum above 0"):
        paired_ratio_interval((numerators, denominators), ([1], [1]))


def items(n, seed):
    """Tokens and seconds of a slow and a fast run of the same items, whose lengths differ much."""
    rng = random.Random(seed)
    lengths = [rng.uniform(20, 400) for _ in range(n)]
    slow = [length / 20 + rng.gauss(0, 0.5) + 2 for length in lengths]
    fast = [length / 60 + rng.gauss(0, 0.5) + 2 for length in lengths]
    return lengths, slow, fast


def half_width(influence):
    """Of the 95 % interval of a mean whose items have these deviations."""
    return 1.96 * sqrt(sum(x * x for x in influence)) / len(influence)


def test_bootstrap_of_a_mean_is_the_normal_interval():
    rng = random.Random(3)
    values = [rng.gauss(5, 2) for _ in range(500)]
    mean = sum(values) / 500
    half = half_width([value - mean for value in values])
    low, high = ratio_interval(values, [1] * 500)
    assert (low, high) == (pytest.approx(mean - half, abs=0.03 * half), pytest.approx(mean + half, abs=0.03 * half))


def test_clusters_are_drawn_whole():
    hits, totals = [1, 0, 1, 1, 0, 0, 1, 1, 0, 1] * 8, [1] * 80
    once = ratio_interval(hits, totals)
    thrice = [3 * value for value in hits], [3 * value for value in totals]
    assert ratio_interval(hits * 3, totals * 3, clusters=[*range(80)] * 3) == once == ratio_interval(*thrice)
    low, high = ratio_interval(hits * 3, totals * 3)  # as if repeats were new problems
    assert high - low == pytest.approx((once[1] - once[0]) / sqrt(3), rel=0.06)


def test_the_clustered_interval_is_the_linearised_one():
    rng = random.Random(4)
    prompts = [[rng.random() < (0.9 if number % 2 else 0.4) for _ in range(1 + number % 3)] for number in range(400)]
    hits = [int(hit) for prompt in prompts for hit in prompt]
    names = [f"prompt {number}" for number, prompt in enumerate(prompts) for _ in prompt]
    share = sum(hits) / len(hits)
    half = half_width([(sum(prompt) - share * len(prompt)) / (len(hits) / 400) for prompt in prompts])
    low, high = ratio_interval(hits, [1] * len(hits), clusters=names)
    assert (high - low) / 2 == pytest.approx(half, rel=0.05)
    assert low < share < high


def test_every_item_needs_a_cluster():
    with pytest.raises(ValueError, match="every item needs a cluster, got 1 for 2 items"):
        ratio_interval([1, 1], [1, 1], clusters=["a"])


def test_a_constant_speed_up_has_no_spread():
    lengths, slow, _ = items(50, 5)
    ours = lengths, [seconds / 4 for seconds in slow]
    assert paired_ratio_interval(ours, (lengths, slow)) == (pytest.approx(4), pytest.approx(4))


def test_the_interval_of_a_speed_up_is_the_linearised_one_and_pairs_are_kept():
    lengths, slow, fast = items(300, 6)
    ratio = sum(slow) / sum(fast)
    mean_slow, mean_fast = sum(slow) / 300, sum(fast) / 300
    half = ratio * half_width([s / mean_slow - f / mean_fast for s, f in zip(slow, fast, strict=True)])
    low, high = paired_ratio_interval((lengths, fast), (lengths, slow))
    assert low < ratio < high
    assert (high - low) / 2 == pytest.approx(half, rel=0.05)
    shuffled = random.Random(7).sample(fast, 300)
    loose = paired_ratio_interval((lengths, shuffled), (lengths, slow))
    assert loose[1] - loose[0] > 2 * (high - low)
    assert paired_ratio_interval((lengths * 2, fast * 2), (lengths * 2, slow * 2), clusters=[*range(300)] * 2) == (
        pytest.approx(low),
        pytest.approx(high),
    )


def test_a_speed_up_over_nothing_is_refused():
    with pytest.raises(ValueError, match="baseline above 0"):
        paired_ratio_interval(([1], [1]), ([0], [1]))


def test_many_items_are_drawn_in_bounded_memory(monkeypatch):
    whole = ratio_interval(range(3000), [1] * 3000)
    tracemalloc.start()
    ratio_interval(range(3000), [1] * 3000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # all draws at once would be 240 MB
    monkeypatch.setattr(statistics, "CHUNK", 1)
    assert ratio_interval(range(3000), [1] * 3000) == (
        pytest.approx(whole[0], rel=0.01),
        pytest.approx(whole[1], rel=0.01),
    )


def test_paired_difference():
    a = [True] * 60 + [False] * 45 + [True] * 300 + [False] * 95
    b = [False] * 60 + [True] * 45 + [True] * 300 + [False] * 95
    found = paired_difference(a, b)
    assert (found.n, found.only_a, found.only_b) == (500, 60, 45)
    assert found.difference == pytest.approx(0.03)
    assert found.interval == paired_interval(60, 45, 500)
    assert found.p_value == pytest.approx(0.17, abs=2e-3)
    turned = paired_difference(b, a)
    assert (turned.difference, turned.p_value) == (-found.difference, found.p_value)


@pytest.mark.parametrize(
    ("only_a", "only_b", "n", "low", "high"),
    [
        (1, 7, 21, -0.517, -0.026),  # airway reactivity, in Fagerland, Lydersen and Laake (Stat. Med. 33, 2014)
        (12, 2, 50, 0.061, 0.345),  # the first example of Newcombe (Stat. Med. 17, 1998, 2635-2650)
        (150, 86, 1600, 0.021, 0.059),  # approval ratings, in Agresti and Min (Stat. Med. 24, 2005)
    ],
)
def test_the_paired_interval_is_the_published_one(only_a, only_b, n, low, high):
    assert paired_interval(only_a, only_b, n) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


def test_pairs_that_never_differ_leave_room_for_a_difference():
    """With b = c = 0 the score interval is +- z^2 / (n + z^2)."""
    for n in (1, 20, 1319):
        room = 1.96**2 / (n + 1.96**2)
        assert paired_interval(0, 0, n) == (pytest.approx(-room), pytest.approx(room))


@pytest.mark.parametrize("n", [10, 25])
def test_the_paired_interval_covers_the_truth_as_often_as_it_says(n):
    """The chance of every outcome, added up where the interval holds the true difference; one standard error around
    the difference covers but 0.40 of outcomes at n = 10, share 0.05."""
    outcomes = [(a, b, paired_interval(a, b, n)) for a in range(n + 1) for b in range(n + 1 - a)]
    covered = []
    for i, j in itertools.product(range(13), range(13)):
        p, q = i / 20, j / 20
        if 0 < i + j <= 12:
            chance = ((low <= p - q <= high) * trinomial(n, a, b, p, q) for a, b, (low, high) in outcomes)
            covered.append(sum(chance))
    assert min(covered) > 0.93 and 0.94 < sum(covered) / len(covered) < 0.98


def trinomial(n, a, b, p, q):
    return comb(n, a) * comb(n - a, b) * p**a * q**b * (1 - p - q) ** (n - a - b)


@settings(deadline=None)
@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
def test_the_paired_interval_holds_the_difference_and_mirrors(case):
    n, only_a, only_b = case[0], case[1], min(case[2], case[0] - case[1])
    low, high = paired_interval(only_a, only_b, n)
    assert -1 <= low <= (only_a - only_b) / n <= high <= 1 and low < high
    assert paired_interval(only_b, only_a, n) == (pytest.approx(-high), pytest.approx(-low))


@pytest.mark.parametrize(("a", "b"), [([], []), ([True], []), ([True], [True, False])])
def test_a_pair_needs_the_same_items(a, b):
    with pytest.raises(ValueError, match="same items twice"):
        paired_difference(a, b)


def test_mcnemar_is_the_binomial_test():
    for n, only_a in itertools.product(range(1, 13), range(13)):
        if only_a <= n:
            outcomes = [Fraction(comb(n, k), 2**n) for k in range(n + 1)]
            at_least_as_odd = sum(p for p in outcomes if p <= outcomes[only_a])
            assert mcnemar_exact(only_a, n - only_a) == pytest.approx(float(min(at_least_as_odd, 1)))


def test_mcnemar_is_wrong_no_more_often_than_it_says():
    p_values = [(Fraction(comb(40, k), 2**40), mcnemar_exact(k, 40 - k)) for k in range(41)]
    assert sum(chance for chance, p in p_values if p <= 0.05) <= Fraction(1, 20)


@pytest.mark.parametrize(
    ("raw", "adjusted"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.01, 0.02, 0.02], [0.03, 0.04, 0.04]),
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.04, 0.005, 0.03, 0.01], [0.06, 0.02, 0.06, 0.03]),
    ],
)
def test_holm(raw, adjusted):
    assert holm(raw) == pytest.approx(adjusted)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_rejects_what_its_steps_reject(raw):
    rejected, level = set(), 0.05
    for rank, index in enumerate(sorted(range(len(raw)), key=raw.__getitem__)):
        if raw[index] * (len(raw) - rank) > level:
            break
        rejected.add(index)
    assert {index for index, p in enumerate(holm(raw)) if p <= level} == rejected


def test_pass_at_k_of_ten_samples_three_of_them_right():
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(10, 3, 5) == pytest.approx(0.9167, abs=5e-5)
    assert (pass_at_k(10, 0, 5), pass_at_k(10, 3, 8), pass_at_k(1, 1, 1)) == (0.0, 1.0, 1.0)


@settings(deadline=None)
@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_choices_with_a_right_one(case):
    n, right, k = case
    choices = list(itertools.combinations([True] * right + [False] * (n - right), k))
    assert pass_at_k(n, right, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_many_samples_do_not_overflow():
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)


def test_the_mean_over_problems():
    assert mean_pass_at_k([(10, 3), (10, 0), (20, 20)], 5) == pytest.approx((11 / 12 + 0 + 1) / 3)
    with pytest.raises(ValueError, match="at least one problem"):
        mean_pass_at_k([], 1)


@pytest.mark.parametrize(("n", "right", "k"), [(5, 1, 6), (5, 1, 0), (5, 6, 1), (5, -1, 1), (0, 0, 1)])
def test_pass_at_k_needs_enough_samples(n, right, k):
    with pytest.raises(ValueError, match="1 <= k <= n and 0 <= right <= n"):
        pass_at_k(n, right, k)


def test_spread_between_seeds():
    assert mean_and_deviation([0.5]) == (0.5, None)
    assert mean_and_deviation([2, 4, 4, 4, 5, 5, 7, 9]) == (5, pytest.approx(sqrt(32 / 7)))
    assert mean_and_deviation([0.3, 0.3, 0.3]) == (pytest.approx(0.3), pytest.approx(0))
    with pytest.raises(ValueError, match="at least one value"):
        mean_and_deviation([])
