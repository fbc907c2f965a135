"""Routers: is a verification worth its forward in this step?

Axes: B rows, L block positions.
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
