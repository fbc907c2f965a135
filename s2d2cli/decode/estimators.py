"""Acceptance estimators: how likely the verifier is to accept each drafted token, from the draft alone.

All come from the published S2D2 code; its name for each is given. P is the draft's distribution at a position, after
temperature, top-k and top-p; every estimate lies in [0, 1].

Axes: B rows, L block positions, N flattened rows, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.sampling import sliced
from s2d2cli.decode.state import DraftStep


class AcceptanceEstimator(Protocol):
    def accept_prob(self, draft: DraftStep) -> Tensor:
        """float32 (B, L) in [0, 1], meaningful at masked positions."""


@register("estimator", "entropy")
@dataclass
class Entropy:
    """exp(-beta * H), with H the entropy of P over log V (soft_entropy_negexp). Never below exp(-beta)."""

    beta: float = 1.0

    def validate(self) -> None:
        require(self.beta >= 0, f"estimator.beta must be 0 or more, got {self.beta}")

    def accept_prob(self, draft: DraftStep) -> Tensor:
        return (-self.beta * relative_entropy(draft)).exp()


@register("estimator", "entropy_threshold")
@dataclass
class EntropyThreshold:
    """1 where H, the entropy of P over log V, is below the threshold, else 0 (hard_entropy_threshold)."""

    threshold: float = 0.1

    def validate(self) -> None:
        require(self.threshold >= 0, f"estimator.threshold must be 0 or more, got {self.threshold}")

    def accept_prob(self, draft: DraftStep) -> Tensor:
        return (relative_entropy(draft) < self.threshold).float()


@register("estimator", "margin")
@dataclass
class Margin:
    """1 where the two likeliest tokens of P are further apart than the threshold, else 0 (hard_margin_threshold)."""

    threshold: float = 0.05

    def validate(self) -> None:
        require(self.threshold >= 0, f"estimator.threshold must be 0 or more, got {self.threshold}")

    def accept_prob(self, draft: DraftStep) -> Tensor:
        return (margin(draft) > self.threshold).float()


@register("estimator", "linear_margin")
@dataclass
class LinearMargin:
    """coef times the distance of the two likeliest tokens of P, at most 1 (soft_clipped_linear_margin)."""

    coef: float = 1.0

    def validate(self) -> None:
        require(self.coef >= 0, f"estimator.coef must be 0 or more, got {self.coef}")

    def accept_prob(self, draft: DraftStep) -> Tensor:
        return (self.coef * margin(draft)).clamp(0, 1)


@register("estimator", "confidence")
@dataclass
class Confidence:
    """The drafted token's own probability to the power gamma (soft_confidence_power)."""

    gamma: float = 0.8

    def validate(self) -> None:
        require(self.gamma >= 0, f"estimator.gamma must be 0 or more, got {self.gamma}")

    def accept_prob(self, draft: DraftStep) -> Tensor:
        return draft.confidence_BL.clamp(0, 1) ** self.gamma


@register("estimator", "renyi2")
@dataclass
class Renyi2:
    """The chance that two draws from P agree, sum P^2 (soft_renyi_2_entropy)."""

    def accept_prob(self, draft: DraftStep) -> Tensor:
        def agreement(logits_NV: Tensor) -> tuple[Tensor]:
            return (draft.sampler.probs(logits_NV).square().sum(-1).clamp(0, 1),)

        return sliced(agreement, draft.logits_BLV)[0]


def relative_entropy(draft: DraftStep) -> Tensor:
    """Entropy over its largest possible value, (B, L) in [0, 1]."""
    return draft.entropy_BL / math.log(draft.logits_BLV.shape[-1])


def margin(draft: DraftStep) -> Tensor:
    """Probability of the likeliest token less that of the second, (B, L)."""

    def distance(logits_NV: Tensor) -> tuple[Tensor]:
        top_N2 = draft.sampler.probs(logits_NV).topk(2).values
        return (top_N2[:, 0] - top_N2[:, 1],)

    return sliced(distance, draft.logits_BLV)[0]
