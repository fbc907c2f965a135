"""Every fast path equals the slow one: batch = singles, cached = uncached, speculative greedy = autoregressive."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter

import pytest
import torch

from s2d2cli.decode import Request
from s2d2cli.decode.cost_aware import CostAware
from s2d2cli.decode.routers import Always, MinSpan
from s2d2cli.decode.single import SingleForward
from s2d2cli.decode.unmask import EditTokens, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.decode.verifiers import SelfVerifier
from tests import reference
from tests.conftest import GOLDEN, make_decoder, s2d2

PROMPTS = [[5], [7, 3, 9], list(range(20, 28)), [284, 65, 141, 270, 111, 94, 3, 188, 129, 22, 216, 270, 270]]
DECODERS = {
    "static": dict(unmask=LowConfidenceStatic()),
    "static-few-steps": dict(unmask=LowConfidenceStatic(), denoising_steps=3),
    "sequential": dict(unmask=Sequential()),
    "dynamic": dict(unmask=LowConfidenceDynamic(0.3)),
    "dynamic-sampled": dict(unmask=LowConfidenceDynamic(0.3), temperature=0.8, top_k=20, top_p=0.9),
    "s2d2": dict(router=MinSpan(tau_span=1)),
    "s2d2-causal": dict(router=MinSpan(tau_span=2), context="causal"),
    "sub-blocks": dict(unmask=LowConfidenceDynamic(0.3), sub_block_length=1),
    "s2d2-sub-blocks": dict(router=MinSpan(tau_span=1), context="causal", sub_block_length=2),
    "s2d2-sampled": dict(router=MinSpan(tau_span=1), context="causal", temperature=1.0),
    "editing": dict(unmask=EditTokens(0.2, 0.1, num_to_transfer=3, max_post_steps=2)),
    "editing-s2d2": dict(unmask=EditTokens(0.4, 0.05), router=MinSpan(tau_span=2), temperature=1.2),
    "editing-s2d2-causal": dict(unmask=EditTokens(0.4, 0.2), router=MinSpan(tau_span=1), context="causal"),
    "s2d2-few-steps": dict(router=MinSpan(tau_span=3), context="causal_cache", denoising_steps=2, temperature=0.7),
}


def requests(prompts=PROMPTS) -> list[Request]:
    return [Request(f"sample-{number}", prompt) for number, prompt in enumerate(prompts)]


def tokens(decoder, model, batch) -> list[list[int]]:
    return [generation.token_ids for generation in decoder.generate(model, batch).generations]


@pytest.mark.parametrize("length", [1, 4, 8])
@pytest.mark.parametrize("name", DECODERS)
def test_batch_equals_singles(family_model, name, length):
    """Also in another order: neither neighbours nor place matter, under greedy and under sampling."""
    settings = dict(DECODERS[name])
    settings["denoising_steps"] = min(settings.get("denoising_steps", length), length)
    decoder = make_decoder(block_length=length, max_new_tokens=19, **settings)
    batch = decoder.generate(family_model, requests())
    alone = [decoder.generate(family_model, [request]).generations[0] for request in requests()]
    turned = decoder.generate(family_model, requests()[::-1])
    assert batch.generations == alone
    assert turned.generations[::-1] == alone


@pytest.mark.parametrize("length", [1, 4, 8])
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_cached_equals_uncached(family_model, prompt, length):
    for threshold, steps in itertools.product([None, 0.3], {1, max(1, length // 2), length}):
        unmask = LowConfidenceStatic() if threshold is None else LowConfidenceDynamic(threshold)
        decoder = make_decoder(unmask=unmask, block_length=length, denoising_steps=steps, max_new_tokens=13)
        generation = decoder.generate(family_model, [Request("x", prompt)]).generations[0]
        expected, made = reference.diffuse(family_model, prompt, 13, length, steps, threshold)
        assert generation.token_ids == expected
        assert generation.forwards["draft"] == made


@pytest.mark.parametrize(("length", "part"), [(1, None), (4, None), (16, None), (32, None), (16, 4), (32, 1)])
def test_greedy_speculative_equals_autoregressive(family_model, length, part):
    expected = [reference.autoregressive(family_model, prompt, 40) for prompt in PROMPTS]
    plain = make_decoder(unmask=Sequential(), block_length=1, max_new_tokens=40)
    assert tokens(plain, family_model, requests()) == expected
    decoder = s2d2(block_length=length, sub_block_length=part, max_new_tokens=40)
    result = decoder.generate(family_model, requests())
    assert [generation.token_ids for generation in result.generations] == expected
    if part != 1 and length > 1:
        assert all(generation.accepted > 0 for generation in result.generations)


@pytest.mark.parametrize("unmask", [None, EditTokens(0.3, 0.1)], ids=["final", "editing"])
@pytest.mark.parametrize("context", ["block", "causal", "causal_cache", "causal_draft"])
def test_pending_rows_change_no_token(family_model, context, unmask):
    settings = dict(router=MinSpan(tau_span=2), unmask=unmask, block_length=8, max_new_tokens=21, context=context)
    pending, separate = (make_decoder(**settings, commit=commit) for commit in ("pending", "separate"))
    assert tokens(pending, family_model, requests()) == tokens(separate, family_model, requests())


def test_fewer_new_tokens_are_a_prefix(family_model):
    for name, settings in DECODERS.items():
        long, short = (
            tokens(make_decoder(block_length=8, max_new_tokens=count, **settings), family_model, requests())
            for count in (24, 11)
        )
        assert short == [row[:11] for row in long], name


def test_no_forward_only_to_commit(golden_model):
    """Static decoding at block length 4 of forward_counts.json: 1036 tokens in 1036 forwards instead of 1296."""
    published = json.loads((GOLDEN / "forward_counts.json").read_text())
    row = next(r for r in published["rows"] if r["decoder"].startswith("static") and r["block_length"] == 4)
    assert (row["tokens"], row["nfe"]) == (1036, 1300)
    batch = requests(published["prompts"])
    settings = dict(unmask=LowConfidenceStatic(), block_length=4, max_new_tokens=259)
    ours, theirs = (
        make_decoder(commit=commit, **settings).generate(golden_model, batch) for commit in ("pending", "separate")
    )
    counts = [sum_forwards(result) for result in (ours, theirs)]
    assert counts == [{"prefill": 4, "draft": 1036}, {"prefill": 4, "draft": 1036, "commit": 260}]
    assert [g.token_ids for g in ours.generations] == [g.token_ids for g in theirs.generations]
    assert sum(len(g.token_ids) for g in ours.generations) == 1036


def sum_forwards(result) -> Counter[str]:
    """By kind, of those that were made."""
    return +sum((Counter(generation.forwards) for generation in result.generations), Counter())


SPECULATIVE = {
    "two passes": SelfVerifier(),
    "two passes, next block ahead": SelfVerifier(ahead=True),
    "two passes, sliding": SelfVerifier(form="sliding"),
    "two passes, sliding, ahead": SelfVerifier(form="sliding", ahead=True),
    "single, aligned": SingleForward(),
    "single, sliding": SingleForward("sliding"),
    "single, few rows": SingleForward("sliding", max_rows=14),
    "two passes, cost aware": SelfVerifier(form="sliding"),
    "single, cost aware": SingleForward("sliding"),
}


def speculative(name: str, **settings):
    router = CostAware([1, 16, 64], [1.0, 1.1, 1.8]) if "cost aware" in name else Always()
    return make_decoder(router=router, verifier=SPECULATIVE[name], context="causal", **settings)


@pytest.mark.parametrize("length", [1, 3, 4, 16])
@pytest.mark.parametrize("name", SPECULATIVE)
def test_every_speculative_decoder_is_the_autoregressive_one_when_greedy(family_model, name, length):
    expected = [reference.autoregressive(family_model, prompt, 40) for prompt in PROMPTS]
    decoder = speculative(name, block_length=length, max_new_tokens=40)
    found = decoder.generate(family_model, requests())
    assert [generation.token_ids for generation in found.generations] == expected
    assert found.generations == [decoder.generate(family_model, [request]).generations[0] for request in requests()]


@pytest.mark.parametrize("form", ["aligned", "sliding"])
def test_no_quota_of_denoising_steps_adds_drafts_to_a_verdict_that_decides_all(family_model, form):
    """Fewer steps than positions make the unmask rule reveal more than was verified; here nothing may."""
    decoder = make_decoder(
        Always(), verifier=SingleForward(form), context="causal", block_length=8, denoising_steps=2, max_new_tokens=40
    )
    for generation, prompt in zip(decoder.generate(family_model, requests()).generations, PROMPTS, strict=True):
        assert generation.token_ids == reference.autoregressive(family_model, prompt, 40)
        assert "unmasked" not in generation.sources


def test_the_next_block_ahead_changes_no_token(family_model):
    one, two = (
        speculative(name, block_length=4, max_new_tokens=60).generate(family_model, requests())
        for name in list(SPECULATIVE)[:2]
    )
    assert [g.token_ids for g in one.generations] == [g.token_ids for g in two.generations]
    assert sum_forwards(two)["draft"] < sum_forwards(one)["draft"]


def test_a_carried_draft_is_the_one_that_a_forward_would_make(golden_model):
    """Down to its random numbers. (That of a right-shifted model is another: it has not seen the bonus before it.)"""
    for temperature in (0.0, 0.9):
        settings = dict(block_length=4, max_new_tokens=60, temperature=temperature)
        plain, ahead = (speculative(name, **settings) for name in list(SPECULATIVE)[:2])
        one, two = (decoder.generate(golden_model, requests()) for decoder in (plain, ahead))
        assert [g.token_ids for g in one.generations] == [g.token_ids for g in two.generations]
        assert sum_forwards(one)["verify"] == sum_forwards(two)["verify"]


def test_a_budget_bounds_the_rows(family_model):
    """Greedy tokens stay; the forwards of a sample never carry more rows than allowed."""
    most, model = 24, copy.copy(family_model)
    widths = []
    model.hidden = lambda plan, cache: widths.append(plan) or family_model.hidden(plan, cache)
    for prompt in PROMPTS:
        decoder = make_decoder(
            router=Always(), verifier=SingleForward(max_rows=most), context="causal", block_length=16, max_new_tokens=40
        )
        found = decoder.generate(model, [Request("x", prompt)]).generations[0]
        assert found.token_ids == reference.autoregressive(family_model, prompt, 40)
    rows = [int((plan.slots_BQ[0] != 0).sum()) for plan in widths if plan.kind.value == "verify"]
    assert max(rows) <= most and len(set(rows)) > 3


def test_forwards_on_the_published_prompts(golden_model):
    """The four prompts of forward_counts.json to 1036 tokens: the published code takes 1018 forwards at block length 4
    (score static, c=1, tau=0) and 744 at 16 (always verify)."""
    published = json.loads((GOLDEN / "forward_counts.json").read_text())
    batch, counts = requests(published["prompts"]), {}
    expected = tokens(make_decoder(block_length=1, max_new_tokens=259), golden_model, batch)
    for name, length in itertools.product(SPECULATIVE, (4, 16)):
        found = speculative(name, block_length=length, max_new_tokens=259).generate(golden_model, batch)
        assert [generation.token_ids for generation in found.generations] == expected
        counts[name, length] = sum(sum_forwards(found).values())
    assert counts["single, aligned", 4] <= 0.60 * 1018 and counts["single, sliding", 4] <= 0.60 * 1018
    assert counts["single, aligned", 16] <= 0.76 * 744 and counts["single, sliding", 16] <= 0.76 * 744
    assert counts["two passes, next block ahead", 4] < counts["two passes", 4]


@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize("name", SPECULATIVE)
def test_sampled_speculation_keeps_the_verifiers_distribution(family_model, name, length):
    """Three tokens under top-k 3: all 27 outcomes against their exact probabilities.

    Chi-square with at most 26 degrees of freedom stays below 64 with probability 1 - 4e-5; the seed is fixed.
    """
    num_samples, prompt = 3000, PROMPTS[3][:4]
    decoder = speculative(name, block_length=length, max_new_tokens=3, temperature=1.0, top_k=3)
    result = decoder.generate(family_model, [Request(str(i), prompt) for i in range(num_samples)])
    outcomes: dict[tuple[int, ...], int] = {}
    for generation in result.generations:
        key = tuple(generation.token_ids)
        outcomes[key] = outcomes.get(key, 0) + 1
    expected = exact_outcomes(family_model, prompt, depth=3, top_k=3)
    assert outcomes.keys() <= expected.keys()
    chi_square = sum((outcomes.get(k, 0) - p * num_samples) ** 2 / (p * num_samples) for k, p in expected.items())
    assert chi_square < 64
    rejected = sum("resampled" in generation.sources for generation in result.generations)
    if (name, length) == ("two passes, cost aware", 2):
        assert rejected == 0  # two forwards for at most two tokens never pay, so it does not speculate
        return
    assert rejected > num_samples / 20  # the test would prove little if drafts were never rejected


def exact_outcomes(model, prompt: list[int], depth: int, top_k: int) -> dict[tuple[int, ...], float]:
    """Probability of every continuation of `depth` tokens in autoregressive mode."""
    outcomes = {(): 1.0}
    for _ in range(depth):
        grown = {}
        for prefix, mass in outcomes.items():
            best = reference.next_token_logits(model, prompt + list(prefix)).topk(top_k)
            for token, prob in zip(best.indices.tolist(), best.values.softmax(-1).tolist(), strict=True):
                grown[(*prefix, token)] = mass * prob
        outcomes = grown
    return outcomes


def test_dynamic_threshold_one_is_static(family_model):
    """No softmax exceeds 1, so one token a step is left."""
    dynamic = make_decoder(unmask=LowConfidenceDynamic(1.0), block_length=8, max_new_tokens=20)
    static = make_decoder(unmask=LowConfidenceStatic(), block_length=8, max_new_tokens=20)
    assert tokens(dynamic, family_model, requests()) == tokens(static, family_model, requests())


def test_stale_cache_slots_are_harmless(golden_model):
    """Whatever an earlier use left in the cache is seen by no row."""
    decoder = s2d2(block_length=8, max_new_tokens=20)
    clean = tokens(decoder, golden_model, requests())
    original = golden_model.new_cache

    def dirty(*sizes):
        cache = original(*sizes)
        for stored in cache.keys_BTHD + cache.values_BTHD:
            stored.copy_(torch.randn(stored.shape, generator=torch.Generator().manual_seed(1)) * 50)
        return cache

    golden_model.new_cache = dirty
    try:
        assert tokens(decoder, golden_model, requests()) == clean
    finally:
        del golden_model.new_cache
