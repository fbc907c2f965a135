"""The router that weighs tokens against milliseconds: nothing to tune, and nothing that changes an exact output.

It knows what a forward costs on this machine (models/cost_curve.py) and learns per sample how far drafts hold. From
both it chooses, in each step, what promises most tokens per millisecond:

* how far a draft looks (`verifier.form=sliding`). One position needs no verification, so this also decides whether to
  verify at all: where rows are dear or drafts are poor it decodes autoregressively.
* how many of the drafted tokens to verify: a later one is worth its rows only if those before it are likely to hold.
* for `verifier=single`, how many branches to draft in the same forward, and how long.

Every token is verified, or was drafted from what the verifier would have seen; so unlike a threshold on the score, a
dear forward costs speed and never accuracy.

What a choice is worth is its expected tokens less its milliseconds times the sample's own rate so far (tokens per
millisecond): the marginal form of "most tokens per second".

Axes: B rows, L block positions, D depth of a drafted token, K branches, S number of verified drafts, J branch masks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.state import BlockState, DraftStep, Verdict
from s2d2cli.models.cost_curve import CostCurve, measure

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session

PRIOR, STRENGTH = 0.8, 2.0  # a draft is expected to hold, until so many tokens have said otherwise
MEMORY = 0.97  # what a step leaves of the weight of those before it


@register("router", "cost_aware")
@dataclass
class CostAware:
    """Verify, look ahead and branch as far as it pays on this machine.

    The curve is measured, unless `rows` (token rows of a sample's forward, rising) and `ms` (what such a forward takes)
    give it, as `s2d2 bench` prints them.
    """

    verifies_all: ClassVar[bool] = True

    rows: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)

    def validate(self) -> None:
        require(
            len(self.rows) == len(self.ms),
            f"router.rows and router.ms must be of one length, got {len(self.rows)} and {len(self.ms)} numbers",
        )
        rising = all(before < after for before, after in zip(self.rows, self.rows[1:], strict=False))
        require(rising and min(self.rows, default=1) >= 1, f"router.rows must rise from 1 or more, got {self.rows}")
        require(min(self.ms, default=1) > 0, f"router.ms must be above 0, got {self.ms}")

    @property
    def needs_curve(self) -> bool:
        return not self.rows

    def start(self, session: Session) -> None:
        state, verifier = session.state, session.decoder.verifier
        self.single = bool(getattr(verifier, "decides_all", False))
        self.ahead = bool(getattr(verifier, "ahead", False))
        self.each = 1 if session.model.shift else 2  # rows of a verified draft: a right-shifted model needs no mask
        curve = self.curve_of(session)
        self.contexts = curve.contexts
        self.table = curve.table(rows_at_most(state.block_length), state.start_B.device)
        rows, length = state.tokens_BL.shape
        self.tried_BD, self.held_BD = self.table.new_zeros(2, rows, length)
        self.doubt_B, self.rejected_B, self.tokens_B, self.spent_B = self.table.new_zeros(4, rows)

    def curve_of(self, session: Session) -> CostCurve:
        """The user's, the recorded one, or the one that is measured now and kept with the decoder."""
        decoder = session.decoder
        if self.rows:
            return CostCurve(list(self.rows), [1], [list(self.ms)])
        if decoder.cost_curve is None:
            most_rows = rows_at_most(session.state.block_length)
            decoder.cost_curve = measure(session.model, len(session.live), session.layout.positions, most_rows)
        return decoder.cost_curve

    def window_B(self, state: BlockState) -> Tensor:
        """How many positions the next draft should look at: most tokens per millisecond of its two passes."""
        reach_BD = self.usual_reach_BD()
        window_BD = torch.arange(1, reach_BD.shape[1] + 1, device=reach_BD.device).expand_as(reach_BD)
        draft_BD = self.price(1 + window_BD, state)
        if self.ahead:  # after a full acceptance the next draft is there
            draft_BD = draft_BD * (1 - reach_BD)
        verify_BD = self.price(self.each * window_BD + self.ahead * window_BD, state)
        price_BD = torch.where(window_BD == 1, self.price(2 + 0 * window_BD, state), draft_BD + verify_BD)
        return 1 + (outcome(reach_BD) / price_BD).argmax(1)

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        self.span_BL = draft.masked_BL if self.single else draft.span_BL
        self.doubt_BL = -draft.accept_prob_BL.clamp(0.01, 0.999).log() * self.span_BL
        # the estimator may be too sure or too shy: the sample's own rejections scale its -log
        scale_B1 = ((self.rejected_B + STRENGTH) / (self.doubt_B + STRENGTH))[:, None]
        reach_BL = (-scale_B1 * self.doubt_BL.cumsum(1)).exp() * self.span_BL
        self.checked_B = self.worth_verifying(reach_BL, state)
        if self.single:
            self.branch_BK = self.worth_drafting(reach_BL, state)
        return self.checked_B

    def worth_verifying(self, reach_BL: Tensor, state: BlockState) -> Tensor:
        """How many of the drafts to verify; the draft itself is paid."""
        rank_BL = self.span_BL.long().cumsum(1)
        gain_BL = reach_BL.cumsum(1) if self.single else outcome(reach_BL)
        price_BL = self.price(self.each * rank_BL + self.single, state)
        worth_BL = (gain_BL - self.rate_B1(state) * price_BL).masked_fill(~self.span_BL, -torch.inf)
        best_B1 = worth_BL.argmax(1, keepdim=True)
        chosen_B = torch.where(self.span_BL.any(1), rank_BL.gather(1, best_B1)[:, 0], 0)
        passes_B2 = torch.stack([state.window_B + 1, self.each * chosen_B], 1).clamp(min=0)
        self.draft_ms_B, self.verify_ms_B = self.price(passes_B2, state).unbind(1)
        return chosen_B

    def worth_drafting(self, reach_BL: Tensor, state: BlockState) -> Tensor:
        """How many masks each branch should have, (B, K). A mask is worth the chance that its branch is the one and
        that the draft holds so far; its row is paid now, more when it is verified."""
        rate_B1, checked_B1 = self.rate_B1(state), self.checked_B[:, None]
        sure_BS = torch.cat([torch.ones_like(reach_BL[:, :1]), reach_BL], 1)[:, : reach_BL.shape[1]]
        count_S = torch.arange(sure_BS.shape[1], device=sure_BS.device)
        chance_BK = sure_BS - reach_BL * (count_S < checked_B1)  # that just so many hold, or all that are checked
        chance_BK = chance_BK.masked_fill(count_S > checked_B1, 0)
        later_BS = self.price(3 + self.each * torch.arange(len(count_S) + 1, device=sure_BS.device)[None], state)
        value_BJ = self.usual_reach_BD() - rate_B1 * later_BS.diff(dim=1)
        gain_BKJ = chance_BK[:, :, None] * value_BJ[:, None].clamp(min=0)
        gain_BX, order_BX = gain_BKJ.flatten(1).sort(dim=1, descending=True, stable=True)
        opens_BX = order_BX % gain_BKJ.shape[2] == 0  # a branch begins with the token that the verdict decides
        base_B1 = (state.start_B - state.encoded_B).clamp(min=0)[:, None] + self.each * checked_B1 + 1
        rows_BX = base_B1 + (1 + opens_BX.long()).cumsum(1)
        worth_BX = gain_BX.cumsum(1) - rate_B1 * (self.price(rows_BX, state) - self.price(base_B1, state))
        best_B1 = worth_BX.argmax(1, keepdim=True)
        pays_B1 = worth_BX.gather(1, best_B1) > 0
        self.draft_ms_B = self.price(torch.where(pays_B1, rows_BX.gather(1, best_B1), base_B1), state)[:, 0]
        self.verify_ms_B = torch.zeros_like(self.draft_ms_B)  # it is in the same forward
        taken_BX = (torch.arange(worth_BX.shape[1], device=best_B1.device) <= best_B1) & pays_B1
        taken_BKJ = torch.zeros_like(taken_BX).scatter(1, order_BX, taken_BX).view_as(gain_BKJ)
        num_BK = taken_BKJ.sum(2)
        return torch.where(num_BK > 0, num_BK + 1, 0)

    def observe(self, verdict: Verdict, decided_B: Tensor, state: BlockState) -> None:
        checked_B = torch.where(verdict.verified_B, self.checked_B, 0)
        held_B = torch.minimum(verdict.accepted_B, checked_B)
        judged_B = torch.minimum(held_B + 1, checked_B)
        depth_D = torch.arange(self.tried_BD.shape[1], device=held_B.device)
        self.tried_BD = MEMORY * self.tried_BD + (depth_D < judged_B[:, None])
        self.held_BD = MEMORY * self.held_BD + (depth_D < held_B[:, None])
        judged_BL = self.span_BL & (self.span_BL.cumsum(1) <= judged_B[:, None])
        self.doubt_B = MEMORY * self.doubt_B + (self.doubt_BL * judged_BL).sum(1)
        self.rejected_B = MEMORY * self.rejected_B + (held_B < checked_B)
        self.tokens_B = self.tokens_B + decided_B
        self.spent_B = self.spent_B + self.draft_ms_B + torch.where(verdict.verified_B, self.verify_ms_B, 0)

    def usual_reach_BD(self) -> Tensor:
        """The chance that a draft holds up to each depth, from what this sample has seen."""
        hold_BD: Tensor = (self.held_BD + STRENGTH * PRIOR) / (self.tried_BD + STRENGTH)
        return hold_BD.cumprod(1)

    def rate_B1(self, state: BlockState) -> Tensor:
        """Tokens per millisecond so far; at first that of autoregressive decoding."""
        plain_B1 = self.price(torch.full_like(state.start_B, 2)[:, None], state)
        rate_B1: Tensor = (self.tokens_B[:, None] + 1) / (self.spent_B[:, None] + plain_B1)
        return rate_B1

    def price(self, rows_BX: Tensor, state: BlockState) -> Tensor:
        """Milliseconds of a forward with so many token rows at each sample's context, (B, X)."""
        low, high = self.contexts[0], self.contexts[-1]
        share_B1 = ((state.start_B - low) / max(1, high - low)).clamp(0, 1)[:, None]
        near_BX, far_BX = self.table[0][rows_BX], self.table[-1][rows_BX]
        return torch.lerp(near_BX, far_BX, share_B1)

    def keep(self, index_R: Tensor) -> None:
        for name in REMEMBERED:
            setattr(self, name, getattr(self, name)[index_R])

    def enter(self, index_R: Tensor) -> None:
        for name in REMEMBERED:
            getattr(self, name)[index_R] = 0


REMEMBERED = ("tried_BD", "held_BD", "doubt_B", "rejected_B", "tokens_B", "spent_B")


def outcome(reach_BD: Tensor) -> Tensor:
    """Tokens that a verification of the first so many drafts decides: those that hold, and the one that replaces the
    first that does not."""
    return reach_BD.cumsum(1) + 1 - reach_BD


def rows_at_most(length: int) -> int:
    """The most token rows of a sample that a step could ask for: all drafts verified, all branches drafted."""
    return 3 * length + (length + 1) ** 2
