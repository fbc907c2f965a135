"""Several blocks in flight: equal to a slow reference that knows no cache and no batch, and where there is one to plain
block decoding."""

from __future__ import annotations

import itertools

import pytest

from s2d2cli.config import compose
from s2d2cli.decode import Request
from s2d2cli.decode.observe import StepLog
from s2d2cli.decode.pipelined import Pipelined
from s2d2cli.decode.routers import Always, MinSpan
from s2d2cli.decode.unmask import LowConfidenceDynamic, Sequential
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.effect import without_effect
from s2d2cli.errors import ConfigError
from tests import reference_d2f
from tests.conftest import make_decoder
from tests.decode.test_whole_prompt import model as model
from tests.decode.test_whole_prompt import requests, tokens

RULES = {
    "late": Pipelined(0.6, 0.1, 0.95),
    "soon": Pipelined(0.7, 0.1, 0.25),
    "shy": Pipelined(0.6, 0.5, 1.0),
    "two a step": Pipelined(0.5, 0.25, 0.75, min_tokens_per_step=2),
    "two in flight": Pipelined(0.7, 0.1, 0.25, blocks_in_flight=2),
}


def pipelined(rule, router=None, verifier=None, **settings):
    return make_decoder(router, rule, verifier, **{"block_length": 4, "max_new_tokens": 21, **settings})


def expected(model, rule, prompts, **settings):
    settings = {"length": 4, "new_tokens": 21, **settings}
    shared = (rule.threshold, rule.block_add_threshold, rule.decoded_token_threshold)
    wanted = reference_d2f.Settings(
        settings.pop("length"),
        settings.pop("new_tokens"),
        *shared,
        at_least=rule.min_tokens_per_step,
        most=rule.blocks_in_flight,
        **settings,
    )
    return [reference_d2f.decode(model, prompt, wanted) for prompt in prompts]


def found(decoder, model, prompts):
    asked = [Request(f"sample-{number}", prompt) for number, prompt in enumerate(prompts)]
    generations = decoder.generate(model, asked).generations
    return [(one.token_ids, one.forwards["draft"], one.forwards["verify"]) for one in generations]


PROMPTS = [request.prompt_ids for request in requests()]


@pytest.mark.parametrize("name", RULES)
def test_the_baseline_equals_its_slow_reference(model, name):
    for length, new_tokens in ((4, 21), (8, 30)):
        decoder = pipelined(RULES[name], block_length=length, max_new_tokens=new_tokens)
        slow = expected(model, RULES[name], PROMPTS, length=length, new_tokens=new_tokens)
        assert found(decoder, model, PROMPTS) == slow


@pytest.mark.parametrize("context", ["block", "causal"])
@pytest.mark.parametrize("resample", [True, False], ids=["resample", "drop"])
@pytest.mark.parametrize("name", RULES)
def test_s2d2_equals_its_slow_reference(model, name, resample, context):
    for tau_span, bonus in ((1, True), (3, False)):
        verifier = SelfVerifier(resample=resample, bonus=bonus)
        decoder = pipelined(RULES[name], MinSpan(tau_span=tau_span), verifier, context=context)
        wanted = dict(tau_span=tau_span, resample=resample, causal=context == "causal", bonus=bonus)
        slow = expected(model, RULES[name], PROMPTS, **wanted)
        assert sum(verifications for *_, verifications in slow) > 0
        assert found(decoder, model, PROMPTS) == slow


def test_a_block_model_s_blocks_stand_on_its_own_grid(family_model):
    """There the prompt's last tokens open the first block."""
    prompts = [[5], [7, 3, 9], list(range(20, 28)), list(range(40, 53))]
    for name, router in itertools.product(("late", "two in flight"), (None, MinSpan(tau_span=2))):
        slow = expected(family_model, RULES[name], prompts, new_tokens=14, tau_span=router and router.tau_span)
        assert found(pipelined(RULES[name], router, max_new_tokens=14), family_model, prompts) == slow


