"""AR-ness against the examples of DiffuCoder's definition and of our notes on it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2d2cli.decode import Generation, Request
from s2d2cli.runs.arness import ar_ness, blocks_of, measure


def steps_of(order: list[int]) -> list[int]:
    """The reveal step of each position, for positions revealed in this order."""
    return [order.index(position) for position in range(len(order))]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_left_to_right_is_one(k):
    assert ar_ness(range(9), k).global_ == ar_ness(range(9), k).local == 1


def test_order_1_0_2_has_local_2_by_sets():
    """The set definition: {p1, p0} = {0, 1} = {2 - 1, 2 - 2} at the last step, whatever their order."""
    assert ar_ness(steps_of([1, 0, 2]), 2).local == 1
    assert ar_ness(steps_of([1, 0, 2]), 1).local == 0
    assert ar_ness(steps_of([1, 0, 2]), 1).global_ == 2 / 3
    assert ar_ness(steps_of([1, 0, 2]), 2).global_ == 1


def test_reversed_blocks_of_four_have_global_4():
    order = [3, 2, 1, 0, 7, 6, 5, 4]
    assert ar_ness(steps_of(order), 4).global_ == 1
    assert ar_ness(steps_of(order), 1).global_ == 2 / 8
    assert ar_ness(steps_of(order), 1).local == 0


def test_a_step_that_reveals_all_four():
    """Index order gives 1.0; confidence order 2, 0, 3, 1 gave 0.0 and 0.5."""
    together = [0, 0, 0, 0]
    assert ar_ness(together, 1).local == ar_ness(together, 1).global_ == 1
    assert ar_ness(steps_of([2, 0, 3, 1]), 1).local == 0
    assert ar_ness(steps_of([2, 0, 3, 1]), 1).global_ == 0.5


def test_expected_reading_of_ties_nears_the_chance_level():
    """Random order of four: global@1 is H_4 / 4 = 0.52, local@1 is 1/4."""
    scores = ar_ness([0, 0, 0, 0], 1, shuffles=4000, seed=1)
    assert scores.global_ == pytest.approx(25 / 48, abs=0.01)
    assert scores.local == pytest.approx(1 / 4, abs=0.01)
    assert ar_ness([0, 0, 0, 0], 1, shuffles=4000, seed=1) == scores


def test_too_short_for_k_has_no_local_score():
    assert ar_ness([0, 1], 2).local is None and ar_ness([0, 1, 2], 2).local == 1


@given(st.permutations(range(7)))
def test_bounds_and_monotony(order):
    scores = [ar_ness(steps_of(order), k) for k in (1, 2, 3, 4)]
    assert all(0 <= s.global_ <= 1 and 0 <= s.local <= 1 for s in scores)
    globals_ = [s.global_ for s in scores]
    assert globals_ == sorted(globals_)


@given(st.permutations(range(6)))
def test_without_ties_shuffling_changes_nothing(order):
    once, shuffled = ar_ness(steps_of(order), 2), ar_ness(steps_of(order), 2, shuffles=3)
    assert shuffled.global_ == pytest.approx(once.global_) and shuffled.local == pytest.approx(once.local)


def test_blocks_follow_the_grid_of_positions():
    assert blocks_of(prompt_length=6, tokens=7, block_length=4) == [1, 1, 2, 2, 2, 2, 3]


def generation(name: str, reveal_steps: list[int]) -> Generation:
    size = len(reveal_steps)
    return Generation(name, [7] * size, "stop", reveal_steps, ["unmasked"] * size, {}, 0, 0, 0)


def test_measure_averages_over_samples_and_leaves_short_ones_out():
    requests = [Request("a", [1] * 4), Request("b", [1] * 4), Request("c", [1] * 4)]
    generations = [generation("a", [0, 1, 2, 3]), generation("b", [1, 0]), generation("c", [])]
    measured = measure(requests, generations, block_length=4)
    assert (measured.n, measured.tokens, measured.tokens_per_step) == (2, 6, 1)
    assert measured.levels[0].global_optimistic == measured.levels[0].global_expected == 0.75
    assert [level.local_n for level in measured.levels] == [2, 1, 1, 0]
    assert measured.levels[3].local_optimistic is None and measured.levels[1].local_optimistic == 1
    assert "k=2, 3, 4: samples of no more than k tokens have no local@k and are left out of it." in measured.remarks


def test_chance_is_random_order_inside_the_blocks():
    requests = [Request(str(i), [1] * 4) for i in range(40)]
    generations = [generation(str(i), list(range(16))) for i in range(40)]
    level = measure(requests, generations, block_length=4).levels[0]
    assert level.global_optimistic == 1 and level.global_chance == pytest.approx(25 / 48, abs=0.02)
    assert measure(requests, generations, block_length=1).levels[0].global_chance == 1
