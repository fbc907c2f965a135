"""The forwards of models that attend fully (LLaDA, Dream): every row sees the prompt and all that is to come after it.

The canvas ends at prompt + max_new_tokens, so a token depends on how many are wanted. Blocks (decode.block_length) only
say what is decided next: they begin behind the prompt, and the last may be shorter. A token that is decided changes the
keys and values of all others, so nothing is ever final, and what is kept from one step to the next is stale.
`decode.cache` says which rows a step computes anew; all rows see all slots:

                     prompt   block 1 (done)   block at work   masks behind
    none             x        x                x               x              exact: the model as it was trained
    prefix           .        .                x               x              approximate
    dual             .        .                x               .              approximate, and the cheapest
    a block's first  x        x                x               x              refreshes the cache of prefix and dual

Prefix and dual are those of Fast-dLLM (Wu et al. 2025). A right-shifted model (Dream) needs the row left of the block
for its first token, so that row is computed anew with it; the published code writes that token in the first step
instead, whatever its confidence.

Axes: B rows, Q query tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2d2cli.decode.layout import Layout
from s2d2cli.decode.state import BlockState
from s2d2cli.models.plan import ForwardPlan, Kind


@dataclass(frozen=True)
class FullLayout(Layout):
    """Its answers where every row sees the whole canvas."""

    @property
    def pending(self) -> bool:
        return True

    def settled_B(self, state: BlockState) -> Tensor:
        return torch.zeros_like(state.start_B)

    def horizon_BQ(self, positions_BQ: Tensor, state: BlockState) -> Tensor:
        return state.end_B[:, None].expand_as(positions_BQ)

    def draft_rows(self, state: BlockState) -> tuple[Tensor, Tensor, Tensor]:
        keeps_B = (state.block_step_B > 0) & (self.settings.cache != "none")
        low_B = torch.where(keeps_B, state.start_B - self.shift, 0)
        high_B = torch.where(keeps_B & (self.settings.cache == "dual"), state.block_end_B, state.end_B)
        return low_B, high_B, state.end_B

    def encode(self, kind: Kind, state: BlockState, rows_B: Tensor) -> ForwardPlan | None:
        """Nothing can be encoded ahead of a draft."""
        return None
