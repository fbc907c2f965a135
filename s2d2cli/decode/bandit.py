"""The router that learns: a bandit per sample.

Axes: B rows, L block positions, C context buckets, A actions (0 skip, 1 verify).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from s2d2cli.config import one_of, register, require
from s2d2cli.decode.state import BlockState, DraftStep, Verdict

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


@register("router", "ucb")
@dataclass
class ContextualUCB:
    """A bandit per row that learns in which contexts verifying pays (S2D2's contextual_bandit_ucb).

    Context: length of the first span, progress in the (sub-)block, mean draft entropy, each cut into bins. Reward:
    tokens decided per forward. It tries what it knows least: mean + beta * sqrt(ln t / n), ties verify.
    """

    uses_estimate: ClassVar[bool] = False

    beta: float = 1.0
    span_bins: int = 2
    progress_bins: int = 2
    entropy_bins: int = 2
    entropy_of: str = "span"  # or "masked": all masks of the block
    progress_of: str = "decoded"  # or "visible": prompt tokens in the block count as well
    reset_per_block: bool = False

    def validate(self) -> None:
        require(self.beta >= 0, f"router.beta must be 0 or more, got {self.beta}")
        for name in ("span_bins", "progress_bins", "entropy_bins"):
            require(getattr(self, name) >= 1, f"router.{name} must be at least 1, got {getattr(self, name)}")
        one_of("router.entropy_of", self.entropy_of, ("span", "masked"))
        one_of("router.progress_of", self.progress_of, ("decoded", "visible"))

    def start(self, session: Session) -> None:
        active_B = session.state.active_B
        buckets = self.span_bins * self.progress_bins * self.entropy_bins
        self.count_BCA = torch.zeros(len(active_B), buckets, 2, dtype=torch.float64, device=active_B.device)
        self.total_BCA = torch.zeros_like(self.count_BCA)
        self.time_B = torch.zeros(len(active_B), dtype=torch.float64, device=active_B.device)

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        if self.reset_per_block:
            self.enter(state.block_step_B == 0)
        self.asked_B = draft.masked_BL.any(1)  # where there is nothing to verify, nothing is learnt
        self.time_B += self.asked_B
        self.bucket_B11 = self.bucket_B(draft, state)[:, None, None].expand(-1, 1, 2)
        count_BA, total_BA = (table.gather(1, self.bucket_B11)[:, 0] for table in (self.count_BCA, self.total_BCA))
        bonus_BA = self.beta * (self.time_B[:, None].clamp(min=1).log() / count_BA).sqrt()
        bound_BA = torch.where(count_BA > 0, total_BA / count_BA + bonus_BA, torch.inf)
        return bound_BA[:, 1] >= bound_BA[:, 0]

    def observe(self, verdict: Verdict, decided_B: Tensor, state: BlockState) -> None:
        verified_B = verdict.verified_B
        reward_B = decided_B / (1 + verified_B.double())
        chosen_BA = torch.stack([~verified_B, verified_B], 1) & self.asked_B[:, None]
        chosen_B1A = chosen_BA[:, None].double()
        self.count_BCA.scatter_add_(1, self.bucket_B11, chosen_B1A)
        self.total_BCA.scatter_add_(1, self.bucket_B11, chosen_B1A * reward_B[:, None, None])

    def keep(self, index_R: Tensor) -> None:
        self.count_BCA, self.total_BCA = self.count_BCA[index_R], self.total_BCA[index_R]
        self.time_B = self.time_B[index_R]

    def enter(self, index_R: Tensor) -> None:
        """Also takes a mask."""
        self.count_BCA[index_R], self.total_BCA[index_R], self.time_B[index_R] = 0, 0, 0

    def bucket_B(self, draft: DraftStep, state: BlockState) -> Tensor:
        length, span_BL = state.sub_block, draft.span_BL
        decided_BL = (state.tokens_BL != state.mask_id) & state.sub_block_BL
        if self.progress_of == "decoded":
            decided_BL &= state.positions_BL >= state.prompt_len_B[:, None]
        over_BL = span_BL if self.entropy_of == "span" else draft.masked_BL
        entropy_BL = draft.entropy_BL / torch.tensor(float(draft.logits_BLV.shape[-1])).log()
        mean_B = (entropy_BL * over_BL).sum(1) / over_BL.sum(1).clamp(min=1)
        span_B = bin_of(span_BL.sum(1), 1, length, self.span_bins)
        progress_B = bin_of(decided_BL.sum(1) / length, 0, 1, self.progress_bins)
        return (span_B * self.progress_bins + progress_B) * self.entropy_bins + bin_of(mean_B, 0, 1, self.entropy_bins)


def bin_of(value_B: Tensor, low: float, high: float, bins: int) -> Tensor:
    """Which of `bins` equal parts of [low, high] a value falls into; values outside go to the nearest."""
    if bins == 1 or high <= low:
        return torch.zeros_like(value_B, dtype=torch.long)
    part_B = (value_B.double().clamp(low, high) - low) / (high - low) * bins
    return part_B.long().clamp(0, bins - 1)
