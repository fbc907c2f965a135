"""Pairs of models for the tests of decoders that draft with one and verify with the other, and their slow reference."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from s2d2cli.decode import Request
from s2d2cli.models.adapter import ModelAdapter
from tests import reference
from tests.conftest import load_golden

PROMPTS = [[5], list(range(20, 28)), [284, 65, 141, 270, 111, 94, 3, 188, 129, 22, 216, 270, 270]]
REQUESTS = [Request(f"sample-{number}", prompt) for number, prompt in enumerate(PROMPTS)]


def perturbed(model: ModelAdapter, noise: float) -> ModelAdapter:
    """The same with every weight moved by so many standard deviations of its tensor."""
    found = copy.copy(model)
    found.name, found.network = f"perturbed {model.name}", copy.deepcopy(model.network)
    generator = torch.Generator().manual_seed(0)
    for weight in found.network.parameters():
        weight += noise * weight.std() * torch.randn(weight.shape, generator=generator)
    return found


def pair(family: str, noise: float = 0.2) -> ModelAdapter:
    """A golden checkpoint whose draft model is a perturbed copy of it."""
    target = copy.copy(load_golden(family))
    target.draft_model = perturbed(target, noise)
    return target


@dataclass
class Drafted:
    """What a draft gives a position: its token, in which forward, and the probability it had there."""

    token: int
    time: int
    prob: float


def slow_draft(
    model: ModelAdapter, tokens: list[int], start: int, length: int, steps: int, rule: str, causal: bool
) -> dict[int, Drafted]:
    """Greedy, one sequence, without a cache: {position: what is drafted there}. `tokens` ends with the block."""
    tokens, drafted, number = list(tokens), {}, 0
    while model.mask_id in tokens:
        visible = reference.block_causal(len(tokens), length)
        if causal:  # decided tokens see what is left of them, and so does what is drafted next to them
            first = tokens.index(model.mask_id)
            visible[:first] = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()[:first]
        probs = reference.logits_of(model, tokens, visible).softmax(-1)
        masked = [position for position in range(start, len(tokens)) if tokens[position] == model.mask_id]
        confidence = {position: float(probs[position].max()) for position in masked}
        order = sorted(masked, key=lambda p: p if rule == "sequential" else (-confidence[p], p))
        for position in order[: length // steps + (number < length % steps)]:
            tokens[position] = int(probs[position].argmax())
            drafted[position] = Drafted(tokens[position], number, confidence[position])
        number += 1
    return drafted
