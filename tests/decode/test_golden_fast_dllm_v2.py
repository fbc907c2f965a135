"""The published S2D2 code's recorded runs on a small Fast-dLLM v2 checkpoint, sub-blocks and boundary tokens included.

All with decode.boundary=published, which has a commit forward by its nature; what pending rows change nothing about is
tested in test_equivalence.py.
"""

from __future__ import annotations

import copy
import json

import pytest

from s2d2cli.decode import Decoder, Generation, Request
from s2d2cli.decode.bandit import ContextualUCB
from s2d2cli.decode.rng import SampleStreams
from s2d2cli.decode.routers import Never
from s2d2cli.decode.unmask import LowConfidenceDynamic
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.errors import ConfigError
from tests.conftest import GOLDEN, load_golden, make_decoder
from tests.decode.replay import CONTEXTS, ReplayUniforms, estimator_of, router_of
from tests.decode.test_golden_sdar import decided_order

CASES = {path.stem: json.loads(path.read_text()) for path in sorted((GOLDEN / "fast_dllm_v2").glob("*.json"))}
# what the code for SDAR has besides
ABSENT = dict(
    legacy_ssd_span_strategy=False,
    ssd_entropy_threshold=0.0,
    ssd_confidence_power=1.0,
    ssd_confidence_margin_coef=1.0,
)


@pytest.fixture(scope="module")
def model():
    """Offers the mask token, as the published code does."""
    model = copy.copy(load_golden("fast_dllm_v2"))
    model.never_offered = []
    return model


def case_decoder(case: dict) -> Decoder:
    """The published settings as ours."""
    args = ABSENT | case["args"] | {"confidence_threshold": case["args"]["threshold"]}
    speculative = case["function"] == "ssd_policy"
    router = router_of(args) if speculative else Never()
    if isinstance(router, ContextualUCB):
        router.progress_of = "visible"
    context = CONTEXTS[args.get("cache_ver", False), args.get("draft_ver", False)]
    return make_decoder(
        router=router,
        unmask=LowConfidenceDynamic(args["threshold"]),
        estimator=estimator_of(args) if speculative else None,
        verifier=verifier_of(args) if speculative else None,
        block_length=args["block_size"],
        sub_block_length=args["small_block_size"],
        max_new_tokens=args["max_new_tokens"] if stop_ids(case) else len(new_tokens(case)),
        temperature=args["temperature"],
        top_p=args["top_p"],
        context="causal_published" if context == "causal" else context,
        commit="separate",
        boundary="published",
    )


def verifier_of(args: dict) -> SelfVerifier:
    return SelfVerifier(
        "ratio",
        skip_redundant=False,
        bonus=False,
        resample=args["allow_resample"],
        tempering=args["ssd_ratio_tempering_factor"],
    )


def new_tokens(case: dict) -> list[int]:
    return case["output_ids"][len(case["prompt_ids"]) :]


def stop_ids(case: dict) -> tuple[int, ...]:
    """The stop token, where the run ended with it."""
    return (case["args"]["stop_token"],) if new_tokens(case)[-1] == case["args"]["stop_token"] else ()


def run_case(model, case: dict, prompts: list[list[int]], row: int) -> tuple[Generation, bool]:
    """Decode `prompts`, of which number `row` is the case's; (its generation, were all its recorded numbers used)."""
    model = copy.copy(model)
    model.stop_ids = stop_ids(case)
    requests = [Request(f"{case['name']}/{number}", prompt) for number, prompt in enumerate(prompts)]
    uniforms = ReplayUniforms(case["uniforms"], row, SampleStreams.empty(0, len(requests), model.device))
    result = case_decoder(case).generate(model, requests, uniforms)
    return result.generations[row], uniforms.exhausted()


def published_order(case: dict) -> list[set[tuple[int, str]]]:
    """Each step's (position, source): negative integers are unmasked, others accepted, with .5 resampled. A negative
    number with .5 is a boundary token; it belongs to the step that filled its block, or to the first of all."""
    steps: list[set[tuple[int, str]]] = []
    opening: set[tuple[int, str]] = set()
    for events in case["decoding_order"]:
        decoded = {(int(abs(mark)), source_of(mark)) for mark in events}
        if {source for _, source in decoded} == {"bonus"}:
            (steps[-1] if steps else opening).update(decoded)
        else:
            steps.append(decoded | (opening if not steps else set()))
    return steps


def source_of(mark: float) -> str:
    if mark < 0:
        return "bonus" if mark % 1 else "unmasked"
    return "resampled" if mark % 1 else "accepted"


def check(case: dict, generation: Generation) -> None:
    assert generation.token_ids == new_tokens(case)
    assert sum(generation.forwards.values()) == case["total_forward_steps"]
    if case["args"].get("use_block_cache"):
        return  # stale entries of other sub-blocks: here they only changed the order
    end = len(case["output_ids"])
    order = [{(place, source) for place, source in step if place < end} for step in published_order(case)]
    assert decided_order(generation, len(case["prompt_ids"])) == [step for step in order if step]


@pytest.mark.parametrize("name", CASES)
def test_golden_alone(model, name):
    case = CASES[name]
    generation, exhausted = run_case(model, case, [case["prompt_ids"]], 0)
    check(case, generation)
    assert exhausted


@pytest.mark.parametrize("name", CASES)
def test_golden_in_a_ragged_batch(model, name):
    """Neighbours of other lengths change neither tokens nor the forwards that the row takes part in."""
    case = CASES[name]
    prompt = case["prompt_ids"]
    neighbours = [prompt[:1] * 3 + prompt, prompt, prompt[::-1][: max(1, len(prompt) - 2)]]
    generation, exhausted = run_case(model, case, neighbours, 1)
    check(case, generation)
    assert exhausted


def test_boundary_tokens_as_published_need_a_right_shifted_model(golden_model):
    decoder = make_decoder(block_length=8, max_new_tokens=8, commit="separate", boundary="published")
    with pytest.raises(ConfigError, match=r"decode\.boundary=published .*golden-sdar is none"):
        decoder.generate(golden_model, [Request("x", [1, 2])])


def test_all_golden_cases_are_here():
    assert len(CASES) == 22
