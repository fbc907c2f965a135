"""KLASS and LocalLeap against plain loops that keep no cache, and what they remember of a row."""

from __future__ import annotations

import pytest
import torch

from s2d2cli.config import compose
from s2d2cli.decode import Request
from s2d2cli.decode.klass import Klass
from s2d2cli.decode.local_leap import LocalLeap, around
from s2d2cli.errors import ConfigError
from tests import reference
from tests.conftest import make_decoder

PROMPTS = [[5], [7, 3, 9], list(range(20, 41)), [11] * 9, [84, 65, 41, 70, 11, 94, 3]]
REQUESTS = [Request(str(number), prompt) for number, prompt in enumerate(PROMPTS)]
NEW = 20
RULES = {  # loose enough for random weights, whose distributions are flat
    "klass": Klass(threshold=0.15, divergence=0.3, history=1),
    "klass, two steps": Klass(threshold=0.05, divergence=0.6, history=2),
    "local_leap": LocalLeap(threshold=0.3, relaxed=0.1, radius=2),
}


def klass_choice(rule: Klass, probs: dict, before: list[dict]) -> set[int]:
    """Positions that were calm in each of the last steps; `before` holds those of the block, the last one last."""

    def calm(position: int) -> bool:
        steps = [*before, probs][-rule.history - 1 :]
        pairs = list(zip(steps[1:], steps, strict=False))
        kept = [torch.nn.functional.kl_div(old[position].log(), now[position], reduction="sum") for now, old in pairs]
        return len(pairs) == rule.history and all(float(one) < rule.divergence for one in kept)

    return {position for position, p in probs.items() if float(p.max()) > rule.threshold and calm(position)}


def leap_choice(rule: LocalLeap, probs: dict, _: list[dict]) -> set[int]:
    sure = {position: float(p.max()) for position, p in probs.items()}
    anchors = [position for position, p in sure.items() if p > rule.threshold]
    return {
        position
        for position, p in sure.items()
        if p > rule.relaxed and any(abs(position - anchor) <= rule.radius for anchor in anchors)
    }


def diffuse(model, prompt: list[int], length: int, rule) -> tuple[list[int], list[set[int]]]:
    """New ids, and the positions that each step revealed."""
    choose = klass_choice if isinstance(rule, Klass) else leap_choice
    tokens, end, steps = list(prompt), len(prompt) + NEW, []
    while len(tokens) < end:
        start = len(tokens) // length * length
        tokens += [model.mask_id] * (start + length - len(tokens))
        before: list[dict] = []
        while model.mask_id in tokens:
            logits = reference.logits_of(model, tokens, reference.block_causal(len(tokens), length))
            offered = [token for token in range(logits.shape[1]) if token != model.mask_id]
            masked = [position for position, token in enumerate(tokens) if token == model.mask_id]
            all_probs = {
                position: logits[position][offered].double().softmax(-1) for position in range(start, start + length)
            }
            probs = {position: all_probs[position] for position in masked}
            chosen = choose(rule, probs, before) or {max(masked, key=lambda position: float(probs[position].max()))}
            before.append(all_probs)
            steps.append(chosen)
            for position in chosen:
                tokens[position] = int(logits[position].argmax())
    steps = [{position for position in step if position < end} for step in steps]
    return tokens[len(prompt) : end], [step for step in steps if step]


def steps_of(generation, prompt: list[int]) -> list[set[int]]:
    found: dict[int, set[int]] = {}
    for place, step in enumerate(generation.reveal_steps):
        found.setdefault(step, set()).add(len(prompt) + place)
    return [found[step] for step in sorted(found)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("length", [4, 8])
def test_rule_equals_a_plain_loop(golden_model, name, length):
    rule = RULES[name]
    decoder = make_decoder(unmask=rule, block_length=length, max_new_tokens=NEW)
    revealed = []
    for request in REQUESTS:
        generation = decoder.generate(golden_model, [request]).generations[0]
        tokens, steps = diffuse(golden_model, request.prompt_ids, length, rule)
        assert generation.token_ids == tokens
        assert steps_of(generation, request.prompt_ids) == steps
        revealed += [len(step) for step in steps]
    assert max(revealed) > 1 and min(revealed) == 1, "the rule and its quota should both have had their say"


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_rule_remembers_rows_not_neighbours(golden_model, name, width):
    """Rows leave and enter as samples end at different places."""
    decoder = make_decoder(unmask=RULES[name], block_length=8, max_new_tokens=NEW)
    alone = {r.sample_id: decoder.generate(golden_model, [r]).generations[0] for r in REQUESTS}
    found = list(decoder.session(golden_model, REQUESTS, width).results())
    assert {g.sample_id: g for g in found} == alone and len(found) == len(REQUESTS)


def test_around_reaches_as_far_as_its_radius():
    flags = torch.tensor([[False, False, True, False, False, False]])
    assert around(flags, 1).tolist() == [[False, True, True, True, False, False]]
    assert around(flags, 0).tolist() == flags.tolist()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["decoder=klass", "unmask.history=0"], "unmask.history must be at least 1, got 0"),
        (["decoder=klass", "unmask.divergence=0"], "unmask.divergence must be above 0, got 0"),
        (["decoder=local_leap", "unmask.relaxed=0.95"], "unmask.relaxed must lie between 0 and unmask.threshold=0.9"),
        (["decoder=local_leap", "unmask.radius=-1"], "unmask.radius must be 0 or more, got -1"),
    ],
)
def test_settings_out_of_range_get_a_sentence(words, sentence):
    with pytest.raises(ConfigError) as caught:
        compose(words)
    assert sentence in str(caught.value)
