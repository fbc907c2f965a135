"""Routers, estimators, unmask rules and acceptance one by one, on numbers that can be checked by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from s2d2cli.decode import Request
from s2d2cli.decode.acceptance import first_rejections, judge, window_length
from s2d2cli.decode.bandit import ContextualUCB
from s2d2cli.decode.estimators import Confidence, Entropy, EntropyThreshold, LinearMargin, Margin, Renyi2
from s2d2cli.decode.routers import Hysteresis, MinSpan, ScoreThreshold
from s2d2cli.decode.sampling import Sampler
from s2d2cli.decode.state import Commit, DraftStep, Verdict
from s2d2cli.decode.unmask import EntropyBounded, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.errors import ConfigError
from tests.conftest import make_decoder

PROBS = [[0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01]]


def flags(text: str) -> torch.Tensor:
    """'M' is True, anything else False."""
    return torch.tensor([[char == "M" for char in text]])


def draft(masks: str = "MMMM", estimator=None) -> DraftStep:
    logits = torch.tensor([PROBS]).log()
    confidence, tokens = logits.softmax(-1).max(-1)
    mask = flags(masks)
    return DraftStep(tokens, confidence, logits, mask, Sampler(0.0, 0, 1.0), estimator or Confidence(1.0), mask & False)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (Entropy(2.0), [math.exp(-2 * h) for h in (0.67839, 0.92322, 1.0, 0.12095)]),
        (EntropyThreshold(0.7), [1, 0, 0, 1]),
        (Margin(0.1), [1, 0, 0, 1]),  # margins .6, .1, 0, .96, and the comparison is strict
        (LinearMargin(1.5), [0.9, 0.15, 0, 1]),
        (Confidence(0.5), [0.7**0.5, 0.4**0.5, 0.5, 0.97**0.5]),
        (Renyi2(), [0.52, 0.3, 0.25, 0.9412]),
    ],
)
def test_estimators(estimator, expected):
    found = draft(estimator=estimator).accept_prob_BL[0]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float32), atol=2e-4)
    assert ((found >= 0) & (found <= 1)).all()


def test_expected_accepted_is_a_sum_over_prefixes_of_the_first_span():
    assert draft("MM.M").expected_accepted_B.item() == pytest.approx(0.7 + 0.7 * 0.4)
    assert draft("..MM").expected_accepted_B.item() == pytest.approx(0.25 + 0.25 * 0.97)
    assert draft("....").expected_accepted_B.item() == 0


def test_first_span():
    for masks, span in (("MMMM", "MMMM"), (".MM.", ".MM."), ("M.MM", "M..."), ("....", "....")):
        assert torch.equal(draft(masks).span_BL, flags(span))


def session(**unmask):
    """As much of a session as a router's start looks at."""
    decoder = make_decoder(unmask=LowConfidenceDynamic(**unmask), block_length=4)
    return SimpleNamespace(decoder=decoder, state=state())


def state(step: int = 0):
    return SimpleNamespace(
        active_B=torch.tensor([True]),
        block_step_B=torch.tensor([step]),
        block_length=4,
        sub_block=4,
        sub_block_BL=torch.ones(1, 4, dtype=torch.bool),
        mask_id=9,
        tokens_BL=torch.tensor([[9, 9, 9, 9]]),
        positions_BL=torch.tensor([[0, 1, 2, 3]]),
        prompt_len_B=torch.tensor([0]),
    )


def decide(router, masks: str = "MMMM", step: int = 0) -> bool:
    return bool(router.decide(draft(masks), state(step))[0])


def test_min_span():
    assert decide(MinSpan(tau_span=2), "MM.M")
    assert not decide(MinSpan(tau_span=3), "MM.M")


def test_min_span_legacy_also_verifies_where_diffusion_reveals_little():
    router = MinSpan(tau_span=3, legacy=True)
    router.start(session(threshold=0.5))  # two confident masks of four: fewer than three
    assert decide(router, "M.MM")
    router.start(session(threshold=0.2))  # all three masks are confident
    assert not decide(router, "M.MM")


def test_scores():
    """E[K] is .7 + .28 + .07 + .0679 = 1.1179; two masks exceed .5."""
    static, dynamic = ScoreThreshold(cost=1.0), ScoreThreshold(score="dynamic", cost=1.0)
    for router in (static, dynamic):
        router.start(session(threshold=0.5))
    assert static.score_B(draft()).item() == pytest.approx(0.1179, abs=1e-6)
    assert dynamic.score_B(draft()).item() == pytest.approx(-0.8821)
    assert decide(static) and not decide(dynamic)
    assert static.score_B(draft("....")).item() == -math.inf


def test_score_threshold_verifies_at_equality():
    router = ScoreThreshold(cost=0.0, tau_score=float(draft().expected_accepted_B))
    router.start(session())
    assert decide(router)