def test_blocks_are_in_flight_together(model):
    """Else all of this would prove little: steps decide tokens of several blocks, up to as many as are allowed."""
    widest = {}
    for name, rule in RULES.items():
        log = StepLog()
        pipelined(rule).generate(model, requests(), observer=log)
        blocks = [
            len({(token["position"] - len(request.prompt_ids)) // 4 for token in step["tokens"]})
            for request in requests()
            for step in log.steps[request.sample_id]
        ]
        assert sum(number > 1 for number in blocks) > 5
        widest[name] = max(blocks)
    assert widest["two in flight"] == 2 and widest["soon"] > 2


@pytest.mark.parametrize("router", [None, MinSpan(tau_span=2)], ids=["baseline", "s2d2"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_batch_equals_singles(model, router, temperature):
    """Also in another order, and with rows refilled from a queue."""
    for name in ("soon", "two in flight"):
        decoder = pipelined(RULES[name], router, temperature=temperature, max_new_tokens=14)
        alone = [decoder.generate(model, [request]).generations[0] for request in requests()]
        assert decoder.generate(model, requests()).generations == alone
        assert decoder.generate(model, requests()[::-1]).generations[::-1] == alone
        refilled = {one.sample_id: one for one in decoder.session(model, requests(), width=2).results()}
        assert [refilled[request.sample_id].token_ids for request in requests()] == [one.token_ids for one in alone]


@pytest.mark.parametrize("context", ["block", "causal", "causal_cache", "causal_draft"])
def test_pending_rows_change_no_token(model, context):
    for rule in RULES.values():
        pending, separate = (
            pipelined(rule, MinSpan(tau_span=2), context=context, commit=commit) for commit in ("pending", "separate")
        )
        assert tokens(pending, model) == tokens(separate, model)


def test_one_block_in_flight_is_plain_block_decoding(model):
    """And then S2D2 is lossless in the causal context."""
    one = Pipelined(0.3, blocks_in_flight=1)
    for length in (1, 4, 8):
        plain = pipelined(LowConfidenceDynamic(0.3), block_length=length)
        assert tokens(pipelined(one, block_length=length), model) == tokens(plain, model)
        sure = pipelined(one, Always(), context="causal", block_length=length)
        slow = make_decoder(unmask=Sequential(), block_length=1, max_new_tokens=21, context="causal")
        assert tokens(sure, model) == tokens(slow, model)


@pytest.mark.parametrize("router", [None, MinSpan(tau_span=2)], ids=["baseline", "s2d2"])
def test_a_stop_token_ends_an_answer(model, router, monkeypatch):
    for rule in RULES.values():
        monkeypatch.setattr(model, "stop_ids", ())
        long = pipelined(rule, router).generate(model, requests()).generations
        monkeypatch.setattr(model, "stop_ids", (long[0].token_ids[10], long[1].token_ids[3]))
        slow = expected(model, rule, PROMPTS, tau_span=router and router.tau_span)
        assert found(pipelined(rule, router), model, PROMPTS) == slow
        assert len(slow[0][0]) <= 11 and len(slow[1][0]) <= 4


def test_no_block_is_begun_behind_a_stop_token(model, monkeypatch):
    """Nor one in which the answer would be longer than wanted."""
    rule = RULES["late"]
    for stop_ids in ((), tuple(range(0, 90, 7))):
        monkeypatch.setattr(model, "stop_ids", stop_ids)
        seen, begun = Reached(), []
        pipelined(rule).generate(model, requests(), observer=seen)
        for prompt in PROMPTS:
            run = reference_d2f.Run(model, prompt, reference_d2f.Settings(4, 21, 0.6))
            run.answer()
            begun.append(len(run.tokens))
        assert [seen.end[request.sample_id] for request in requests()] == begun
    assert min(end - len(prompt) for end, prompt in zip(begun, PROMPTS, strict=True)) < 24


class Reached:
    """How far the blocks in flight have reached, by sample."""

    def __init__(self) -> None:
        self.end: dict[str, int] = {}

    def observe(self, session, draft, verdict, commit) -> None:
        for row in session.working:
            self.end[session.requests[session.live[row]].sample_id] = int(session.state.block_end_B[row])


def test_fewer_new_tokens_are_a_prefix_without_verification(model):
    """A span may reach into blocks that a shorter answer does not have."""
    rule = RULES["soon"]
    long, short = (tokens(pipelined(rule, max_new_tokens=count), model) for count in (24, 11))
    assert short == [row[:11] for row in long]


def test_the_other_blocks_thresholds_idle_where_there_is_one_block():
    idle = {"unmask.block_add_threshold", "unmask.decoded_token_threshold"}
    assert idle <= without_effect(compose(["decoder=d2f", "unmask.blocks_in_flight=1"])).keys()
    assert not idle & without_effect(compose(["decoder=d2f", "unmask.blocks_in_flight=2"])).keys()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["unmask.block_add_threshold=0"], "unmask.block_add_threshold is a share of a block, above 0 and at most 1"),
        (["unmask.decoded_token_threshold=1.1"], "unmask.decoded_token_threshold is a share of a block"),
        (["unmask.min_tokens_per_step=0"], "unmask.min_tokens_per_step must be at least 1, got 0"),
        (["unmask.blocks_in_flight=0"], "unmask.blocks_in_flight must be at least 1, got 0"),
        (["unmask.threshold=-1"], "unmask.threshold must be 0 or more, got -1"),
        (["decode.denoising_steps=2"], "unmask=pipelined decides by block; decode.denoising_steps must be left out"),
        (["decode.sub_block_length=2"], "decode.sub_block_length must be left out, got 2"),
        (["verifier.ahead=true"], "unmask=pipelined has blocks of its own in flight"),
        (["verifier=chain", "router=always"], "verifier=chain needs a rule that reveals just what it owes"),
        (["decoder=s2d2_single", "unmask=pipelined"], "unmask=pipelined has blocks of its own in flight"),
        (["model=llada-8b"], "unmask=pipelined needs a model that attends by block, and model.family=llada attends"),
    ],
)
def test_settings_that_do_not_go_together(words, sentence):
    with pytest.raises(ConfigError) as caught:
        compose(["decoder=d2f", *words])
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
