"""From lines to numbers: measures, intervals by problem, repeats, alarms, speed."""

from __future__ import annotations

import pytest

from s2d2cli.decode.meter import PHASES
from s2d2cli.runs.summary import alarms, summarise
from s2d2cli.tasks.statistics import ratio_interval, wilson


def row(name: str, correct: bool, repeat: int = 0, tokens: int = 10, seconds: float = 0.5, **changes) -> dict:
    phases = dict.fromkeys(PHASES, 0.0) | {"draft": seconds}
    made = {
        "id": f"{name}#{repeat}",
        "problem": name,
        "repeat": repeat,
        "text": "some text",
        "tokens": tokens,
        "finish": "stop",
        "masked": False,
        "forwards": {"prefill": 1, "draft": 4},
        "accepted": 0,
        "verified": 0,
        "drafted_steps": 4,
        "sources": {"unmasked": tokens},
        "cost": {"seconds": phases, "latency_s": 2 * seconds, "forwards": 5.0, "query_rows": 20.0},
        "correct": correct,
        "extracted": "x",
        "measures": {},
        "detail": {"status": "correct"},
        "error": None,
    } | changes
    return made | {"alarms": alarms(made)}


def test_each_protocol_is_counted_from_the_same_lines():
    rows = [row(str(i), i < 3, measures={"fixed": [int(i < 3), 1], "paper": [int(i < 1), 1]}) for i in range(4)]
    found = summarise(rows)
    assert (found["accuracy"], found["correct"]) == (0.75, 3) and found["interval"] == list(wilson(3, 4))
    assert found["measures"]["paper"] == {"of": 4, "correct": 1, "accuracy": 0.25, "interval": list(wilson(1, 4))}


def test_instructions_are_drawn_by_prompt():
    """The instructions of one prompt are not independent: prompts are the clusters."""
    counts = [(2, 2), (0, 3), (1, 1), (2, 3)]
    rows = [row(str(i), False, measures={"instruction": list(pair)}) for i, pair in enumerate(counts)]
    found = summarise(rows)["measures"]["instruction"]
    assert (found["correct"], found["of"], found["accuracy"]) == (5, 9, 5 / 9)
    assert found["interval"] == list(ratio_interval([2, 0, 1, 2], [2, 3, 1, 3]))


def test_a_line_that_could_not_be_scored_is_in_no_measure():
    rows = [row("a", True, measures={"fixed": [1, 1]}), row("b", False, error="KeyError: 'x'", detail={})]
    found = summarise(rows)
    assert found["measures"]["fixed"]["of"] == 1 and found["n"] == 2 and found["alarms"]["errors"] == 1


def test_repeats():
    """pass@k of Chen et al.; the spread is between repeats; the interval draws problems, not lines."""
    verdicts = {"a": [True, True, False], "b": [False, False, False], "c": [True, False, False]}
    rows = [row(name, right, repeat) for name, found in verdicts.items() for repeat, right in enumerate(found)]
    found = summarise(rows)
    assert found["accuracy"] == pytest.approx(3 / 9)
    assert found["repeated"]["accuracies"] == pytest.approx([2 / 3, 1 / 3, 0])
    assert found["repeated"]["deviation"] == pytest.approx(1 / 3)
    assert found["repeated"]["pass_at_k"] == pytest.approx({"1": 1 / 3, "2": (1 + 0 + 2 / 3) / 3, "3": 2 / 3})
    assert found["interval"] == list(ratio_interval([2, 0, 1], [3, 3, 3]))
    assert summarise(rows[::3])["repeated"] is None
    sure = summarise([row(name, True, repeat) for name in "abcd" for repeat in range(3)])
    assert sure["accuracy"] == 1 and sure["interval"] == list(wilson(4, 4)), "four problems, however often"


def test_speed_is_a_ratio_of_sums():
    rows = [row("a", True, tokens=100, seconds=1.0), row("b", True, tokens=10, seconds=1.0)]
    speed = summarise(rows)["speed"]
    assert speed["tokens_per_s"] == 55 and sum(speed["seconds_by_phase"].values()) == speed["seconds"] == 2
    assert speed["model_forwards"] == 10 and speed["query_rows"] == 40 and speed["latency_p50_s"] == 2
    assert speed["by_length"] == [
        {"above": 0, "up_to": 16, "n": 1, "tokens_per_s": 10},
        {"above": 64, "up_to": 128, "n": 1, "tokens_per_s": 100},
    ]
    low, high = speed["tokens_per_s_interval"]
    assert low == 10 and high == 100


@pytest.mark.parametrize(
    ("changes", "alarm"),
    [
        ({"text": " \n"}, "empty"),
        ({"extracted": None}, "no_answer"),
        ({"finish": "length"}, "truncated"),
        ({"masked": True}, "mask_token"),
        ({"detail": {"status": "timeout"}}, "timeout"),
        ({"error": "ValueError: x", "extracted": None, "detail": {}}, "errors"),
    ],
)
def test_alarms(changes, alarm):
    assert row("a", True, **changes)["alarms"] == [alarm] and row("a", True)["alarms"] == []
    assert summarise([row("a", True, **changes), row("b", True)])["alarms"][alarm] == 1
