"""SSD: several steps of one-token decoding checked in one forward give the very same trajectory."""

from __future__ import annotations

import copy

import pytest
import torch

from s2d2cli.config import compose
from s2d2cli.decode import Request
from s2d2cli.decode.chain import ChainVerifier
from s2d2cli.decode.routers import Always
from s2d2cli.decode.unmask import LowConfidenceStatic, Sequential
from s2d2cli.errors import ConfigError
from tests.conftest import load_golden, make_decoder

PROMPTS = [[5], list(range(20, 28)), [284, 65, 141, 270, 111, 94, 3, 188, 129, 22, 216, 270, 270]]
REQUESTS = [Request(str(number), prompt) for number, prompt in enumerate(PROMPTS)]
NEW = 24


@pytest.fixture(scope="module", params=["sdar", "llada2", "fast_dllm_v2", "random"])
def model(request):
    """The golden checkpoints, and one of them with weights that nobody trained."""
    found = load_golden("sdar" if request.param == "random" else request.param)
    if request.param == "random":
        torch.manual_seed(0)
        for parameter in found.network.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() == 2 else 1))
    return found


@pytest.fixture(scope="module")
def stepwise(model):
    """Each kind of block and context once: what one-token decoding reveals, in its order, and its forwards."""
    known = {}

    def decode(length: int, context: str, rule):
        key = (length, context, type(rule))
        if key not in known:
            settings = dict(block_length=length, context=context, max_new_tokens=NEW)
            known[key] = make_decoder(unmask=rule, **settings).generate(model, REQUESTS).generations
        return known[key]

    return decode


def chain(length: int, context: str, nodes: int, order: str = "linear", rule=None):
    settings = dict(block_length=length, context=context, max_new_tokens=NEW)
    return make_decoder(Always(), rule or LowConfidenceStatic(), ChainVerifier(nodes, order), **settings)


def trajectory(generations) -> list[tuple]:
    return [(g.token_ids, g.reveal_order, g.finish) for g in generations]


def total(generations) -> int:
    return sum(sum(g.forwards.values()) for g in generations)


@pytest.mark.parametrize("order", ["linear", "mix"])
@pytest.mark.parametrize("context", ["block", "causal"])
@pytest.mark.parametrize("length", [4, 8, 16, 32])
def test_ssd_reveals_the_same_tokens_in_the_same_order(model, stepwise, length, context, order):
    expected = stepwise(length, context, LowConfidenceStatic())
    for nodes in range(1, 9):
        found = chain(length, context, nodes, order).generate(model, REQUESTS).generations
        assert trajectory(found) == trajectory(expected), nodes


@pytest.mark.parametrize("nodes", [1, 3, 8])
def test_ssd_batch_is_singles_and_spends_fewer_forwards(model, stepwise, nodes):
    decoder = chain(8, "block", nodes)
    found = decoder.generate(model, REQUESTS).generations
    assert found == [decoder.generate(model, [request]).generations[0] for request in REQUESTS]
    spent, before = total(found), total(stepwise(8, "block", LowConfidenceStatic()))
    assert spent <= before + len(REQUESTS) if nodes == 1 else spent < 0.9 * before
    assert any(g.accepted for g in found) == (nodes > 1)


def test_ssd_mixed_order_needs_no_more_forwards(model):
    for nodes in (4, 8):
        linear, mix = (
            total(chain(8, "block", nodes, o).generate(model, REQUESTS).generations) for o in ("linear", "mix")
        )
        assert mix <= linear


def test_ssd_follows_another_rule_and_separate_commits(model, stepwise):
    expected = stepwise(8, "block", Sequential())
    assert trajectory(chain(8, "block", 4, rule=Sequential()).generate(model, REQUESTS).generations) == trajectory(
        expected
    )
    decoder = chain(8, "block", 4)
    decoder.settings.commit = "separate"
    found = decoder.generate(model, REQUESTS).generations
    assert trajectory(found) == trajectory(stepwise(8, "block", LowConfidenceStatic()))


def test_ssd_stops_at_a_stop_token(model, stepwise):
    """A token of the middle stands for the stop token: what lies behind it is not given, as in one-token decoding."""
    plain = stepwise(8, "block", LowConfidenceStatic())
    stopping = copy.copy(model)
    stopping.stop_ids = (plain[2].token_ids[NEW // 2],)
    rule = LowConfidenceStatic()
    settings = dict(block_length=8, context="block", max_new_tokens=NEW)
    expected = make_decoder(unmask=rule, **settings).generate(stopping, REQUESTS).generations
    found = chain(8, "block", 5).generate(stopping, REQUESTS).generations
    assert [g.token_ids for g in found] == [g.token_ids for g in expected] and found[2].finish == "stop"


def test_ssd_states_of_a_mixed_order():
    """2 N - 2 states: the chain, and every other token left out once."""
    states = ChainVerifier(5, "mix").states
    assert len(states) == 2 * 5 - 2 and states[5:] == [frozenset({0, 2}), frozenset({0, 1, 3}), frozenset({0, 1, 2, 4})]


def test_ssd_refuses_what_it_cannot_keep():
    for words, sentence in (
        (["decode.temperature=1"], "verifier=chain needs decode.temperature=0, got 1.0"),
        (["router=never"], "verifier=chain needs router=always, got never"),
        (["decode.denoising_steps=2"], "verifier=chain needs decode.denoising_steps=16, got 2"),
        (["unmask=low_confidence_dynamic"], "verifier=chain needs a rule that reveals just what it owes"),
        (["verifier.nodes=0"], "verifier.nodes must lie between 1 and 64, got 0"),
        (["verifier.order=tree"], "verifier.order must be one of linear, mix, got 'tree'"),
    ):
        with pytest.raises(ConfigError) as caught:
            compose(["decoder=ssd", *words])
        assert sentence in str(caught.value)
