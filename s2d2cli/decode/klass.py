"""KLASS (Kim et al. 2025, 2511.05664): reveal what is confident and has stopped changing.

The authors report up to 2.78 times the speed of one token a step, with thresholds tuned for each model and task.

Axes: B rows, L block positions, V vocabulary, N rows flattened with positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.sampling import sliced
from s2d2cli.decode.state import DraftStep
from s2d2cli.decode.unmask import at_least, first_by

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


@register("unmask", "klass")
@dataclass
class Klass:
    """Reveal every mask whose confidence exceeds `threshold` and whose distribution differed from that of the step
    before by less than `divergence` nats (Kullback-Leibler), in each of the last `history` steps; if these are fewer
    than the quota, as static does.

    A block's first step has nothing to compare with, so the first `history` steps of a block reveal their quota only.
    """

    threshold: float = 0.9
    divergence: float = 0.01
    history: int = 2

    def validate(self) -> None:
        require(self.threshold >= 0, f"unmask.threshold must be 0 or more, got {self.threshold}")
        require(self.divergence > 0, f"unmask.divergence must be above 0, got {self.divergence}")
        require(self.history >= 1, f"unmask.history must be at least 1, got {self.history}")

    def start(self, session: Session) -> None:
        self.session = session
        self.seen_BLV: Tensor | None = None
        self.start_B = torch.full_like(session.state.start_B, -1)  # of the block that was seen
        self.steady_BL = torch.zeros_like(session.state.masked_BL, dtype=torch.long)  # steps without a change

    def keep(self, index_R: Tensor) -> None:
        self.start_B, self.steady_BL = self.start_B[index_R], self.steady_BL[index_R]
        self.seen_BLV = None if self.seen_BLV is None else self.seen_BLV[index_R]

    def enter(self, index_R: Tensor) -> None:
        self.start_B[index_R] = -1

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        self.look(draft)
        sure_BL = masked_BL & (draft.confidence_BL > self.threshold) & (self.steady_BL >= self.history)
        return at_least(sure_BL, first_by(-draft.confidence_BL, masked_BL, quota_B), quota_B)

    def look(self, draft: DraftStep) -> None:
        """Compare this step's distributions with the last one's, and keep them for the next."""
        start_B = self.session.state.start_B
        probs_BLV = draft.sampler.probs(draft.logits_BLV.flatten(0, 1)).view(draft.logits_BLV.shape)
        if self.seen_BLV is not None:
            same_B1 = (start_B == self.start_B)[:, None]
            calm_BL = divergence(probs_BLV, self.seen_BLV) < self.divergence
            self.steady_BL = torch.where(same_B1 & calm_BL, self.steady_BL + 1, 0)
        self.seen_BLV, self.start_B = probs_BLV, start_B


def divergence(probs_BLV: Tensor, before_BLV: Tensor) -> Tensor:
    """KL(now || before) of each position in nats, float32 (B, L); infinite where a token was impossible before."""

    def one(now_NV: Tensor) -> tuple[Tensor, ...]:
        now_NV, before_NV = now_NV.chunk(2, dim=-1)
        return (torch.where(now_NV > 0, now_NV * (now_NV.log() - before_NV.log()), 0.0).sum(-1),)

    return sliced(one, torch.cat([probs_BLV, before_BLV], -1))[0]
