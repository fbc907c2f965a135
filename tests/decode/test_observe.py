"""The step log tells the same story as the result, and looking on changes nothing."""

from __future__ import annotations

import json

import pytest

from s2d2cli.decode import Request, StepLog
from s2d2cli.decode.chain import ChainVerifier
from s2d2cli.decode.routers import Always, ScoreThreshold
from s2d2cli.decode.single import SingleForward
from s2d2cli.decode.unmask import LowConfidenceDynamic, LowConfidenceStatic
from tests import reference
from tests.conftest import make_decoder, s2d2

REQUESTS = [Request("a", [7, 3, 9]), Request("b", list(range(20, 33))), Request("c", [5])]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_log_and_result_agree(family_model, temperature):
    settings = dict(block_length=8, max_new_tokens=20, context="causal", temperature=temperature)
    decoder = make_decoder(router=ScoreThreshold(cost=1.5), unmask=LowConfidenceDynamic(0.4), **settings)
    log = StepLog()
    result = decoder.generate(family_model, REQUESTS, observer=log)
    assert result.generations == decoder.generate(family_model, REQUESTS).generations
    json.dumps(log.steps, allow_nan=False)
    for request, generation in zip(REQUESTS, result.generations, strict=True):
        steps = log.steps[request.sample_id]
        low, tokens = len(request.prompt_ids), generation.token_ids
        assert [step["step"] for step in steps] == list(range(generation.drafted_steps))
        assert sum(step["verified"] for step in steps) == generation.verified
        decided = [token for step in steps for token in step["tokens"] if token["position"] < low + len(tokens)]
        assert sum(token["source"] == "accepted" for token in decided) == generation.accepted
        assert all((step["score"] >= 0) == step["verified"] for step in steps if step["span"] > 1)
        story = {token["position"]: (step["step"], token) for step in steps for token in step["tokens"]}
        for offset, token_id in enumerate(generation.token_ids):
            step, token = story[low + offset]
            assert (token["token"], token["source"]) == (token_id, generation.sources[offset])
            assert step == generation.reveal_steps[offset]
            if token["source"] == "bonus":  # nobody drafted it, and it may open the next block
                assert token["draft_prob"] is token["verify_prob"] is None
                continue
            assert steps[step]["block"] == (low + offset) // 8
            assert 0 < token["draft_prob"] <= 1
            assert (token["verify_prob"] is None) == (token["source"] == "unmasked")


def test_verify_prob_is_the_autoregressive_probability(golden_model):
    prompt = REQUESTS[1].prompt_ids
    log = StepLog()
    generation = (
        s2d2(block_length=8, max_new_tokens=16).generate(golden_model, [REQUESTS[1]], observer=log).generations[0]
    )
    checked = 0
    for step in log.steps["b"]:
        for token in step["tokens"]:
            offset = token["position"] - len(prompt)
            if token["source"] == "accepted" and offset < len(generation.token_ids):
                logits = reference.next_token_logits(golden_model, prompt + generation.token_ids[:offset])
                assert token["verify_prob"] == pytest.approx(float(logits.softmax(-1)[token["token"]]), abs=1e-4)
                checked += 1
    assert checked >= 5


def test_a_sliding_window_is_told_by_the_block_that_it_begins_in(golden_model):
    """Its width is no block length."""
    log = StepLog()
    sliding = make_decoder(
        Always(), verifier=SingleForward("sliding"), context="causal", block_length=8, max_new_tokens=24
    )
    sliding.generate(golden_model, [REQUESTS[1]], observer=log)
    steps = log.steps[REQUESTS[1].sample_id]
    firsts = [min(token["position"] for token in step["tokens"]) for step in steps]
    assert [step["block"] for step in steps] == [first // 8 for first in firsts] and len(set(firsts)) > 3


@pytest.mark.parametrize("way", ["two passes", "single", "ssd"])
def test_a_token_is_proposed_in_one_step_and_committed_in_another(golden_model, way):
    """A single forward verifies what the one before proposed; SSD's chain carries on from the state it reached."""
    settings = dict(block_length=8, max_new_tokens=24)
    decoder = {
        "two passes": s2d2(**settings),
        "single": make_decoder(Always(), verifier=SingleForward(), context="causal", **settings),
        "ssd": make_decoder(Always(), LowConfidenceStatic(), ChainVerifier(4), **settings),
    }[way]
    log = StepLog()
    decoder.generate(golden_model, REQUESTS, observer=log)
    behind = set()
    for step in (step for steps in log.steps.values() for step in steps):
        for token in step["tokens"]:
            late = step["step"] - token["proposed_step"]
            behind.add((token["source"], late))
            assert late == 0 or (late == 1 and token["source"] not in ("resampled", "bonus"))
    late_of = {source: {late for kind, late in behind if kind == source} for source, _ in behind}
    if way == "two passes":
        assert set().union(*late_of.values()) == {0}
    elif way == "single":
        assert late_of["accepted"] == {1}
    else:
        assert late_of["accepted"] == late_of["unmasked"] == {0, 1}
