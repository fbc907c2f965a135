"""A session refilled from a queue: results are those of single runs, rows do not idle, costs add up."""

import copy
import itertools
import time

import pytest
import torch

from s2d2cli.decode import Request
from s2d2cli.decode.bandit import ContextualUCB
from s2d2cli.decode.meter import PHASES
from s2d2cli.decode.routers import Always, Hysteresis
from s2d2cli.decode.single import SingleForward
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.errors import DecodeError
from tests.conftest import make_decoder, s2d2

PROMPTS = [[7, 3, 9], list(range(20, 41)), [5], [11] * 9, list(range(60, 75)), [8, 8], [300, 2, 1, 4]]
REQUESTS = [Request(f"sample {i}", prompt) for i, prompt in enumerate(PROMPTS)]
CAUSAL = dict(context="causal", block_length=8, max_new_tokens=40)
DECODERS = {
    "greedy": s2d2(block_length=8, max_new_tokens=40),
    "sampled": s2d2(block_length=8, max_new_tokens=40, temperature=1.0),
    "hysteresis": make_decoder(
        context="causal", block_length=8, max_new_tokens=40, router=Hysteresis(tau_on=1.5, tau_off=0.5)
    ),
    "ucb": make_decoder(context="causal", block_length=8, max_new_tokens=40, router=ContextualUCB()),
    "plain": make_decoder(block_length=8, max_new_tokens=40),
    "separate": make_decoder(block_length=4, max_new_tokens=17, commit="separate"),
    "ahead": make_decoder(Always(), verifier=SelfVerifier(ahead=True), **CAUSAL),
    "single": make_decoder(Always(), verifier=SingleForward(), **CAUSAL),
    "sliding": make_decoder(Always(), verifier=SingleForward("sliding", 30), temperature=0.8, **CAUSAL),
    "autoregressive": make_decoder(block_length=1, max_new_tokens=40),
}


@pytest.fixture(scope="module")
def stopping(golden_model):
    """Rows stop at different places, so that they leave and enter one by one."""
    model = copy.copy(golden_model)
    free = DECODERS["greedy"].generate(golden_model, REQUESTS).generations
    model.stop_ids = (free[0].token_ids[10], free[1].token_ids[20], free[2].token_ids[3])
    return model


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_whoever_shares_the_batch_or_had_the_row_before_does_not_matter(stopping, name, width):
    alone = {r.sample_id: DECODERS[name].generate(stopping, [r]).generations[0] for r in REQUESTS}
    found = list(DECODERS[name].session(stopping, REQUESTS, width).results())
    assert {g.sample_id: g for g in found} == alone
    assert len(found) == len(REQUESTS)
    assert name == "separate" or len({len(g.token_ids) for g in found}) > 1, "they should end at different places"


def test_a_finished_row_is_refilled_at_once(stopping):
    """Two at a time need about half of the forwards; a batch that waits for its slowest row needs more."""
    decoder = DECODERS["greedy"]
    steps = [decoder.generate(stopping, [r]).forwards["draft"] for r in REQUESTS]
    session = decoder.session(stopping, REQUESTS, 2)
    list(session.results())
    waiting = sum(max(pair) for pair in itertools.zip_longest(steps[::2], steps[1::2], fillvalue=0))
    assert session.meter.forwards["draft"] <= sum(steps) / 2 + max(steps) / 2
    assert session.meter.forwards["draft"] < waiting


def test_no_more_are_admitted_when_asked(stopping):
    session = DECODERS["greedy"].session(stopping, REQUESTS, 2)
    found = []
    for generation in session.results():
        found.append(generation.sample_id)
        session.admit_no_more()
    assert len(found) < len(REQUESTS) and set(found) == {REQUESTS[i].sample_id for i in session.finished}
    assert [g.sample_id for g in session.result.generations] == [
        REQUESTS[i].sample_id for i in sorted(session.finished)
    ]


@pytest.mark.parametrize("name", ["greedy", "separate", "plain", "single"])
@pytest.mark.parametrize("width", [1, 3])
def test_the_shares_of_all_samples_add_up_to_the_whole(stopping, name, width):
    session = DECODERS[name].session(stopping, REQUESTS, width)
    bills = [generation.bill for generation in session.results()]
    whole = session.result.cost
    for phase in PHASES:
        assert sum(bill.share.seconds[phase] for bill in bills) == pytest.approx(whole.seconds[phase])
    assert sum(bill.share.forwards for bill in bills) == pytest.approx(sum(session.result.forwards.values()))
    assert sum(bill.share.query_rows for bill in bills) == pytest.approx(whole.query_rows)
    assert all(0 < bill.share.total_s <= bill.latency_s * (1 + 1e-9) for bill in bills)
    if width == 1:
        assert all(bill.share.total_s == pytest.approx(bill.latency_s) for bill in bills)
    kinds = {kind for kind, count in session.result.forwards.items() if count}
    assert {phase for phase in PHASES if whole.seconds[phase]} == kinds | {"other"}


def test_seconds_cover_decoding_and_nothing_else(stopping):
    """The phases sum to the wall time, less what the caller does with the results."""
    session = DECODERS["greedy"].session(stopping, REQUESTS, 2)
    began, away = time.perf_counter(), 0.0
    for _ in session.results():
        pause = time.perf_counter()
        time.sleep(0.05)
        away += time.perf_counter() - pause
    wall = time.perf_counter() - began - away
    assert 0.8 * wall < session.result.seconds <= wall


def test_scores_that_are_no_numbers_are_told_with_the_sample(stopping):
    """unsloth#9848, pytorch#103749: a NaN row decodes to nothing and nobody says so."""
    model = copy.copy(stopping)

    def forward(plan, cache):
        logits_BRV = stopping.forward(plan, cache)
        if plan.kind.value == "draft":
            logits_BRV[1] = torch.nan
        return logits_BRV

    model.forward = forward
    for name in ("greedy", "sampled"):
        with pytest.raises(DecodeError, match=r"in torch.float32 are NaN at sample sample 1; look at its weights"):
            DECODERS[name].generate(model, REQUESTS[:3])
    model.dtype = torch.float16
    with pytest.raises(DecodeError, match=r"in torch.float16 are NaN at sample sample 1; .* try dtype=float32"):
        DECODERS["greedy"].generate(model, REQUESTS[:3])
