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


def slow_check(
    model: ModelAdapter, tokens: list[int], drafted: dict[int, Drafted], length: int, exact: bool
) -> dict[int, torch.Tensor]:
    """The target's logits at each drafted position: one uncached forward of [tokens | draft in its place | masks]."""
    order = sorted(drafted)
    filled = [drafted[p].token if p in drafted else token for p, token in enumerate(tokens)]
    row_tokens, positions = [*filled, *[model.mask_id] * len(order)], [*range(len(tokens)), *order]
    rows = [("D" if p in drafted else "L", p) for p in range(len(tokens))] + [("M", p) for p in order]
    start = len(tokens) - length
    visible = torch.tensor([[sees(a, b, start, length, drafted, exact) for b in rows] for a in rows])
    bias = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        out = model.network(
            torch.tensor([row_tokens]),
            position_ids=torch.tensor([positions]),
            attention_mask=bias[None, None],
            use_cache=False,
        )
    logits = out.logits[0, len(tokens) :].clone()
    logits[:, model.mask_id] = -torch.inf
    return dict(zip(order, logits, strict=True))


def sees(
    row: tuple[str, int], other: tuple[str, int], start: int, length: int, drafted: dict[int, Drafted], exact: bool
) -> bool:
    """The published formula: may this row attend to that one? Kinds L (decided), D (drafted), M; tau = time + 1."""
    (kind, p), (other_kind, q) = row, other
    if p < start or q < start:  # earlier blocks attend by block, and are seen by all that follows
        return q < (p // length + 1) * length and (p >= start or other_kind == "L")
    if other_kind == "L":
        return True
    if kind == "L":
        return False
    tau, other_tau = drafted[p].time + 1, drafted[q].time + 1
    if exact and other_kind == "M":
        return kind == "M" and p == q
    return {
        "DD": other_tau <= tau,
        "DM": other_tau > tau,
        "MD": other_tau < tau,
        "MM": other_tau >= tau,
    }[kind + other_kind]
