"""The published S2D2 code's recorded runs on a small LLaDA2 checkpoint, token editing included."""

from __future__ import annotations

import copy
import json

import pytest

from s2d2cli.decode import Decoder, Generation, Request, StepLog
from s2d2cli.decode.estimators import Entropy, Margin, Renyi2
from s2d2cli.decode.rng import SampleStreams
from s2d2cli.decode.routers import Hysteresis, MinSpan, Never, ScoreThreshold
from s2d2cli.decode.unmask import EditTokens
from s2d2cli.decode.verifiers import SelfVerifier
from tests.conftest import GOLDEN, make_decoder
from tests.decode.replay import ReplayUniforms

CASES = {path.stem: json.loads(path.read_text()) for path in sorted((GOLDEN / "llada2").glob("*.json"))}


def case_decoder(case: dict, commit: str) -> Decoder:
    """The published settings as ours."""
    args = case["args"]
    speculative = case["function"] == "ssd_policy"
    return make_decoder(
        router=router_of(args) if speculative else Never(),
        unmask=EditTokens(
            args["threshold"], args["editing_threshold"], args["num_to_transfer"], args["max_post_steps"]
        ),
        estimator=estimator_of(args) if speculative else None,
        verifier=SelfVerifier("published", skip_redundant=False),
        block_length=args["block_length"],
        max_new_tokens=args["gen_length"],
        temperature=args["temperature"],
        top_k=args["top_k"] or 0,
        top_p=args["top_p"] or 1.0,
        commit=commit,
    )


def router_of(args: dict):
    if args["do_verify_policy"] == "mask_span_length":
        return MinSpan(None, args["min_ssd_span_length"], args["legacy_ssd_span_strategy"])
    scored = dict(score=args["do_verify_score_type"].split("_")[1], cost=args["score_penalty_coef"])
    if args["do_verify_policy"] == "score_threshold":
        return ScoreThreshold(**scored, tau_score=args["do_verify_score_threshold"])
    on, off = args["hysteresis_threshold_on"], args["hysteresis_threshold_off"]
    return Hysteresis(**scored, tau_on=on, tau_off=off)


def estimator_of(args: dict):
    return {
        "hard_margin_threshold": Margin(args["ssd_confidence_margin_threshold"]),
        "soft_entropy_negexp": Entropy(args["ssd_entropy_temperature"]),
        "soft_renyi_2_entropy": Renyi2(),
    }[args["token_acceptance_estimator"]]


def stop_ids(case: dict) -> tuple[int, ...]:
    """Without early stop the published code decodes its whole length, and cuts afterwards."""
    return (case["args"]["eos_id"],) if case["args"].get("eos_early_stop") else ()


def run_case(model, case: dict, commit: str, prompts: list[list[int]], row: int) -> tuple[Generation, bool, list[dict]]:
    """Decode `prompts`, of which number `row` is the case's: its generation, were all its recorded numbers used, and
    its steps."""
    model = copy.copy(model)
    model.stop_ids = stop_ids(case)
    model.never_offered = []  # the published code offers the mask token
    requests = [Request(f"{case['name']}/{number}", prompt) for number, prompt in enumerate(prompts)]
    uniforms = ReplayUniforms(case["uniforms"], row, SampleStreams.empty(0, len(requests), model.device))
    log = StepLog()
    result = case_decoder(case, commit).generate(model, requests, uniforms, log)
    return result.generations[row], uniforms.exhausted(), log.steps[requests[row].sample_id]


def check(case: dict, generation: Generation, steps: list[dict]) -> None:
    tokens = generation.token_ids
    if case["args"]["eos_id"] in tokens:
        tokens = tokens[: tokens.index(case["args"]["eos_id"]) + 1]
    assert tokens == case["output_ids"][len(case["prompt_ids"]) :]
    assert [step_events(step) for step in steps] == [published_events(step) for step in case["decoding_order"]]


def step_events(step: dict) -> set[tuple]:
    return {
        (token["position"], token["source"], *((token["was"], token["token"]) if token["source"] == "edited" else ()))
        for token in step["tokens"]
    }


def published_events(step: dict) -> set[tuple]:
    """Revealed positions are positive, verified ones negative: accepted whole, resampled with .5 (no position is 0)."""
    edits = {(position, "edited", old, new) for position, old, new in step["edit"]}
    return edits | {
        (int(abs(mark)), "unmasked" if mark > 0 else "resampled" if mark % 1 else "accepted") for mark in step["unmask"]
    }


def forwards(case: dict, generation: Generation) -> int:
    """As the published code counts: its cache-free function has neither prefill nor commits."""
    counts = generation.forwards
    return counts["draft"] + counts["verify"] if case["function"] == "nocache" else sum(counts.values())


@pytest.mark.parametrize("commit", ["separate", "pending"])
@pytest.mark.parametrize("name", CASES)
def test_golden_alone(llada2_model, name, commit):
    case = CASES[name]
    generation, exhausted, steps = run_case(llada2_model, case, commit, [case["prompt_ids"]], 0)
    check(case, generation, steps)
    assert exhausted
    if commit == "separate":
        assert forwards(case, generation) == case["total_forward_steps"]
    else:
        assert generation.forwards["commit"] == 0


@pytest.mark.parametrize("commit", ["separate", "pending"])
@pytest.mark.parametrize("name", CASES)
def test_golden_in_a_ragged_batch(llada2_model, name, commit):
    """Neighbours of other lengths change neither tokens nor edits nor the forwards that the row takes part in."""
    case = CASES[name]
    prompt = case["prompt_ids"]
    neighbours = [prompt[:1] * 3 + prompt, prompt, prompt[::-1][: max(1, len(prompt) - 2)]]
    generation, exhausted, steps = run_case(llada2_model, case, commit, neighbours, 1)
    check(case, generation, steps)
    assert exhausted
    if commit == "separate":
        assert forwards(case, generation) == case["total_forward_steps"]


def test_all_golden_cases_are_here():
    assert len(CASES) == 27
    assert sum(len(step["edit"]) for case in CASES.values() for step in case["decoding_order"]) == 296
