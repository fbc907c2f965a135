"""The forward in which SimSD's target looks at a draft: four quadrants of drafted tokens D and masks M.

Every drafted token stands in the forward once as itself and once as a mask at the same position, and the mask's logits
judge it. Who sees whom goes by the time at which the draft model revealed each: a mask sees what had been revealed
before its own token, and masks where the draft still had masks then. The tokens a b that are decided already see each
other alone. Drawn for three drafted tokens, the second revealed at time 0 and the two others together at time 1:

               cache | a b | D1 D2 D3 | M1 M2 M3
    a             x  | x x | .  .  .  | .  .  .
    b             x  | x x | .  .  .  | .  .  .
    D1  time 1    x  | x x | x  x  x  | .  .  .       D sees D of its time and before, M of later times
    D2  time 0    x  | x x | .  x  .  | x  .  x
    D3  time 1    x  | x x | x  x  x  | .  .  .
    M1  time 1    x  | x x | .  x  .  | x  .  x       M sees D of times before, M of its time and later
    M2  time 0    x  | x x | .  .  .  | x  x  x
    M3  time 1    x  | x x | .  x  .  | x  .  x

This is the published mask, and it leaks: through two layers a mask learns the very token that it judges (M2 sees M1,
which sees D2), unless that was the last to be revealed. `exact` closes the leak: no M is seen but by itself.

Axes: B rows, L block positions, Q query tokens, R masks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from s2d2cli.decode.layout import PADDING_SLOT, Layout, host_ints, take
from s2d2cli.decode.state import BlockState, DraftStep
from s2d2cli.models.plan import ForwardPlan, Kind, rows_between

EARLIER, DECIDED = -2, -1  # in place of a time


def lay_out(
    layout: Layout, state: BlockState, draft: DraftStep, places: tuple[Tensor, Tensor], exact: bool
) -> ForwardPlan:
    """[tokens not encoded yet | the block with the draft in it | a mask at each of the places], reading the masks.

    `places` are those of the drafted positions in the block, (B, R), and whether each is real; where none of a row is,
    the row is padding.
    """
    assert not layout.shift and draft.time_BL is not None, "SimSD.check_run comes first"
    place_BR, real_BR = places
    low_B, start_B1 = layout.low_B(state, state.start_B), state.start_B[:, None]
    high_B = torch.where(real_BR.any(1), state.block_end_B, low_B)
    width, extent = host_ints((high_B - low_B).max(), high_B.max())
    data_BQ, data_real_BQ = rows_between(low_B, high_B, width)
    in_block_BQ = data_BQ >= start_B1
    time_BL = torch.where(draft.masked_BL, draft.time_BL, DECIDED)
    time_BQ = time_BL.gather(1, (data_BQ - start_B1).clamp(0, time_BL.shape[1] - 1))
    num_masks = place_BR.shape[1]
    positions_BQ = torch.cat([data_BQ, start_B1 + place_BR], 1)
    real_BQ = torch.cat([data_real_BQ, real_BR], 1)
    time_BQ = torch.cat([torch.where(in_block_BQ, time_BQ, EARLIER), draft.time_BL.gather(1, place_BR)], 1)
    mask_Q = torch.arange(width + num_masks, device=low_B.device) >= width
    scratch_BR = torch.arange(1, num_masks + 1, device=low_B.device).expand_as(place_BR)
    slots_BQ = torch.where(real_BQ, torch.cat([layout.scratch + data_BQ, scratch_BR], 1), PADDING_SLOT)
    before_BQ = torch.where(time_BQ == EARLIER, layout.horizon_BQ(positions_BQ, state), start_B1)
    visible_BQT = layout.visible(slots_BQ, before_BQ, real_BQ, extent)
    sees_BQQ = quadrants(time_BQ, mask_Q, exact) & real_BQ[:, None] & real_BQ[..., None]
    index_BQQ = slots_BQ[:, None].expand_as(sees_BQQ)
    visible_BQT |= torch.zeros_like(visible_BQT).scatter(2, index_BQQ, sees_BQQ)
    filled_BL = torch.where(draft.masked_BL, draft.tokens_BL, state.tokens_BL)
    filled_BT = state.canvas_BT.scatter(1, state.positions_BL, filled_BL)
    return ForwardPlan(
        Kind.VERIFY,
        torch.cat([take(filled_BT, data_BQ), torch.full_like(place_BR, state.mask_id)], 1),
        positions_BQ,
        slots_BQ,
        visible_BQT,
        (width + torch.arange(num_masks, device=low_B.device)).expand_as(place_BR),
    )


def quadrants(time_BQ: Tensor, mask_Q: Tensor, exact: bool) -> Tensor:
    """Which rows of the block see which, by their times and whether they are masks, (B, Q, Q); earlier rows take no
    part in it. A token that is decided came before all times."""
    mine_BQ1, other_B1Q = time_BQ[..., None], time_BQ[:, None]
    tokens_BQQ = torch.where(mask_Q[:, None], other_B1Q < mine_BQ1, other_B1Q <= mine_BQ1)
    masks_BQQ = torch.where(mask_Q[:, None], other_B1Q >= mine_BQ1, (other_B1Q > mine_BQ1) & (mine_BQ1 >= 0))
    if exact:
        masks_BQQ = torch.eye(len(mask_Q), dtype=torch.bool, device=mask_Q.device).expand_as(masks_BQQ)
    sees_BQQ = torch.where(mask_Q, masks_BQQ, tokens_BQQ)
    return sees_BQQ & (mine_BQ1 > EARLIER) & (other_B1Q > EARLIER)
