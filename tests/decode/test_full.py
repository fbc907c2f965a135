"""Models that attend fully: each cache policy equals its own slow reference, alone and in any company."""

from __future__ import annotations

import itertools

import pytest

from s2d2cli.config import ModelConfig, RunConfig
from s2d2cli.decode import Request
from s2d2cli.decode.observe import StepLog
from s2d2cli.decode.unmask import EntropyBounded, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.models import load_model
from tests import published, reference
from tests.conftest import make_decoder

PROMPTS = [[5], [7, 3, 9], list(range(20, 28)), [84, 65, 41, 70, 11, 94, 3, 88, 29, 22, 16, 70, 71]]
POLICIES = ["none", "prefix", "dual"]
DECODERS = {
    "static": dict(unmask=LowConfidenceStatic()),
    "static-few-steps": dict(unmask=LowConfidenceStatic(), denoising_steps=3),
    "sequential": dict(unmask=Sequential()),
    "dynamic": dict(unmask=LowConfidenceDynamic(0.3)),
    "dynamic-sampled": dict(unmask=LowConfidenceDynamic(0.3), temperature=0.8, top_k=20, top_p=0.9),
    "entropy-bounded": dict(unmask=EntropyBounded(2.0)),
}


@pytest.fixture(scope="module", params=["llada", "dream"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "checkpoint"
    getattr(published, request.param)(folder)
    return load_model(RunConfig(ModelConfig(request.param, str(folder), request.param), device="cpu"))


def requests(prompts=PROMPTS) -> list[Request]:
    return [Request(f"sample-{number}", prompt) for number, prompt in enumerate(prompts)]


def full(**settings):
    return make_decoder(**{"context": "full", **settings})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("length", [1, 4, 8, 32])
def test_each_policy_equals_its_slow_reference(model, length, policy):
    """19 new tokens are no multiple of any block but 1."""
    for threshold, steps in itertools.product([None, 0.3], {1, max(1, length // 2), length}):
        unmask = LowConfidenceStatic() if threshold is None else LowConfidenceDynamic(threshold)
        decoder = full(unmask=unmask, block_length=length, denoising_steps=steps, max_new_tokens=19, cache=policy)
        found = decoder.generate(model, requests()).generations
        expected = [reference.diffuse_fully(model, p, 19, length, steps, threshold, policy) for p in PROMPTS]
        assert [(one.token_ids, one.forwards["draft"]) for one in found] == expected
        assert all(sum(one.forwards.values()) == one.forwards["draft"] for one in found)


def test_policies_differ_where_blocks_leave_something_behind(model):
    """Else no reference could tell them apart. In one block of all masks dual computes what prefix does."""
    by_length = {}
    for length in (4, 32):
        decoders = [full(block_length=length, max_new_tokens=32, cache=policy) for policy in POLICIES]
        by_length[length] = [
            [one.token_ids for one in decoder.generate(model, requests()).generations] for decoder in decoders
        ]
    none, prefix, dual = by_length[4]
    assert none != prefix and none != dual and prefix != dual
    none, prefix, dual = by_length[32]
    assert prefix == dual != none


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stop_token_ends_an_answer(model, policy, monkeypatch):
    decoder = full(unmask=LowConfidenceStatic(), block_length=8, max_new_tokens=24, cache=policy)
    long = decoder.generate(model, requests()).generations
    monkeypatch.setattr(model, "stop_ids", (long[0].token_ids[10], long[1].token_ids[3]))
    found = decoder.generate(model, requests()).generations
    expected = [reference.diffuse_fully(model, p, 24, 8, 8, None, policy) for p in PROMPTS]
    assert [(one.token_ids, one.forwards["draft"]) for one in found] == expected
    assert len(found[0].token_ids) <= 11 and len(found[1].token_ids) <= 4 and found[1].finish == "stop"


@pytest.mark.parametrize(
    ("policy", "rows"), [("none", 16 * 21), ("prefix", 21 + 7 * 16 + 21 + 7 * 8), ("dual", 2 * 21 + 14 * 8)]
)
def test_what_a_policy_computes(model, policy, rows):
    """A prompt of 5 and two blocks of 8 in one step per token: the first step of a block computes all 21 positions,
    the others, for a right-shifted model, the one left of the block as well."""
    decoder = full(unmask=Sequential(), block_length=8, max_new_tokens=16, cache=policy)
    result = decoder.generate(model, [Request("x", [1, 2, 3, 4, 5])])
    assert result.cost.forwards == 16 and result.cost.query_rows == rows + 14 * model.shift * (policy != "none")


def test_blocks_are_counted_from_the_prompts_end(model):
    log = StepLog()
    decoder = full(unmask=Sequential(), block_length=8, denoising_steps=1, max_new_tokens=19)
    decoder.generate(model, requests(), observer=log)
    for request in requests():
        steps = log.steps[request.sample_id]
        assert [step["block"] for step in steps] == [0, 1, 2]
        first = len(request.prompt_ids)
        places = [[token["position"] - first for token in step["tokens"]] for step in steps]
        assert places == [[*range(8)], [*range(8, 16)], [16, 17, 18]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", DECODERS)
def test_batch_equals_singles(model, name, policy):
    """Also in another order, and with rows refilled from a queue."""
    settings = dict(DECODERS[name])
    decoder = full(block_length=8, max_new_tokens=21, cache=policy, **settings)
    alone = [decoder.generate(model, [request]).generations[0] for request in requests()]
    assert decoder.generate(model, requests()).generations == alone
    assert decoder.generate(model, requests()[::-1]).generations[::-1] == alone
    refilled = {one.sample_id: one for one in decoder.session(model, requests(), width=2).results()}
    assert [refilled[request.sample_id].token_ids for request in requests()] == [one.token_ids for one in alone]
