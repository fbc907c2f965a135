"""The numbers that a router is tuned with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2d2cli.runs.verification import NEAR, bin_of, bounds, calibration, estimates, margin, near_threshold, rates


def row(steps: int, verified: int, accepted: int, tokens: int, kept: int, **more) -> dict:
    return {
        "drafted_steps": steps,
        "verified": verified,
        "accepted": accepted,
        "tokens": tokens,
        "sources": {"accepted": kept, "unmasked": tokens - kept},
        **more,
    }


def test_rates_are_ratios_of_sums():
    found = rates([row(10, 5, 15, 30, 12), row(30, 15, 5, 10, 4)])
    assert found == {"verify_rate": 20 / 40, "accepted_per_verification": 20 / 20, "accepted_share": 16 / 40}


def test_nothing_verified_and_nothing_at_all():
    plain = row(4, 0, 0, 8, 0) | {"sources": {"unmasked": 8}}
    assert rates([plain]) == {"verify_rate": 0.0, "accepted_per_verification": None, "accepted_share": 0.0}
    assert set(rates([]).values()) == {None}


def test_estimates_are_those_of_verified_steps():
    steps = [
        {"expected": 2.34567, "accepted": 3, "span": 4, "verified": True},
        {"expected": 9.0, "accepted": 0, "span": 4, "verified": False},
        {"expected": 1.0, "accepted": 7, "span": 3, "verified": True},  # all spans of the block were checked
    ]
    assert estimates(steps) == [[2.3457, 3], [1.0, 3]]


def test_near_the_threshold_are_those_that_it_decided():
    """d3LLM#3: 77.5 on one GPU, 72.8 on another, with the same settings."""
    probs = (0.5, 0.88, 0.891, 0.909, 0.92)
    unmasked = [{"source": "unmasked", "draft_prob": prob} for prob in probs]
    verified = [{"source": "accepted", "draft_prob": 0.9}]
    assert near_threshold([{"tokens": unmasked[:3]}, {"tokens": unmasked[3:] + verified}], 0.9) == [2, 5]
    assert near_threshold([{"tokens": unmasked}], None) is None
    rows = [row(4, 0, 0, 8, 0, near_threshold=[2, 8]), row(4, 0, 0, 5, 0, near_threshold=[0, 5]), row(4, 0, 0, 9, 0)]
    assert margin(rows) == {"within": NEAR, "near": 2, "decided": 13} and margin(rows[2:]) is None


def test_calibration_by_bin():
    found = calibration([{"estimates": [[0.5, 1], [1.5, 1], [2.5, 2]]}, {"estimates": [[3.5, 4]]}, {}])
    assert (found["steps"], found["predicted"], found["accepted"]) == (4, 2.0, 2.0)
    assert found["bins"] == [
        {"low": 0, "high": 1, "steps": 1, "predicted": 0.5, "accepted": 1.0},
        {"low": 1, "high": 2, "steps": 1, "predicted": 1.5, "accepted": 1.0},
        {"low": 2, "high": 4, "steps": 2, "predicted": 3.0, "accepted": 3.0},
    ]
    assert calibration([{"estimates": []}, {}]) is None


@given(st.floats(0, 1000))
def test_every_estimate_lies_in_its_bin(expected):
    edges = bounds(bin_of(expected))
    assert edges["low"] <= expected < edges["high"]


@given(st.lists(st.tuples(st.floats(0, 32), st.integers(0, 32)), min_size=1, max_size=50))
def test_bins_add_up(pairs):
    found = calibration([{"estimates": pairs}])
    assert sum(part["steps"] for part in found["bins"]) == found["steps"] == len(pairs)
    whole = sum(part["steps"] * part["accepted"] for part in found["bins"]) / len(pairs)
    assert whole == pytest.approx(found["accepted"])