def test_hysteresis_stays_on_until_the_score_falls_below_tau_off():
    router = Hysteresis(cost=0.0, tau_on=1.0, tau_off=0.5)
    router.start(session())
    scores = {"MMMM": 1.118, "MM..": 0.98, "..M.": 0.25}
    walk = [("MM..", False), ("MMMM", True), ("MM..", True), ("..M.", False), ("MM..", False)]
    assert [decide(router, masks, step=1) for masks, _ in walk] == [on for _, on in walk], scores


def test_hysteresis_compares_strictly_at_tau_on_and_may_restart_per_block():
    equal = Hysteresis(cost=0.0, tau_on=float(draft().expected_accepted_B), tau_off=0.0)
    equal.start(session())
    assert not decide(equal)
    router = Hysteresis(cost=0.0, tau_on=1.0, tau_off=0.5, reset_per_block=True)
    router.start(session())
    assert decide(router, "MMMM", step=0) and decide(router, "MM..", step=1)
    assert not decide(router, "MM..", step=0)


def test_ucb_tries_both_actions_and_then_follows_the_reward():
    router = ContextualUCB(beta=0.0, span_bins=1, progress_bins=1, entropy_bins=1)
    router.start(session())
    seen = []
    for _ in range(6):
        verify = router.decide(draft(), state())
        seen.append(bool(verify[0]))
        # a verified step decides 2 tokens in 2 forwards, a plain one 3 in 1
        verdict = Verdict(Commit.nothing(draft().tokens_BL), verify.long(), verify)
        router.observe(verdict, torch.where(verify, 2, 3), state())
    assert seen == [True, False, False, False, False, False]


def test_a_router_that_counts_confident_masks_needs_a_threshold():
    decoder = make_decoder(router=ScoreThreshold(score="dynamic"), unmask=Sequential(), block_length=4)
    with pytest.raises(ConfigError, match=r"give router\.confidence"):
        ScoreThreshold(score="dynamic").start(SimpleNamespace(decoder=decoder, state=state()))


@pytest.mark.parametrize(
    ("unmask", "quota", "expected"),
    [
        (Sequential(), 2, "M.M."),
        (LowConfidenceStatic(), 2, "M..M"),
        (LowConfidenceStatic(), 0, "...."),
        (LowConfidenceDynamic(0.6), 1, "M..M"),
        (LowConfidenceDynamic(0.8), 1, "...M"),
        (LowConfidenceDynamic(0.8), 2, "M..M"),
        (LowConfidenceDynamic(0.6), 0, "...."),
        # entropies of the masks: .94, 1.39, .17 nats
        (EntropyBounded(0.1), 1, "...M"),
        (EntropyBounded(0.2), 1, "M..M"),
        (EntropyBounded(1.2), 1, "M.MM"),
        (EntropyBounded(1.2, whole_sum=True), 1, "M..M"),
        (EntropyBounded(0.1), 2, "M..M"),
        (EntropyBounded(5.0), 0, "...."),
    ],
)
def test_unmask_rules(unmask, quota, expected):
    masks = "M.MM"
    assert torch.equal(unmask.select(draft(masks), flags(masks), torch.tensor([quota])), flags(expected))


def test_judge_accepts_a_prefix_of_every_span():
    checked, agrees = flags("MMM.MM.M"), flags("M.MMMM..")
    outcome = judge(agrees, checked)
    assert torch.equal(outcome.accepted_BS, flags("M...MM.."))
    assert torch.equal(outcome.rejected_BS, flags(".M.....M"))
    assert first_rejections(outcome.rejected_BS, 2).tolist() == [[1, 7]]


def test_window_reaches_from_the_first_to_the_last_checked_position():
    lengths = [int(window_length(flags(text))) for text in (".MM.", "M..M", "....", "MMMM", "...M")]
    assert lengths == [2, 4, 0, 4, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_all_spans_accept_at_least_as_much_per_forward(golden_model, temperature):
    """Checking every span costs no further forward, so it must not cost tokens per forward."""
    from s2d2cli.decode.routers import MinSpan as Router

    requests = [Request(str(i), [i, 7, 3 * i]) for i in range(40)]
    settings = dict(block_length=16, max_new_tokens=32, temperature=temperature, unmask=LowConfidenceDynamic(0.4))
    rates = {}
    for spans in ("first", "all"):
        decoder = make_decoder(router=Router(tau_span=4), verifier=SelfVerifier(spans=spans), **settings)
        generations = decoder.generate(golden_model, requests).generations
        rates[spans] = sum(len(g.token_ids) for g in generations) / sum(sum(g.forwards.values()) for g in generations)
    assert rates["all"] >= rates["first"]


def test_without_resampling_a_rejected_token_is_not_committed(golden_model):
    decoder = make_decoder(
        router=MinSpan(tau_span=1), verifier=SelfVerifier(resample=False), block_length=8, max_new_tokens=24
    )
    generation = decoder.generate(golden_model, [Request("x", [5, 6, 7])]).generations[0]
    assert set(generation.sources) == {"accepted", "unmasked"}
    assert len(generation.token_ids) == 24
