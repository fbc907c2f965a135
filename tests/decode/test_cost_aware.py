"""The cost curve and the router that decides by it."""

from __future__ import annotations

import copy

import pytest
import torch

from s2d2cli.config import compose
from s2d2cli.decode import Request, build_decoder
from s2d2cli.decode.cost_aware import CostAware
from s2d2cli.decode.routers import Always
from s2d2cli.decode.single import SingleForward
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.errors import ConfigError
from s2d2cli.models import load_model
from s2d2cli.models.cost_curve import CostCurve, measure
from tests import reference
from tests.conftest import make_decoder

PROMPTS = [[5], list(range(20, 28)), [284, 65, 141, 270, 111, 94, 3, 188, 129, 22, 216, 270, 270]]
CURVES = {
    "flat": ([1, 512], [1.0, 1.0]),
    "bent": ([1, 16, 32, 64, 128, 256], [1.0, 1.1, 1.3, 1.8, 2.8, 4.8]),
    "steep": ([1, 512], [1.0, 512.0]),
}
VERIFIERS = {
    "two passes": SelfVerifier(form="sliding"),
    "two passes, ahead": SelfVerifier(form="sliding", ahead=True),
    "two passes, aligned": SelfVerifier(),
    "single, sliding": SingleForward("sliding"),
    "single, aligned": SingleForward(),
}


def requests() -> list[Request]:
    return [Request(str(number), prompt) for number, prompt in enumerate(PROMPTS)]


def decoder_of(curve: str, verifier: str, **settings):
    settings = dict(block_length=8, max_new_tokens=40) | settings
    router = CostAware(*CURVES[curve])
    return make_decoder(router=router, verifier=copy.copy(VERIFIERS[verifier]), context="causal", **settings)


def test_a_curve_is_straight_between_its_points_and_never_falls():
    table = CostCurve([2, 4, 8], [10, 20], [[1.0, 3.0, 2.0], [2.0, 4.0, 8.0]]).table(10, torch.device("cpu"))
    assert table[0].tolist() == [1, 1, 1, 1.5, 2, 2, 2, 2, 2, 2, 2]  # a busy moment raised the point in the middle
    assert table[1].tolist() == [2, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10]  # and on beyond the last


def test_a_price_lies_between_those_of_the_two_contexts(golden_model):
    decoder = make_decoder(CostAware(), block_length=4, max_new_tokens=8, context="causal")
    decoder.cost_curve = CostCurve([1, 3], [10, 30], [[1.0, 3.0], [5.0, 9.0]])
    session = decoder.session(golden_model, requests())
    session.state.start_B = torch.tensor([0, 20, 99])
    price_BX = decoder.router.price(torch.tensor([[1, 2]]), session.state)
    assert price_BX.tolist() == [[1, 2], [3, 4.5], [5, 7]]


def test_measuring_times_every_shape(golden_model):
    curve = measure(golden_model, 2, 100, 20)
    assert (curve.rows, curve.contexts, curve.width) == ([1, 2, 4, 8, 16], [21, 84], 2)
    assert len(curve.ms) == 2 and all(len(line) == 5 and min(line) > 0 for line in curve.ms)
    assert measure(golden_model, 1, 2, 1).rows == [1]


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_cost_aware_greedy_is_autoregressive_and_batch_is_singles(golden_model, curve, verifier):
    expected = [reference.autoregressive(golden_model, prompt, 40) for prompt in PROMPTS]
    decoder = decoder_of(curve, verifier)
    found = decoder.generate(golden_model, requests()).generations
    assert [generation.token_ids for generation in found] == expected
    assert found == [decoder.generate(golden_model, [request]).generations[0] for request in requests()]


def rows_of(model, decoder, prompts: list[Request]) -> list[int]:
    """The token rows of every forward, one sample after the other; rows that only fill up do not count."""
    seen, watched = [], copy.copy(model)
    watched.hidden = lambda plan, cache: seen.append(int((plan.slots_BQ != 0).sum())) or model.hidden(plan, cache)
    for request in prompts:
        decoder.generate(watched, [request])
    return seen


