"""SSD: several steps of one-token decoding checked in one forward give the very same trajectory."""

from __future__ import annotations

import copy

import pytest
import torch

from s2d2cli.config import ModelConfig, RunConfig, compose
from s2d2cli.decode import Request
from s2d2cli.decode.chain import ChainVerifier
from s2d2cli.decode.routers import Always
from s2d2cli.decode.tree import states
from s2d2cli.decode.unmask import LowConfidenceStatic, Sequential
from s2d2cli.errors import ConfigError
from s2d2cli.models import load_model
from tests import published
from tests.conftest import load_golden, make_decoder

PROMPTS = [[5], list(range(20, 28)), [84, 65, 41, 70, 11, 94, 3, 88, 29, 22, 16, 70, 71]]
REQUESTS = [Request(str(number), prompt) for number, prompt in enumerate(PROMPTS)]
NEW = 24


@pytest.fixture(scope="module", params=["sdar", "llada2", "fast_dllm_v2", "random", "llada"])
def model(request, tmp_path_factory):
    """The golden checkpoints, one of them with weights that nobody trained, and one that attends fully."""
    if request.param == "llada":
        folder = tmp_path_factory.mktemp("llada") / "checkpoint"
        published.llada(folder)
        return load_model(RunConfig(ModelConfig("llada", str(folder), "llada"), device="cpu"))
    if request.param != "random":
        return load_golden(request.param)
    found = copy.deepcopy(load_golden("sdar"))  # others use that one
    torch.manual_seed(0)
    for parameter in found.network.parameters():
        parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() == 2 else 1))
    return found


@pytest.fixture(scope="module")
def stepwise(model):
    """Each kind of block and context once: what one-token decoding reveals, in its order, and its forwards."""
    known = {}

    def decode(length: int, settings: dict, rule):
        key = (length, str(settings), type(rule))
        if key not in known:
            shared = dict(block_length=length, max_new_tokens=NEW)
            known[key] = make_decoder(unmask=rule, **shared, **settings).generate(model, REQUESTS).generations
        return known[key]

    return decode


def ways(model) -> list[dict]:
    """The contexts, or cache policies, under which the trajectories must agree."""
    if model.attends_fully:
        return [dict(context="full", cache=policy) for policy in ("none", "prefix", "dual")]
    return [dict(context=context) for context in ("block", "causal")]


def chain(length: int, settings: dict, nodes: int, order: str = "linear", rule=None, ahead: bool = False):
    settings = dict(block_length=length, max_new_tokens=NEW) | settings
    return make_decoder(Always(), rule or LowConfidenceStatic(), ChainVerifier(nodes, order, ahead), **settings)


def trajectory(generations) -> list[tuple]:
    return [(g.token_ids, g.reveal_order, g.finish) for g in generations]


def total(generations) -> int:
    return sum(sum(g.forwards.values()) for g in generations)


@pytest.mark.parametrize("order", ["linear", "mix"])
@pytest.mark.parametrize("length", [4, 8, 16, 32])
def test_ssd_reveals_the_same_tokens_in_the_same_order(model, stepwise, length, order):
    """Under each context, and where a model attends fully under each cache policy; all node counts under the first."""
    for how, settings in enumerate(ways(model)):
        expected = stepwise(length, settings, LowConfidenceStatic())
        all_nodes = range(1, 9) if how == 0 else (2, 5)
        for nodes in all_nodes if order == "linear" else (5,):
            found = chain(length, settings, nodes, order).generate(model, REQUESTS).generations
            assert trajectory(found) == trajectory(expected), (settings, nodes)


@pytest.mark.parametrize("nodes", [1, 3, 8])
def test_ssd_batch_is_singles_and_spends_fewer_forwards(model, stepwise, nodes):
    decoder = chain(8, ways(model)[0], nodes)
    found = decoder.generate(model, REQUESTS).generations
    assert found == [decoder.generate(model, [request]).generations[0] for request in REQUESTS]
    spent, before = total(found), total(stepwise(8, ways(model)[0], LowConfidenceStatic()))
    assert spent <= before + len(REQUESTS) if nodes == 1 else spent < 0.9 * before
    assert any(g.accepted for g in found) == (nodes > 1)


