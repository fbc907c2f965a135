"""Routers: is a verification worth its forward in this step?

Axes: B rows, L block positions, C context buckets, A actions (0 skip, 1 verify).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

from s2d2cli.config import DecodeConfig, one_of, register, require
from s2d2cli.decode.state import BlockState, DraftStep, Verdict

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


class Router(Protocol):
    """What a router remembers, it remembers per row, so that neighbours do not matter; `start` makes the memory.

    Two class attributes, both True when left out: `uses_estimate` (it reads `draft.expected_accepted_B`) and `verifies`
    (`decide` can be True).
    """

    def start(self, session: Session) -> None: ...

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        """bool (B,): verify this row's first span now? Rows without a mask are never verified, whatever it says.

        int64 (B,) instead says how many of its drafts, from the left, to verify; the others count as not drafted.
        """

    def observe(self, verdict: Verdict, decided_B: Tensor, state: BlockState) -> None:
        """What came of it: the verdict, and how many tokens the step decided."""

    def keep(self, index_R: Tensor) -> None:
        """From now on the batch has only these of its rows."""

    def enter(self, index_R: Tensor) -> None:
        """New samples take these rows: forget what was there."""


class Stateless:
    """For routers that remember nothing."""

    def start(self, session: Session) -> None: ...

    def observe(self, verdict: Verdict, decided_B: Tensor, state: BlockState) -> None: ...

    def keep(self, index_R: Tensor) -> None: ...

    def enter(self, index_R: Tensor) -> None: ...


@register("router", "never")
@dataclass
class Never(Stateless):
    """Plain block diffusion."""

    uses_estimate: ClassVar[bool] = False
    verifies: ClassVar[bool] = False

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        return torch.zeros_like(state.active_B)


@register("router", "always")
@dataclass
class Always(Stateless):
    """Verify each step."""

    uses_estimate: ClassVar[bool] = False
    verifies_all: ClassVar[bool] = True

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        return torch.ones_like(state.active_B)


@dataclass
class Confident(Stateless):
    """Routers that count confident masks need a line between confident and not."""

    confidence: float | None = None  # null: unmask.threshold

    def validate(self) -> None:
        line = self.confidence
        require(line is None or line >= 0, f"router.confidence must be 0 or more, or left out, got {line}")

    def start(self, session: Session) -> None:
        if self.counts_confident():
            self.line = session.decoder.confidence_line("the router", self.confidence)

    def counts_confident(self) -> bool:
        return True

    def idle(self, decode: DecodeConfig) -> dict[str, str]:
        return {} if self.counts_confident() else {"confidence": "this router counts no confident masks"}

    def num_confident_B(self, draft: DraftStep) -> Tensor:
        return (draft.masked_BL & (draft.confidence_BL > self.line)).sum(1)


@register("router", "min_span")
@dataclass
class MinSpan(Confident):
    """Verify when the first span has at least `tau_span` masks (S2D2's mask_span_length).

    `legacy` also verifies a shorter span unless plain diffusion would reveal at least min(tau_span, masks) tokens.
    """

    uses_estimate: ClassVar[bool] = False

    tau_span: int = 2
    legacy: bool = False

    def validate(self) -> None:
        super().validate()
        require(self.tau_span >= 1, f"router.tau_span must be at least 1, got {self.tau_span}")

    def counts_confident(self) -> bool:
        return self.legacy

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        verify_B = draft.span_BL.sum(1) >= self.tau_span
        if self.legacy:
            verify_B |= self.num_confident_B(draft) < draft.masked_BL.sum(1).clamp(max=self.tau_span)
        return verify_B


@dataclass
class Scored(Confident):
    """The score of a verification: static E[K] - cost, or dynamic E[K] - cost * N_high, where N_high counts the
    confident masks that plain diffusion would reveal anyway."""

    score: str = "static"
    cost: float = 1.0

    def validate(self) -> None:
        super().validate()
        require(self.cost >= 0, f"router.cost must be 0 or more, got {self.cost}")
        one_of("router.score", self.score, ("static", "dynamic"))

    def counts_confident(self) -> bool:
        return self.score == "dynamic"

    def score_B(self, draft: DraftStep) -> Tensor:
        high_B = self.num_confident_B(draft) if self.counts_confident() else 1
        score_B = draft.expected_accepted_B - self.cost * high_B
        return score_B.masked_fill(~draft.masked_BL.any(1), -torch.inf)


@register("router", "score_threshold")
@dataclass
class ScoreThreshold(Scored):
    """Verify when the score reaches `tau_score`."""

    tau_score: float = 0.0

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        return self.score_B(draft) >= self.tau_score


@register("router", "hysteresis")
@dataclass
class Hysteresis(Scored):
    """Start verifying above `tau_on`, go on until the score falls below `tau_off`.

    Above means >, as the published experiments ran it; the authors note that the paper writes >=.
    """

    tau_on: float = 0.0
    tau_off: float = -1.0
    reset_per_block: bool = False

    def validate(self) -> None:
        super().validate()
        require(
            self.tau_off < self.tau_on,
            f"router.tau_off must be below router.tau_on={self.tau_on}, got {self.tau_off}",
        )

    def start(self, session: Session) -> None:
        super().start(session)
        self.on_B = torch.zeros_like(session.state.active_B)

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        on_B = self.on_B & (state.block_step_B > 0) if self.reset_per_block else self.on_B
        score_B = self.score_B(draft)
        self.on_B = torch.where(on_B, score_B >= self.tau_off, score_B > self.tau_on)
        return self.on_B

    def keep(self, index_R: Tensor) -> None:
        self.on_B = self.on_B[index_R]

    def enter(self, index_R: Tensor) -> None:
        self.on_B[index_R] = False


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
