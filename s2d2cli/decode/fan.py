"""One forward for verification and the next draft: verify masks, and a fan of draft branches.

A step knows S drafted tokens d behind the first undecided position p. Whatever number k of them is accepted, position
p + k gets its token from the verifier, and the next draft begins at p + k + 1. So the same forward carries a branch of
masks for every k, which sees exactly the tokens left of p + k, and the verdict picks one: no draft forward is needed.

              cache  d0 d1 | V0 V1 V2 | 0: M0 M1 M2 | 1: M1 M2 M3 | 2: M2 M3 M4      drawn for S = 2, 3 masks a branch
    d0          x     x  . |          |             |             |
    d1          x     x  x |          |             |             |
    V0          x     .  . |  x  .  . |             |             |      Vi: what block length one says of p + i
    V1          x     x  . |  .  x  . |             |             |
    V2          x     x  x |  .  .  x |             |             |      V2 is beyond the last draft: a bonus token
    branch 0    x     .  . |          |   x  x  x   |             |      the first mask stands for the token that the
    branch 1    x     x  . |          |             |   x  x  x   |      verifier is about to decide; only the masks
    branch 2    x     x  x |          |             |             |  x  x  x        behind it are the next draft

The data rows are causal and stay in the cache; all masks go to scratch slots. A right-shifted model needs no Vi: it
scores p + i by the data row in front of it.

Axes: B rows, L window positions, K branches (as many as L), J masks of a branch, N masks of all branches, packed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2d2cli.decode.layout import PADDING_SLOT, Layout, host_ints, take
from s2d2cli.decode.state import BlockState, DraftStep
from s2d2cli.models.plan import ForwardPlan, Kind, rows_between


@dataclass
class Fan:
    """The forward as a plan that reads the verifier at each draft and behind them, and where each branch stands."""

    plan: ForwardPlan
    num_drafts_B: Tensor
    length_BK: Tensor  # masks of each branch; 0: it was left out
    place_BKJ: Tensor  # their rows of the plan

    def branch(self, accepted_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Rows of the branch for this many accepted drafts without its first mask, (B, width), and which are real."""
        chosen_B11 = accepted_B[:, None, None].expand(-1, 1, self.place_BKJ.shape[2])
        place_BJ = self.place_BKJ.gather(1, chosen_B11)[:, 0, 1 : width + 1]
        num_B = self.length_BK.gather(1, accepted_B[:, None]) - 1
        real_BJ = torch.arange(place_BJ.shape[1], device=num_B.device) < num_B
        missing = width - place_BJ.shape[1]
        pad = torch.nn.functional.pad
        return pad(place_BJ, (0, missing)), pad(real_BJ, (0, missing))


def lay_out(layout: Layout, state: BlockState, draft: DraftStep, length_BK: Tensor) -> Fan:
    """The forward of one step. `length_BK` says how many masks each branch has."""
    start_B, num_B = state.start_B, draft.masked_BL.sum(1)
    low_B = layout.low_B(state, start_B)
    high_B = torch.where(state.active_B, start_B + num_B, low_B)
    num_drafts, longest, packed, width, extent = host_ints(
        num_B.max(), length_BK.max(), length_BK.sum(1).max(), (high_B - low_B).max(), high_B.max()
    )
    filled_BL = torch.where(draft.masked_BL, draft.tokens_BL, state.tokens_BL)
    filled_BT = state.canvas_BT.scatter(1, state.positions_BL, filled_BL)
    data_BQ, data_real_BQ = rows_between(low_B, high_B, width)
    num_verify = 0 if layout.shift else num_drafts + 1
    masks_BV, masks_real_BV = rows_between(start_B, start_B + num_B + 1, num_verify)
    masks_real_BV &= state.active_B[:, None]
    branch_BN, ahead_BN, fan_real_BN, place_BKJ = pack(length_BK, longest, packed)
    fan_BN = start_B[:, None] + branch_BN + ahead_BN
    positions_BQ = torch.cat([data_BQ, masks_BV, fan_BN], 1)
    real_BQ = torch.cat([data_real_BQ, masks_real_BV, fan_real_BN], 1)
    horizon_BQ = torch.cat([data_BQ + 1, masks_BV, start_B[:, None] + branch_BN], 1)
    num_masks = num_verify + packed
    scratch_BM = torch.arange(1, num_masks + 1, device=low_B.device).expand(len(low_B), -1)
    slots_BQ = torch.cat([layout.scratch + data_BQ, scratch_BM], 1)
    visible_BQT = layout.visible(slots_BQ, horizon_BQ, real_BQ, extent)
    together_BNN = (branch_BN[:, :, None] == branch_BN[:, None]) & fan_real_BN[:, :, None] & fan_real_BN[:, None]
    visible_BQT[:, width + num_verify :, num_verify + 1 : num_masks + 1] |= together_BNN
    masks_BM = torch.full_like(scratch_BM, state.mask_id)
    first_B = start_B - low_B if layout.shift else torch.full_like(low_B, width)
    plan = ForwardPlan(
        Kind.VERIFY,
        torch.cat([take(filled_BT, data_BQ), masks_BM], 1),
        positions_BQ,
        torch.where(real_BQ, slots_BQ, PADDING_SLOT),
        visible_BQT,
        (first_B[:, None] + torch.arange(num_drafts + 1, device=low_B.device)).clamp(max=positions_BQ.shape[1]),
    )
    return Fan(plan, num_B, length_BK, width + num_verify + place_BKJ)


def pack(length_BK: Tensor, longest: int, packed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Branches of different lengths one behind the other: for each of the N masks its branch, how far it is from the
    branch's first, and whether it is real; and for each branch the places of its masks, (B, K, J)."""
    num_rows, num_branches = length_BK.shape
    ahead_J = torch.arange(longest, device=length_BK.device)
    real_BX = (ahead_J < length_BK[..., None]).flatten(1)
    order_BX = (~real_BX).long().argsort(dim=1, stable=True)
    place_BKJ = order_BX.argsort(dim=1).view(num_rows, num_branches, longest).clamp(max=max(packed - 1, 0))
    order_BN = order_BX[:, :packed]
    return order_BN // max(longest, 1), order_BN % max(longest, 1), real_BX.gather(1, order_BN), place_BKJ
