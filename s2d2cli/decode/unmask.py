"""Unmask rules: which masked positions plain block diffusion reveals in a step.

A rule gets a quota, the tokens that the step still owes: denoising_steps spread over the block, less what a verifier
has decided already. It selects exactly that many, except that the dynamic rule may take more.

Axes: B rows, L block positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.state import BlockState, Commit, DraftStep, Source


class UnmaskRule(Protocol):
    def select(self, confidence_BL: Tensor, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        """bool (B, L): positions to reveal, all of them masked; none where the quota is 0."""


@register("unmask", "sequential")
@dataclass
class Sequential:
    """Reveal the leftmost masks."""

    def select(self, confidence_BL: Tensor, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        return masked_BL & (masked_BL.cumsum(1) <= quota_B[:, None])


@register("unmask", "low_confidence_static")
@dataclass
class LowConfidenceStatic:
    """Reveal the most confident masks, exactly the quota (the low-confidence ones stay masked, hence the name)."""

    def select(self, confidence_BL: Tensor, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        return most_confident(confidence_BL, masked_BL, quota_B)


@register("unmask", "low_confidence_dynamic")
@dataclass
class LowConfidenceDynamic:
    """Reveal every mask whose confidence exceeds the threshold; if these are fewer than the quota, as static does."""

    threshold: float = 0.85

    def validate(self) -> None:
        require(self.threshold >= 0, f"unmask.threshold must be 0 or more, got {self.threshold}")

    def select(self, confidence_BL: Tensor, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        high_BL = masked_BL & (confidence_BL > self.threshold)
        enough_B = (high_BL.sum(1) >= quota_B) & (quota_B > 0)
        return torch.where(enough_B[:, None], high_BL, most_confident(confidence_BL, masked_BL, quota_B))


def most_confident(confidence_BL: Tensor, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
    """The `quota` masks of highest confidence; ties go to the left."""
    order_BL = confidence_BL.masked_fill(~masked_BL, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank_BL = order_BL.argsort(dim=1)
    return masked_BL & (rank_BL < quota_B[:, None])


def quota_B(state: BlockState, draft: DraftStep, denoising_steps: int) -> Tensor:
    """Tokens this step must decide: L // S, one more in the first L % S steps, never more than there are masks."""
    base, remainder = divmod(state.block_length, denoising_steps)
    wanted_B = base + (state.block_step_B < remainder).long()
    return torch.minimum(wanted_B, draft.masked_BL.sum(1))


def reveal(rule: UnmaskRule, draft: DraftStep, commit: Commit, quota_B: Tensor) -> Commit:
    """`commit` and what `rule` adds where it falls short of the quota."""
    left_BL = draft.masked_BL & ~commit.mask_BL
    owed_B = (quota_B - commit.mask_BL.sum(1)).clamp(min=0)
    return commit.add(draft.tokens_BL, rule.select(draft.confidence_BL, left_BL, owed_B), Source.UNMASKED)
