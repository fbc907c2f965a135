"""The next block's first draft, in the forward that checks whether this block is decided as drafted.

It is the draft that the next step would make if everything held: this block's tokens as data rows, and the next block's
masks behind them. All of them take the cache's own slots, so should everything hold, the block is encoded too.

Axes: B rows, L block positions, R masks that are read, T cache slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s2d2cli.config import DecodeConfig
from s2d2cli.decode.drafters import spread
from s2d2cli.decode.state import BlockState, DraftStep, Verdict
from s2d2cli.models.plan import ForwardPlan, Kind

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


@dataclass(frozen=True)
class NextBlock:
    state: BlockState  # as it will be
    rows_B: Tensor  # whose block the draft fills
    plan: ForwardPlan
    place_BR: Tensor  # in the next block

    def carry(self, verdict: Verdict, logits_BRV: Tensor, held_B: Tensor, session: Session) -> None:
        """Where the block is decided as drafted, this is the next draft, and the block is encoded."""
        logits_BLV, masked_BL = spread(logits_BRV, self.place_BR, self.state.masked_BL), self.state.masked_BL
        if verdict.next_BL is not None and verdict.next_logits_BLV is not None:
            logits_BLV = torch.where(held_B[:, None, None], logits_BLV, verdict.next_logits_BLV)
            verdict.next_BL = torch.where(held_B[:, None], masked_BL, verdict.next_BL)
        else:
            verdict.next_BL = masked_BL & held_B[:, None]
        verdict.next_logits_BLV = logits_BLV
        state = session.state
        state.encoded_B = torch.where(held_B, session.layout.settled_B(self.state), state.encoded_B)


def fits(decode: DecodeConfig) -> bool:
    """Finished blocks must be final, or nothing be kept at all, and no forward of its own may encode them."""
    return decode.cache == "none" if decode.context == "full" else decode.commit == "pending"


def next_block(draft: DraftStep, session: Session, rows_B: Tensor) -> NextBlock | None:
    """For those of the rows whose block this draft fills and that want another; None when there are none."""
    ahead = session.state.rows(torch.arange(len(rows_B), device=rows_B.device))
    filled_BL = torch.where(draft.masked_BL, draft.tokens_BL, ahead.tokens_BL)
    ahead.canvas_BT = ahead.canvas_BT.scatter(1, ahead.positions_BL, filled_BL)
    rows_B = rows_B & ahead.active_B & ~ahead.masked_BL.any(1) & (ahead.block_end_B < ahead.end_B)
    ahead.start_B = torch.where(rows_B, ahead.block_end_B, ahead.start_B)
    ahead.window_B = session.window_B(ahead.start_B)
    ahead.next_block(rows_B)
    found = session.layout.draft(ahead, rows_B)
    if found is None:
        return None
    plan, place_BR = found
    # counted as a verification whoever is in the batch, for it may share the forward of one
    return NextBlock(ahead, rows_B, replace(plan, kind=Kind.VERIFY), place_BR)
