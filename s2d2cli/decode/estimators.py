"""Acceptance estimators: how likely the verifier is to accept each drafted token, from the draft alone.

Axes: B rows, L block positions, N flattened rows, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.sampling import Sampler, sliced
from s2d2cli.decode.state import DraftStep


class AcceptanceEstimator(Protocol):
    def accept_prob(self, draft: DraftStep, sampler: Sampler) -> Tensor:
        """float32 (B, L) in [0, 1], meaningful at masked positions."""


@register("estimator", "entropy")
@dataclass
class Entropy:
    """exp(-beta * H), H the entropy of the draft distribution over log V, so in [0, 1] (S2D2's soft_entropy_negexp)."""

    beta: float = 1.0

    def validate(self) -> None:
        require(self.beta >= 0, f"estimator.beta must be 0 or more, got {self.beta}")

    def accept_prob(self, draft: DraftStep, sampler: Sampler) -> Tensor:
        def estimate(logits_NV: Tensor) -> tuple[Tensor]:
            probs_NV = sampler.probs(logits_NV)
            entropy_N = -(probs_NV * probs_NV.clamp(min=1e-12).log()).sum(-1) / math.log(probs_NV.shape[-1])
            return ((-self.beta * entropy_N).exp(),)

        return sliced(estimate, draft.logits_BLV)[0]


def expected_accepted(accept_prob_BL: Tensor, span_BL: Tensor) -> Tensor:
    """E[K] of the first span, (B,): the sum over its prefixes of the product of acceptance probabilities."""
    within_BL = accept_prob_BL.clamp(0, 1).masked_fill(~span_BL, 1.0)
    return (within_BL.cumprod(1) * span_BL).sum(1)
