"""LocalLeap (Kong et al. 2025, 2510.07081): next to a confident position a lower confidence will do.

The authors report 6.94 times the speed of one token a step, in 14.2 % of its steps, for LLaDA and Dream.

Axes: B rows, L block positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.state import DraftStep
from s2d2cli.decode.unmask import at_least, first_by


@register("unmask", "local_leap")
@dataclass
class LocalLeap:
    """Reveal every mask whose confidence exceeds `threshold` (an anchor), and those at most `radius` positions from an
    anchor whose confidence exceeds `relaxed`; if these are fewer than the quota, as static does."""

    threshold: float = 0.9
    relaxed: float = 0.75
    radius: int = 4

    def validate(self) -> None:
        require(self.threshold >= 0, f"unmask.threshold must be 0 or more, got {self.threshold}")
        require(
            0 <= self.relaxed <= self.threshold,
            f"unmask.relaxed must lie between 0 and unmask.threshold={self.threshold}, got {self.relaxed}",
        )
        require(self.radius >= 0, f"unmask.radius must be 0 or more, got {self.radius}")

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        anchor_BL = masked_BL & (draft.confidence_BL > self.threshold)
        near_BL = around(anchor_BL, self.radius) & masked_BL & (draft.confidence_BL > self.relaxed)
        return at_least(near_BL, first_by(-draft.confidence_BL, masked_BL, quota_B), quota_B)


def around(flags_BL: Tensor, radius: int) -> Tensor:
    """Positions at most `radius` away from a flag, themselves included."""
    place_L = torch.arange(flags_BL.shape[1], device=flags_BL.device)
    close_LL = (place_L[:, None] - place_L).abs() <= radius
    return (flags_BL[:, None] & close_LL).any(2)