@pytest.mark.parametrize(("length", "order"), [(1, "linear"), (4, "linear"), (4, "mix"), (16, "linear")])
def test_ssd_carries_the_next_block_along(model, stepwise, length, order):
    """The same trajectory, alone and in a batch; where blocks are short it saves forwards. Where a step keeps of the
    last what is stale, nothing may ride along."""
    for settings in ways(model):
        expected = stepwise(length, settings, LowConfidenceStatic())
        for nodes in (1, 5):
            decoder = chain(length, settings, nodes, order, ahead=True)
            found = decoder.generate(model, REQUESTS).generations
            assert trajectory(found) == trajectory(expected), (settings, nodes)
            alone = decoder.generate(model, REQUESTS[1:2]).generations
            assert alone == found[1:2]
            plain = total(chain(length, settings, nodes, order).generate(model, REQUESTS).generations)
            if settings.get("cache", "none") != "none":
                assert total(found) == plain
            else:  # a draft that is carried behind a stop token was for nothing
                assert total(found) <= plain + sum(g.finish == "stop" for g in found)
                assert total(found) < plain or nodes == 1 or length != 4


def test_ssd_keeps_to_sub_blocks(model):
    """A sub-block that a draft fills is not the block: nothing of the next one rides along before that."""
    settings = dict(block_length=8, max_new_tokens=NEW, sub_block_length=4) | ways(model)[0]
    expected = make_decoder(unmask=LowConfidenceStatic(), **settings).generate(model, REQUESTS).generations
    for ahead in (False, True):
        found = chain(8, settings, 5, ahead=ahead).generate(model, REQUESTS).generations
        assert trajectory(found) == trajectory(expected)
        assert total(found) < total(expected)


def test_ssd_mixed_order_needs_no_more_forwards(model):
    for nodes in (4, 8):
        linear, mix = (
            total(chain(8, ways(model)[0], nodes, o).generate(model, REQUESTS).generations) for o in ("linear", "mix")
        )
        assert mix <= linear


def test_ssd_follows_another_rule_and_separate_commits(model, stepwise):
    expected = stepwise(8, ways(model)[0], Sequential())
    assert trajectory(
        chain(8, ways(model)[0], 4, rule=Sequential()).generate(model, REQUESTS).generations
    ) == trajectory(expected)
    decoder = chain(8, ways(model)[0], 4)
    decoder.settings.commit = "separate"
    found = decoder.generate(model, REQUESTS).generations
    assert trajectory(found) == trajectory(stepwise(8, ways(model)[0], LowConfidenceStatic()))


def test_ssd_stops_at_a_stop_token(model, stepwise):
    """A token of the middle stands for the stop token: what lies behind it is not given, as in one-token decoding."""
    plain = stepwise(8, ways(model)[0], LowConfidenceStatic())
    stopping = copy.copy(model)
    stopping.stop_ids = (plain[2].token_ids[NEW // 2],)
    rule = LowConfidenceStatic()
    settings = dict(block_length=8, max_new_tokens=NEW) | ways(model)[0]
    expected = make_decoder(unmask=rule, **settings).generate(stopping, REQUESTS).generations
    found = chain(8, ways(model)[0], 5).generate(stopping, REQUESTS).generations
    assert [g.token_ids for g in found] == [g.token_ids for g in expected] and found[2].finish == "stop"


def test_ssd_states_of_a_mixed_order():
    """2 N - 2 states: the chain, and every other token left out once."""
    found = states(5, mixed=True)
    assert len(found) == 2 * 5 - 2 and found[5:] == [frozenset({0, 2}), frozenset({0, 1, 3}), frozenset({0, 1, 2, 4})]


def test_ssd_computes_no_state_beyond_the_block(model):
    """More nodes than a block has positions change nothing, not even the rows of a forward."""
    few, many = (chain(4, ways(model)[0], nodes).generate(model, REQUESTS) for nodes in (4, 64))
    assert few.generations == many.generations and few.query_rows == many.query_rows


def test_ssd_has_as_many_nodes_as_its_source_found_best():
    """4 for LLaDA, 5 for Dream; the record shows the number."""
    for model, nodes in (("llada-8b", 4), ("dream-7b", 5), ("tiny", 4)):
        assert compose([f"model={model}", "decoder=ssd"]).verifier.nodes == nodes
    assert compose(["model=dream-7b", "decoder=ssd", "verifier.nodes=3"]).verifier.nodes == 3


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
