"""Routers: is a verification worth its forward in this step?

Axes: B rows, L block positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.state import BlockState, DraftStep


class Router(Protocol):
    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        """bool (B,): verify this row's first span now? Rows without a mask are never verified, whatever it says."""


@register("router", "never")
@dataclass
class Never:
    """Plain block diffusion."""

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        return torch.zeros_like(state.active_B)


@register("router", "always")
@dataclass
class Always:
    """Verify each step."""

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        return torch.ones_like(state.active_B)


@register("router", "min_span")
@dataclass
class MinSpan:
    """Verify when the first span has at least `tau_span` masks (S2D2's mask_span_length)."""

    tau_span: int = 2

    def validate(self) -> None:
        require(self.tau_span >= 1, f"router.tau_span must be at least 1, got {self.tau_span}")

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        return draft.span_BL.sum(1) >= self.tau_span
