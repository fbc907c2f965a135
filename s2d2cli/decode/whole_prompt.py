"""The forwards of models whose prompt attends to itself fully and whose answer attends by block, which is how discrete
diffusion forcing (D2F, Wang et al. 2025) trains LLaDA and Dream:

              p p p | 1 1 | 2 2        prompt of three, blocks of two, counted from the prompt's end
        p     x x x | . . | . .
        1     x x x | x x | . .
        2     x x x | x x | x x

So the prompt and each finished block have final keys and values, and the cache is exact. The contexts of layout.py say
the rest: causal tokens of the answer see the whole prompt, too, which is this model's autoregressive mode.

Axes: B rows, Q query tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2d2cli.decode.layout import Layout
from s2d2cli.decode.state import BlockState


@dataclass(frozen=True)
class WholePromptLayout(Layout):
    """Its answers where the prompt's rows see the prompt."""

    def horizon_BQ(self, positions_BQ: Tensor, state: BlockState) -> Tensor:
        prompt_B1 = state.prompt_len_B[:, None]
        return torch.where(positions_BQ < prompt_B1, prompt_B1, super().horizon_BQ(positions_BQ, state))
