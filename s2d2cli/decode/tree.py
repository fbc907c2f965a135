"""Several states of the current block in one forward: which there are, and copies side by side, none of which knows of
the others.

A copy has the rows that a draft of its state would have, and they see what a draft's rows see; only the keys and values
of the other rows come from the cache. Drawn for two states of a block of three, d written in the first and e besides in
the second:

              cache  d M M | d M e
    d           x    x x x |            all copies go to scratch slots
    M           x    x x x |
    M           x    x x x |
    d           x          | x x x
    M           x          | x x x
    e           x          | x x x

Axes: B rows, L block positions, T canvas positions, N drafted tokens, X states, Z = B times X, Y rows of a state, Q all
rows, R masks that are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from s2d2cli.decode.layout import PADDING_SLOT, Layout, host_ints, take
from s2d2cli.decode.state import BlockState
from s2d2cli.models.plan import ForwardPlan, Kind, rows_between


@dataclass(frozen=True)
class Tree:
    """Which drafted tokens, numbered in the order of the draft, are written in each state that a forward computes."""

    written_XN: Tensor  # bool
    child_XN: Tensor  # the state that each becomes when a drafted token is added; -1 where it is not computed
    needs_X: Tensor  # so many drafted tokens there must be


def states(nodes: int, mixed: bool) -> list[frozenset[int]]:
    """The first token, the first two, and so on; with a mixed order also those with the last but one left out."""
    chain = [frozenset(range(k)) for k in range(1, nodes + 1)]
    skips = [frozenset({*range(k), k + 1}) for k in range(1, nodes - 1)]
    return chain + (skips if mixed else [])


@cache
def tree(nodes: int, mixed: bool, device: torch.device) -> Tree:
    """The same as tensors; a step should not build them anew."""
    found = states(nodes, mixed)
    places = {one: place for place, one in enumerate(found)}
    children = [[-1 if n in one else places.get(one | {n}, -1) for n in range(nodes)] for one in found]
    return Tree(
        torch.tensor([[n in one for n in range(nodes)] for one in found], device=device),
        torch.tensor(children, device=device),
        torch.tensor([max(one) + 1 for one in found], device=device),
    )


def lay_out(layout: Layout, state: BlockState, tokens_BXL: Tensor, read_BXL: Tensor) -> tuple[ForwardPlan, Tensor]:
    """The forward, and the places in the block of what it reads, (B, X, R); states that read fewer are filled up with
    other places. A state that reads nothing is padding."""
    copies = side_by_side(state, tokens_BXL)
    low_Z, high_Z, seen_Z = layout.draft_rows(copies)
    high_Z = torch.where(read_BXL.any(2).flatten(), high_Z, low_Z)
    num_read, width, extent = host_ints(read_BXL.sum(2).max(), (high_Z - low_Z).max(), seen_Z.max())
    positions_ZY, real_ZY = rows_between(low_Z, high_Z, width)
    horizon_ZY = layout.horizon_BQ(positions_ZY, copies)
    rows, num_states = tokens_BXL.shape[:2]
    positions_BQ, real_BQ, horizon_BQ = (x_ZY.reshape(rows, -1) for x_ZY in (positions_ZY, real_ZY, horizon_ZY))
    scratch_BQ = torch.arange(1, num_states * width + 1, device=low_Z.device).expand(rows, -1)
    visible_BQT = layout.visible(scratch_BQ, horizon_BQ, real_BQ, extent)
    low_BQ, high_BQ = (x_Z.repeat_interleave(width).view(rows, -1) for x_Z in (low_Z, high_Z))
    position_T = torch.arange(visible_BQT.shape[2], device=low_Z.device) - layout.scratch
    copied_BQT = (position_T >= low_BQ[..., None]) & (position_T < high_BQ[..., None])
    visible_BQT &= ~copied_BQT  # a copy's own rows stand for these
    copy_Q = torch.arange(num_states * width, device=low_Z.device) // width
    sees_BQQ = (copy_Q[:, None] == copy_Q) & (positions_BQ[:, None] < horizon_BQ[..., None])
    visible_BQT[:, :, 1 : num_states * width + 1] |= sees_BQQ & real_BQ[:, None] & real_BQ[..., None]
    place_BXR = (~read_BXL).long().argsort(dim=2, stable=True)[:, :, :num_read]
    first_BX1 = (copies.start_B - low_Z).view(rows, num_states, 1)
    base_X1 = torch.arange(num_states, device=low_Z.device)[:, None] * width
    plan = ForwardPlan(
        Kind.VERIFY,
        take(copies.canvas_BT, positions_ZY).view(rows, -1),
        positions_BQ,
        torch.where(real_BQ, scratch_BQ, PADDING_SLOT),
        visible_BQT,
        (base_X1 + (first_BX1 + place_BXR).clamp(0, width - 1)).flatten(1),
    )
    return plan, place_BXR


def side_by_side(state: BlockState, tokens_BXL: Tensor) -> BlockState:
    """Each row once for each state of its block. A block that has a draft has been begun."""
    rows, num_states, length = tokens_BXL.shape
    index_Z = torch.arange(rows, device=tokens_BXL.device).repeat_interleave(num_states)
    copies = state.rows(index_Z)
    copies.canvas_BT = copies.canvas_BT.scatter(1, copies.positions_BL, tokens_BXL.view(-1, length))
    copies.block_step_B = torch.ones_like(copies.block_step_B)
    return copies
