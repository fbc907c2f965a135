"""Models whose prompt attends to itself fully and whose answer attends by block (D2F): every decoder of block models
decodes them, with an exact cache, alone and in any company."""

from __future__ import annotations

import itertools

import pytest
from safetensors.torch import load_file

from s2d2cli.config import ModelConfig, RunConfig
from s2d2cli.decode import Request
from s2d2cli.decode.cost_aware import CostAware
from s2d2cli.decode.observe import StepLog
from s2d2cli.decode.routers import Always, MinSpan
from s2d2cli.decode.single import SingleForward
from s2d2cli.decode.unmask import LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.models import load_model
from tests import published, reference
from tests.conftest import make_decoder
from tests.decode.test_equivalence import DECODERS, SPECULATIVE, sum_forwards

PROMPTS = [[5], [7, 3, 9], list(range(20, 28)), [84, 65, 41, 70, 11, 94, 3, 88, 29, 22, 16, 70, 71]]


@pytest.fixture(scope="module", params=["llada", "dream"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    getattr(published, request.param)(folder / "base")
    published.lora(folder / "adapter", load_file(folder / "base" / "model.safetensors"))
    family, places = f"d2f_{request.param}", (str(folder / part) for part in ("base", "adapter"))
    source, adapter = places
    return load_model(RunConfig(ModelConfig(family, source, family, adapter=adapter), device="cpu"))


def requests(prompts=PROMPTS) -> list[Request]:
    return [Request(f"sample-{number}", prompt) for number, prompt in enumerate(prompts)]


def decoded(decoder, model):
    return decoder.generate(model, requests()).generations


def tokens(decoder, model) -> list[list[int]]:
    return [generation.token_ids for generation in decoded(decoder, model)]


@pytest.mark.parametrize("length", [1, 4, 8])
def test_cached_equals_uncached(model, length):
    for threshold, steps in itertools.product([None, 0.3], {1, max(1, length // 2), length}):
        unmask = LowConfidenceStatic() if threshold is None else LowConfidenceDynamic(threshold)
        decoder = make_decoder(unmask=unmask, block_length=length, denoising_steps=steps, max_new_tokens=13)
        expected = [reference.diffuse(model, prompt, 13, length, steps, threshold) for prompt in PROMPTS]
        assert [(one.token_ids, one.forwards["draft"]) for one in decoded(decoder, model)] == expected


def test_the_prompt_s_attention_matters(model):
    """Else no reference could tell it apart."""
    decoder, block_model = make_decoder(block_length=4, max_new_tokens=13), object.__new__(type(model))
    block_model.__dict__ = {**model.__dict__, "whole_prompt": False}
    assert tokens(decoder, model)[1:] != tokens(decoder, block_model)[1:]


@pytest.mark.parametrize("name", sorted(set(DECODERS) - {"editing", "editing-s2d2", "sequential", "static"}))
def test_batch_equals_singles(model, name):
    settings = dict(DECODERS[name])
    decoder = make_decoder(block_length=4, max_new_tokens=11, **settings)
    alone = [decoder.generate(model, [request]).generations[0] for request in requests()]
    assert decoded(decoder, model) == alone
    assert decoder.generate(model, requests()[::-1]).generations[::-1] == alone


@pytest.mark.parametrize("name", SPECULATIVE)
def test_every_speculative_decoder_is_the_autoregressive_one_when_greedy(model, name):
    expected = [reference.autoregressive(model, prompt, 21) for prompt in PROMPTS]
    plain = make_decoder(unmask=Sequential(), block_length=1, max_new_tokens=21, context="causal")
    assert tokens(plain, model) == expected
    router = CostAware([1, 16, 64], [1.0, 1.1, 1.8]) if "cost aware" in name else Always()
    for length in (3, 16):
        decoder = make_decoder(
            router, verifier=SPECULATIVE[name], context="causal", block_length=length, max_new_tokens=21
        )
        assert tokens(decoder, model) == expected


@pytest.mark.parametrize("context", ["block", "causal", "causal_cache", "causal_draft"])
def test_pending_rows_change_no_token(model, context):
    settings = dict(router=MinSpan(tau_span=2), block_length=8, max_new_tokens=21, context=context)
    pending, separate = (make_decoder(**settings, commit=commit) for commit in ("pending", "separate"))
    assert tokens(pending, model) == tokens(separate, model)
    assert sum_forwards(pending.generate(model, requests()))["commit"] == 0


def test_fewer_new_tokens_are_a_prefix(model):
    long, short = (tokens(make_decoder(block_length=8, max_new_tokens=count), model) for count in (24, 11))
    assert short == [row[:11] for row in long]


def test_blocks_are_counted_from_the_prompts_end(model):
    log = StepLog()
    decoder = make_decoder(unmask=Sequential(), block_length=8, denoising_steps=1, max_new_tokens=19)
    decoder.generate(model, requests(), observer=log)
    for request in requests():
        steps, first = log.steps[request.sample_id], len(request.prompt_ids)
        assert [step["block"] for step in steps] == [0, 1, 2]
        assert [step["tokens"][0]["position"] - first for step in steps] == [0, 8, 16]


def test_a_branch_of_a_single_forward_stops_at_the_block_s_border(model):
    """Of blocks that are counted from the prompt's end: a draft looks at 8 positions only where a block begins."""
    log = StepLog()
    decoder = make_decoder(Always(), verifier=SingleForward(), context="causal", block_length=8, max_new_tokens=24)
    decoder.generate(model, requests(), observer=log)
    for request in requests():
        for step in log.steps[request.sample_id]:
            first = step["tokens"][0]["position"] - len(request.prompt_ids)
            assert first + step["span"] <= first // 8 * 8 + 8
