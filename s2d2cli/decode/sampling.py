"""Token distributions: one transform (temperature, top-k, top-p) for draft and verifier alike.

Axes: B rows, X positions, N = B * X flattened, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 1 << 26  # float32 entries held at once; larger inputs go through in slices, so memory stays bounded

COLDEST = 1e-6  # temperatures below are taken for it: float32 cannot divide by them


@dataclass(frozen=True)
class Sampler:
    """What a row of logits means: argmax when greedy, else softmax of the transformed logits."""

    temperature: float
    top_k: int
    top_p: float

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def probs(self, logits_NV: Tensor) -> Tensor:
        """float32 probabilities. Greedy confidences come from the plain softmax, without temperature or truncation."""
        logits_NV = logits_NV.float()
        if self.greedy:
            return logits_NV.softmax(-1)
        # the largest logit becomes 0 first, so that no temperature is small enough for an overflow
        logits_NV = (logits_NV - logits_NV.amax(-1, keepdim=True)) / max(self.temperature, COLDEST)
        if 0 < self.top_k < logits_NV.shape[-1]:
            kth_N1 = logits_NV.topk(self.top_k).values[:, -1:]
            logits_NV = logits_NV.masked_fill(logits_NV < kth_N1, -torch.inf)
        if self.top_p < 1:
            logits_NV = keep_nucleus(logits_NV, self.top_p)
        return logits_NV.softmax(-1)

    def draw(self, logits_BXV: Tensor, uniform_BX: Tensor | None) -> tuple[Tensor, Tensor]:
        """A token per position and its probability: (tokens_BX, confidence_BX). Greedy needs no uniforms."""

        def pick(logits_NV: Tensor, *uniform_N: Tensor) -> tuple[Tensor, Tensor]:
            probs_NV = self.probs(logits_NV)
            tokens_N = logits_NV.argmax(-1) if self.greedy else invert_cdf(probs_NV, uniform_N[0])
            return tokens_N, probs_NV.gather(1, tokens_N[:, None])[:, 0]

        tokens_BX, confidence_BX = sliced(pick, logits_BXV, *(() if uniform_BX is None else (uniform_BX,)))
        return tokens_BX, confidence_BX

    def prob_of(self, logits_BXV: Tensor, tokens_BX: Tensor) -> Tensor:
        """The probability of a given token at each position, float32 (B, X)."""
        return sliced(
            lambda logits_NV, tokens_N: (self.probs(logits_NV).gather(1, tokens_N[:, None])[:, 0],),
            logits_BXV,
            tokens_BX,
        )[0]


def sliced(function: Callable[..., tuple[Tensor, ...]], logits_BXV: Tensor, *others_BX: Tensor) -> tuple[Tensor, ...]:
    """Apply `function` to flattened rows, at most CHUNK logits at a time; its results come back as (B, X)."""
    shape_BX, num_vocab = logits_BXV.shape[:2], logits_BXV.shape[-1]
    rows = max(1, CHUNK // num_vocab)
    flat = [logits_BXV.reshape(-1, num_vocab), *(other.reshape(-1) for other in others_BX)]
    inputs = [torch.split(tensor, rows) for tensor in flat]
    parts = [function(*slices) for slices in zip(*inputs, strict=True)]
    return tuple(torch.cat(column).reshape(shape_BX) for column in zip(*parts, strict=True))


def keep_nucleus(logits_NV: Tensor, top_p: float) -> Tensor:
    """The smallest set of likeliest tokens whose mass reaches `top_p` (at least one); the others get -inf."""
    ordered_NV, order_NV = logits_NV.sort(dim=-1, descending=True)
    mass_before_NV = ordered_NV.softmax(-1).cumsum(-1).roll(1, -1)
    mass_before_NV[:, 0] = 0
    drop_NV = (mass_before_NV > top_p).scatter(1, order_NV, mass_before_NV > top_p)
    return logits_NV.masked_fill(drop_NV, -torch.inf)


def invert_cdf(probs_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Smallest token whose cumulative probability (float64, vocabulary order) exceeds u times the total."""
    cumulative_NV = probs_NV.double().cumsum(-1)
    total_N1 = cumulative_NV[:, -1:].contiguous()
    token_N1 = torch.searchsorted(cumulative_NV, uniform_N.double()[:, None] * total_N1, right=True)
    last_N1 = torch.searchsorted(cumulative_NV, total_N1)
    last_N1 = last_N1.clamp(max=probs_NV.shape[-1] - 1)  # of probabilities that are NaN, which the session refuses
    return torch.minimum(token_N1, last_N1)[:, 0]


def residual_probs(target_NV: Tensor, draft_NV: Tensor) -> Tensor:
    """(q - p)+, not normalised; q itself where nothing is left (p covers q up to rounding)."""
    rest_NV = (target_NV - draft_NV).clamp(min=0)
    return torch.where(rest_NV.sum(-1, keepdim=True) > 0, rest_NV, target_NV)


def entropy(probs_NV: Tensor) -> Tensor:
    """In nats, (N,)."""
    return -(probs_NV * probs_NV.clamp(min=1e-12).log()).sum(-1)
