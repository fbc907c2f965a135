"""The published S2D2 code's recorded runs on a small SDAR checkpoint, replayed with their own random numbers."""

from __future__ import annotations

import copy

import pytest

from s2d2cli.decode import Generation, Request
from s2d2cli.decode.rng import SampleStreams
from tests.decode.replay import ReplayUniforms, available_cases, case_decoder, load_case

NAMES = available_cases()


def expected_tokens(case: dict) -> list[int]:
    """New ids up to and including the stop token. Published runs drop it, or (untrimmed) go on behind it in masks."""
    new = case["output_ids"][len(case["prompt_ids"]) :]
    stop = case["args"]["stopping_criteria_idx"] or []
    found = next((place for place, token in enumerate(new) if token in stop), None)
    return new if found is None else new[: found + 1]


def run_case(model, case: dict, commit: str, prompts: list[list[int]], row: int) -> tuple[Generation, bool]:
    """Decode `prompts`, of which number `row` is the case's; (its generation, were all its recorded numbers used)."""
    stop = case["args"]["stopping_criteria_idx"] or ()
    model = copy.copy(model)
    model.stop_ids = tuple(stop)
    requests = [Request(f"{case['name']}/{number}", prompt) for number, prompt in enumerate(prompts)]
    streams = SampleStreams(0, [request.sample_id for request in requests], model.device)
    uniforms = ReplayUniforms(case["uniforms"], row, streams)
    result = case_decoder(case, commit).generate(model, requests, uniforms)
    return result.generations[row], uniforms.exhausted()


def check(case: dict, generation: Generation) -> None:
    expected = expected_tokens(case)
    stop = case["args"]["stopping_criteria_idx"] or []
    if stop and expected[-1] not in stop:  # the published run dropped its stop token
        assert generation.token_ids[-1] in stop
        assert generation.token_ids[:-1] == expected
    else:
        assert generation.token_ids == expected


@pytest.mark.parametrize("commit", ["separate", "pending"])
@pytest.mark.parametrize("name", NAMES)
def test_golden_alone(golden_model, name, commit):
    case = load_case(name)
    generation, exhausted = run_case(golden_model, case, commit, [case["prompt_ids"]], 0)
    check(case, generation)
    forwards = sum(generation.forwards.values())
    if commit == "separate":
        assert forwards == case["total_forward_steps"]
        assert exhausted
    else:
        assert generation.forwards["commit"] == 0
        assert forwards < case["total_forward_steps"]


@pytest.mark.parametrize("commit", ["separate", "pending"])
@pytest.mark.parametrize("name", NAMES)
def test_golden_in_a_ragged_batch(golden_model, name, commit):
    """Neighbours of other lengths change neither tokens nor the forwards that the row takes part in."""
    case = load_case(name)
    prompt = case["prompt_ids"]
    neighbours = [prompt[:1] * 3 + prompt, prompt, prompt[::-1][: max(1, len(prompt) - 2)]]
    generation, _ = run_case(golden_model, case, commit, neighbours, 1)
    check(case, generation)
    if commit == "separate":
        assert sum(generation.forwards.values()) == case["total_forward_steps"]


def test_enough_golden_cases_are_available():
    """Guards against a filter that quietly lets everything through as unsupported."""
    assert len(NAMES) == 24
    assert sum(name.startswith("gen_") for name in NAMES) == 12
