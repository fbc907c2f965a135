"""The forwards of block diffusion as plans: which rows, where they are stored, what they see.

How decided tokens attend (`decode.context`), drawn for block length 4, two decided tokens a b in the second block:

    block: as trained                           causal: "AR-like" (published: cache_ver and draft_ver)
              1 2 3 4  a b M M                             1 2 3 4  a b M M
        1-4   x x x x  . . . .                       1     x . . .  . . . .    tokens see what is left of them,
        a     x x x x  x x x x                       ...                       masks see everything:
        b     x x x x  x x x x                       a     x x x x  x . . .    the verifier's keys are then exactly
        M     x x x x  x x x x                       b     x x x x  x x . .    those of autoregressive decoding
        M     x x x x  x x x x                       M     x x x x  x x x x

`causal_cache` keeps only the left columns causal (published: cache_ver alone), `causal_draft` only a and b
(draft_ver alone). `causal_published` repeats a fault of the published code for Fast-dLLM v2: it makes as many rows
causal as are decided in the sub-block, but at the beginning of the block. Without sub-blocks it is `causal`. `full`,
where nothing is ever final, is in full.py; prompts that attend to themselves fully are in whole_prompt.py.

A position is *settled* when its keys and values can be final: everything before the block, and with a causal context
also the decided prefix of the block, unless a rule may still edit it. Settled but not yet encoded tokens are *pending*:
the next draft carries them as data rows in front, so no forward exists only to write the cache.
`decode.commit=separate` brings the published forwards back: the prompt, then one commit per finished block.

A right-shifted model (`shift` 1) scores a token by the row left of it. Its forwards begin one row left of the first
position they read; where that row is encoded already it is encoded once more, to the same entries.

Axes: B rows, L block positions, S window positions, Q query tokens, R wanted rows, T cache slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2d2cli.config import DecodeConfig
from s2d2cli.decode.acceptance import window_length
from s2d2cli.decode.state import BlockState, DraftStep
from s2d2cli.models.plan import ForwardPlan, Kind, rows_between

PADDING_SLOT = 0  # scratch slot of rows that only fill up the batch; the verifier's masks use the slots behind it
EXTENT_STEP = 32  # the visible part of the cache grows in steps, so that shapes repeat


@dataclass(frozen=True)
class VerifyPlan:
    """A verification, the window's length in it, how far its data rows reach, and where the next block's masks stand
    for the rows that carry them."""

    plan: ForwardPlan
    num_window: int  # the first logits read are the window's; a bonus is read behind it
    data_end_B: Tensor
    next_B: Tensor  # how many masks of the next block each row carries
    next_BN: Tensor  # where they stand


@dataclass(frozen=True)
class Layout:
    """The session's answers to "who sees whom" and "what may be encoded now"."""

    settings: DecodeConfig
    scratch: int  # slots in front of position 0
    positions: int  # slots from position 0 on
    edits: bool  # a decided token may change until its block is finished
    shift: int  # the model's; see models/adapter.py

    @property
    def context(self) -> str:
        assert self.settings.context is not None, "config.complete() comes first"
        return self.settings.context

    @property
    def pending(self) -> bool:
        return self.settings.commit == "pending"

    @property
    def boundary(self) -> bool:
        """Whether a forward that only writes the cache also decides the token behind."""
        return self.settings.boundary == "published"

    @property
    def prefix_final(self) -> bool:
        """Whether the decided prefix of a block has final keys and values."""
        return self.pending and self.context == "causal" and not self.edits

    @property
    def stops_after_blocks(self) -> bool:
        """Whether stop tokens count in finished blocks only: before, an editor may take them back, and two of the
        published programs do not look."""
        return self.edits or not (self.pending or self.boundary)

    def low_B(self, state: BlockState, first_B: Tensor) -> Tensor:
        """Where a forward must begin that reads from `first` on."""
        return torch.minimum(state.encoded_B, first_B - self.shift).clamp(min=0)

    def settled_B(self, state: BlockState) -> Tensor:
        """First position whose keys and values are not final yet."""
        return state.first_masked_B if self.prefix_final else state.start_B

    def horizon_BQ(self, positions_BQ: Tensor, state: BlockState) -> Tensor:
        """A row at position p sees the positions below its horizon."""
        start_B1 = state.start_B[:, None]
        block_end_BQ = state.block_ends_BX(positions_BQ)
        if state.slides:
            block_end_BQ = torch.where(positions_BQ < start_B1, block_end_BQ, state.block_end_B[:, None])
        causal_BQ = torch.zeros_like(positions_BQ, dtype=torch.bool)
        if self.context in ("causal", "causal_cache", "causal_published"):
            causal_BQ |= positions_BQ < start_B1
        if self.context in ("causal", "causal_draft", "causal_published"):
            num_decided_B1 = state.first_masked_B[:, None] - start_B1
            if self.context == "causal_published":
                num_decided_B1 = num_decided_B1 % state.sub_block
            causal_BQ |= (positions_BQ >= start_B1) & (positions_BQ < start_B1 + num_decided_B1)
        return torch.where(causal_BQ, positions_BQ + 1, block_end_BQ)

    def draft_rows(self, state: BlockState) -> tuple[Tensor, Tensor, Tensor]:
        """Where the rows of a draft begin, where they end, and where what they see ends, (B,) each."""
        low_B = self.low_B(state, state.start_B if self.edits else state.first_masked_B)
        return low_B, state.block_end_B, state.block_end_B

    def draft(self, state: BlockState, rows_B: Tensor) -> tuple[ForwardPlan, Tensor] | None:
        """[pending tokens | the block as it stands] for some of the rows; None when there are none.

        Reads the masks alone, and for edits the decided tokens too: also returns their places in the block, (B, R),
        rows with fewer filled up with others.
        """
        low_B, high_B, seen_B = self.draft_rows(state)
        high_B, seen_B = (torch.where(rows_B, end_B, low_B) for end_B in (high_B, seen_B))
        wanted_BL = (state.generated_BL if self.edits else state.masked_BL) & rows_B[:, None]
        width, extent, num_read = host_ints((high_B - low_B).max(), seen_B.max(), wanted_BL.sum(1).max())
        if width == 0:
            return None
        positions_BQ, real_BQ = rows_between(low_B, high_B, width)
        place_BR = (~wanted_BL).long().argsort(dim=1, stable=True)[:, :num_read]
        read_BR = (state.start_B[:, None] + place_BR - low_B[:, None]).clamp(0, width - 1)
        return self._assemble(Kind.DRAFT, state, (positions_BQ, real_BQ), read_BR, extent), place_BR

    def encode(self, kind: Kind, state: BlockState, rows_B: Tensor) -> ForwardPlan | None:
        """Only the tokens that are settled but not encoded (prefill and separate commits); None when there are none.

        Under decode.boundary=published reads the position behind them.
        """
        low_B = state.encoded_B
        high_B = torch.where(rows_B, state.start_B, low_B)
        width, extent = host_ints((high_B - low_B).max(), high_B.max())
        if width == 0:
            return None
        behind_B1 = (high_B - low_B)[:, None]
        read_BR = behind_B1 if self.boundary else behind_B1[:, :0]
        return self._assemble(kind, state, rows_between(low_B, high_B, width), read_BR, extent)

    def verify(self, state: BlockState, draft: DraftStep, checked_BL: Tensor, next_B: Tensor) -> VerifyPlan | None:
        """The 2L trick, without the rows nobody reads: [drafted tokens, causal | one mask per window position], where
        the window reaches from the first checked position to the last.

        The mask at position p sees the tokens left of p and itself, so its logits are those of block length one.
        Reads the S mask rows. None when no row has anything to check.

                     cache  d1 d2 | M1 M2 M3        d3, the window's last token, is read by nobody
            d1         x     x  . |  .  .  .
            d2         x     x  x |  .  .  .
            M1         x     .  . |  x  .  .
            M2         x     x  . |  .  x  .
            M3         x     x  x |  .  .  x

        A right-shifted model needs no masks: the causal row d1 scores d2. Then d3 is a row too, and the position behind
        the window is read besides.

        `next_B` adds so many masks of the next block, which see all of this one as drafted (d3 is a row then): should
        the whole block be accepted, they are the next draft.
        """
        length_B = window_length(checked_BL)
        first_B = state.start_B + checked_BL.long().argmax(1)
        low_B, end_B = self.low_B(state, first_B), state.block_end_B
        next_B = torch.where((first_B + length_B == end_B) & (length_B > 0) & (end_B < state.end_B), next_B, 0)
        whole_B = (next_B > 0) | bool(self.shift)  # the window's last token is a row
        high_B = torch.maximum(first_B + length_B - 1 + whole_B.long(), low_B)
        high_B = torch.where(length_B > 0, high_B, low_B)
        num_window, width, extent, num_ahead = host_ints(
            length_B.max(), (high_B - low_B).max(), high_B.max(), next_B.max()
        )
        if num_window == 0:
            return None
        num_masks = 0 if self.shift else num_window
        data_BQ, data_real_BQ = rows_between(low_B, high_B, width)
        masks_BS, masks_real_BS = rows_between(first_B, first_B + length_B, num_masks)
        next_BN, next_real_BN = rows_between(end_B, end_B + next_B, num_ahead)
        filled_BL = torch.where(draft.masked_BL | draft.edits_BL, draft.tokens_BL, state.tokens_BL)
        filled_BT = state.canvas_BT.scatter(1, state.positions_BL, filled_BL)
        masks_BM = torch.cat([masks_BS, next_BN], 1)
        scratch_BM = torch.arange(1, num_masks + num_ahead + 1, device=low_B.device).expand_as(masks_BM)
        slots_BQ = torch.cat([self.scratch + data_BQ, scratch_BM], 1)
        real_BQ = torch.cat([data_real_BQ, masks_real_BS, next_real_BN], 1)
        horizon_BQ = torch.cat([data_BQ + 1, masks_BS, end_B[:, None].expand_as(next_BN)], 1)
        visible_BQT = self.visible(slots_BQ, horizon_BQ, real_BQ, extent)
        together_BNN = next_real_BN[:, :, None] & next_real_BN[:, None]  # the masks of a block see each other
        visible_BQT[:, width + num_masks :, 1 + num_masks : 1 + num_masks + num_ahead] |= together_BNN
        rows_M = (width + torch.arange(num_masks + num_ahead, device=low_B.device)).expand_as(masks_BM)
        behind_BS = (first_B - low_B)[:, None] + torch.arange(num_window + 1, device=low_B.device)
        plan = ForwardPlan(
            Kind.VERIFY,
            torch.cat([take(filled_BT, data_BQ), torch.full_like(masks_BM, state.mask_id)], 1),
            torch.cat([data_BQ, masks_BM], 1),
            torch.where(real_BQ, slots_BQ, PADDING_SLOT),
            visible_BQT,
            behind_BS.clamp(max=width) if self.shift else rows_M[:, :num_masks],
        )
        return VerifyPlan(plan, num_window, high_B, next_B, rows_M[:, num_masks:])

    def _assemble(
        self, kind: Kind, state: BlockState, rows: tuple[Tensor, Tensor], read_BR: Tensor, extent: int
    ) -> ForwardPlan:
        """A plan whose rows are canvas tokens at their own slots."""
        positions_BQ, real_BQ = rows
        slots_BQ = torch.where(real_BQ, self.scratch + positions_BQ, PADDING_SLOT)
        visible_BQT = self.visible(slots_BQ, self.horizon_BQ(positions_BQ, state), real_BQ, extent)
        return ForwardPlan(kind, take(state.canvas_BT, positions_BQ), positions_BQ, slots_BQ, visible_BQT, read_BR)

    def visible(self, slots_BQ: Tensor, horizon_BQ: Tensor, real_BQ: Tensor, extent: int) -> Tensor:
        """Real rows see the positions below their horizon and themselves; padding rows see the padding slot."""
        num_slots = self.scratch + min(-(-extent // EXTENT_STEP) * EXTENT_STEP, self.positions)
        slot_T = torch.arange(num_slots, device=slots_BQ.device)
        below_BQT = (slot_T >= self.scratch) & (slot_T < self.scratch + horizon_BQ[..., None])
        own_BQT = slot_T == torch.where(real_BQ, slots_BQ, PADDING_SLOT)[..., None]
        return (below_BQT & real_BQ[..., None]) | own_BQT


def take(canvas_BT: Tensor, positions_BQ: Tensor) -> Tensor:
    """Canvas tokens at `positions`; padding rows may point past the canvas."""
    return canvas_BT.gather(1, positions_BQ.clamp(max=canvas_BT.shape[1] - 1))


def host_ints(*numbers: Tensor) -> list[int]:
    """The one wait for the device that a forward needs: its shape."""
    values: list[int] = torch.stack(numbers).tolist()
    return values