@pytest.mark.parametrize("verifier", ["two passes", "single, sliding"])
def test_another_curve_makes_other_choices(golden_model, verifier):
    """Free rows: everything is tried. Dear rows: one token a forward, and no mask more than that needs."""
    plain = rows_of(golden_model, make_decoder(block_length=1, context="causal", max_new_tokens=40), requests())
    settings = dict(context="causal", block_length=8, max_new_tokens=40)
    always = rows_of(golden_model, make_decoder(Always(), verifier=VERIFIERS[verifier], **settings), requests())
    flat, bent, steep = (rows_of(golden_model, decoder_of(curve, verifier), requests()) for curve in CURVES)
    assert flat == always and steep == plain
    assert len(flat) <= len(bent) < len(steep) and sum(flat) > sum(bent) > sum(steep)


@pytest.fixture(scope="module")
def word_problems():
    model, task = load_model(compose()), compose().task
    task.prepare(allow_code_execution=False)
    return model, [Request(s.id, model.encode(model.chat_prompt(s.messages))) for s in task.samples(4)]


@pytest.fixture(scope="module")
def tuned(word_problems):
    """What a user could choose from by hand: three windows, two routers, both forms, and no speculation."""
    routers = {"self": ["router=always", "router=min_span"], "single": ["router=always"]}
    choices = {"autoregressive": ["decoder=autoregressive"]} | {
        f"{verifier} {router} {form} {length}": [
            *(f"verifier={verifier}", router, f"verifier.form={form}", f"decode.block_length={length}"),
        ]
        for verifier, own in routers.items()
        for router in own
        for form in ("aligned", "sliding")
        for length in (4, 8, 16)
    }
    return {name: rows_of_words(word_problems, words) for name, words in choices.items()}


def test_one_forward_per_step_decides_most_tokens_per_forward(tuned):
    """Word problems, greedy, so that all write the same tokens: fewest forwards, and at window 4 at least 1.4 times the
    tokens per forward of two passes aligned to blocks."""
    speculative = {name: len(rows) for name, rows in tuned.items() if "min_span" not in name}
    assert min(speculative, key=speculative.__getitem__).startswith("single")
    assert speculative["self router=always aligned 4"] >= 1.4 * speculative["single router=always sliding 4"]


def rows_of_words(word_problems, words: list[str]) -> list[int]:
    return rows_of(word_problems[0], build_decoder(compose([*words, "decode.max_new_tokens=100"])), word_problems[1])


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("verifier", ["self", "single"])
def test_on_tiny_it_keeps_up_with_the_best_setting_tuned_by_hand(word_problems, tuned, curve, verifier):
    """By the curve's own prices, on word problems. `router=min_span` may be cheaper because it lets drafts pass that
    were not verified; it competes all the same."""
    places, ms = CURVES[curve]
    table = CostCurve(places, [1], [ms]).table(600, torch.device("cpu"))[0]
    rivals = [rows for name, rows in tuned.items() if name.split()[0] in (verifier, "autoregressive")]
    best = min(float(table[rows].sum()) for rows in rivals)
    words = [f"verifier={verifier}", "router=cost_aware", f"router.rows={places}", f"router.ms={ms}"]
    found = rows_of_words(word_problems, [*words, "verifier.form=sliding", "decode.block_length=16"])
    assert float(table[found].sum()) <= 1.03 * best


def test_a_curve_that_makes_no_sense_is_refused():
    for words, sentence in (
        (["router.rows=[1,2]"], "router.rows and router.ms must be of one length, got 2 and 0 numbers"),
        (["router.rows=[2,1]", "router.ms=[1,2]"], "router.rows must rise from 1 or more, got [2, 1]"),
        (["router.rows=[0,1]", "router.ms=[1,2]"], "router.rows must rise from 1 or more, got [0, 1]"),
        (["router.rows=[1,2]", "router.ms=[0,2]"], "router.ms must be above 0, got [0.0, 2.0]"),
    ):
        with pytest.raises(ConfigError) as caught:
            compose(["router=cost_aware", *words])
        assert str(caught.value) == sentence
