"""The published S2D2 code's recorded runs on a small SDAR checkpoint, replayed with their own random numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s2d2cli.decode import Request
from tests.decode.replay import ReplayUniforms, available_cases, case_decoder, load_case

NAMES = available_cases()


def expected_tokens(case: dict) -> list[int]:
    """New ids as the published code gives them: without the stop token, and without masks behind it."""
    new = case["output_ids"][len(case["prompt_ids"]) :]
    mask = case["args"]["mask_id"]
    return new[: new.index(mask)] if mask in new else new


def generate(model, name: str, commit: str, prompts: list[list[int]] | None = None):
    """The case in row 0; further prompts, replaying the same numbers from the start where they suffice."""
    case = load_case(name)
    stop = tuple(case["args"]["stopping_criteria_idx"] or ())
    model = with_stop_ids(model, stop)
    uniforms = ReplayUniforms([case["uniforms"]])
    decoder = case_decoder(case, commit)
    result = decoder.generate(model, [Request(name, case["prompt_ids"])], uniforms)
    return case, stop, result.generations[0], uniforms


def with_stop_ids(model, stop_ids: tuple[int, ...]):
    from copy import copy

    model = copy(model)
    model.stop_ids = stop_ids
    return model


def check_tokens(case: dict, stop: tuple[int, ...], token_ids: list[int]) -> None:
    """Published outputs drop the stop token that ours keep (or keep it, where trimming was off)."""
    expected = expected_tokens(case)
    if not stop:
        assert token_ids == expected
        return
    assert token_ids[-1] in stop
    cut = next((i for i, token in enumerate(expected) if token in stop), len(expected))
    assert token_ids[:-1] == expected[:cut]


@pytest.mark.parametrize("commit", ["separate", "pending"])
@pytest.mark.parametrize("name", NAMES)
def test_golden_alone(golden_model, name, commit):
    case, stop, generation, uniforms = generate(golden_model, name, commit)
    check_tokens(case, stop, generation.token_ids)
    forwards = sum(generation.forwards.values())
    if commit == "separate":
        assert forwards == case["total_forward_steps"]
        assert uniforms.exhausted()
    else:
        assert generation.forwards["commit"] == 0
        assert forwards < case["total_forward_steps"]
