"""One forward for several states of the current block: copies side by side, none of which knows of the others.

What lies before the block is in the cache and is seen by all. Drawn for two states of a block of three, d written in
the first and e besides in the second:

              cache  d M M | d M e
    d           x    x x x |            all copies go to scratch slots; a decided prefix is causal where decode.context
    M           x    x x x |            says so, as it is in a draft
    M           x    x x x |
    d           x          | x x x      a right-shifted model has one row more in each copy: the token left of the
    M           x          | x x x      block, which scores its first position and is seen by itself alone
    e           x          | x x x

Axes: B rows, L block positions, X states, Y rows of a state, Q all rows, R masks that are read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from s2d2cli.decode.layout import PADDING_SLOT, Layout, host_ints, take
from s2d2cli.decode.state import BlockState
from s2d2cli.models.plan import ForwardPlan, Kind


def lay_out(layout: Layout, state: BlockState, tokens_BXL: Tensor, read_BXL: Tensor) -> tuple[ForwardPlan, Tensor]:
    """The forward, and the places in the block of what it reads, (B, X, R); states that read fewer are filled up with
    other places. A state that reads nothing is padding."""
    num_read, extent = host_ints(read_BXL.sum(2).max(), state.block_end_B.max())
    num_states, width = tokens_BXL.shape[1], tokens_BXL.shape[2] + layout.shift
    start_B1, device = state.start_B[:, None], state.start_B.device
    positions_BY = start_B1 - layout.shift + torch.arange(width, device=device)
    left_BY = take(state.canvas_BT, positions_BY[:, : layout.shift].clamp(min=0))
    tokens_BXY = torch.cat([left_BY[:, None].expand(-1, num_states, -1), tokens_BXL], 2)
    real_BXY = ((positions_BY >= 0) & (positions_BY < state.block_end_B[:, None]))[:, None] & read_BXL.any(2, True)
    positions_BQ, real_BQ = positions_BY.repeat(1, num_states), real_BXY.flatten(1)
    scratch_BQ = torch.arange(1, num_states * width + 1, device=device).expand_as(positions_BQ)
    visible_BQT = layout.visible(scratch_BQ, torch.minimum(start_B1, positions_BQ), real_BQ, extent)
    visible_BQT[:, :, 1 : num_states * width + 1] |= within(layout, state, tokens_BXY, positions_BQ) & real_BQ[:, None]
    place_BXR = (~read_BXL).long().argsort(dim=2, stable=True)[:, :, :num_read]
    first_X1 = torch.arange(num_states, device=device)[:, None] * width + layout.shift
    plan = ForwardPlan(
        Kind.VERIFY,
        tokens_BXY.flatten(1),
        positions_BQ.clamp(min=0),
        torch.where(real_BQ, scratch_BQ, PADDING_SLOT),
        visible_BQT,
        (first_X1 + place_BXR).flatten(1),
    )
    return plan, place_BXR


def within(layout: Layout, state: BlockState, tokens_BXY: Tensor, positions_BQ: Tensor) -> Tensor:
    """Which rows of its own copy each row of the block sees, bool (B, Q, Q)."""
    start_B1, end_B1 = state.start_B[:, None], state.block_end_B[:, None]
    decided_BXY = (tokens_BXY == state.mask_id).cumsum(2) == 0  # with nothing undecided left of it
    causal_BQ = decided_BXY.flatten(1) & (layout.context in ("causal", "causal_draft"))
    horizon_BQ = torch.where(causal_BQ, positions_BQ + 1, end_B1)
    inside_BQ = positions_BQ >= start_B1
    copy_Q = torch.arange(positions_BQ.shape[1], device=start_B1.device) // tokens_BXY.shape[2]
    sees_BQQ = (copy_Q[:, None] == copy_Q) & (positions_BQ[:, None] < horizon_BQ[..., None])
    return sees_BQQ & inside_BQ[:, None] & inside_BQ[..., None]
