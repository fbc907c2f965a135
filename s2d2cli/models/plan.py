"""One forward pass as data. Every algorithm is a way to lay out rows; see decode/layout.py for the layouts.

Axes: B rows of the batch, Q query tokens of this pass, R rows whose logits are wanted, T cache slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.nn.functional import pad


class Kind(str, Enum):
    """Why a forward is made; forwards are counted by kind."""

    PREFILL = "prefill"
    DRAFT = "draft"
    VERIFY = "verify"
    COMMIT = "commit"
    DRAFT_MODEL = "draft_model"  # whatever a second model computes, its prefill too


@dataclass(slots=True)
class ForwardPlan:
    """The tensors of one forward pass (int64, visible bool).

    Slot and position are different things: a token at `position` is stored at slot `scratch + position`; rows that
    must not last, such as the verifier's masks, take one of the `scratch` slots in front. What a row may attend to is
    decided by `visible` alone, so a slot with stale contents is harmless as long as no row sees it.
    Each row of `visible` has at least one True (padding rows see themselves), so no softmax is empty.
    """

    kind: Kind
    tokens_BQ: Tensor
    positions_BQ: Tensor
    slots_BQ: Tensor
    visible_BQT: Tensor
    read_BR: Tensor  # indices into Q; R may be 0 when only the cache is wanted


def joined(first: ForwardPlan, second: ForwardPlan) -> ForwardPlan:
    """One forward with the rows of both, which do not see each other; the first's kind, and its logits first."""
    slots, width = (max(one.visible_BQT.shape[-1] for one in (first, second)), first.tokens_BQ.shape[1])
    pairs = zip(
        (first.tokens_BQ, first.positions_BQ, first.slots_BQ, first.read_BR),
        (second.tokens_BQ, second.positions_BQ, second.slots_BQ, second.read_BR + width),
        strict=True,
    )
    tokens_BQ, positions_BQ, slots_BQ, read_BR = (torch.cat(pair, 1) for pair in pairs)
    visible = (pad(one.visible_BQT, (0, slots - one.visible_BQT.shape[-1])) for one in (first, second))
    return ForwardPlan(first.kind, tokens_BQ, positions_BQ, slots_BQ, torch.cat(list(visible), 1), read_BR)


def rows_between(low_B: Tensor, high_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Positions `low, low + 1, ...` of each batch row and whether they lie below `high`: (positions_BQ, real_BQ)."""
    positions_BQ = low_B[:, None] + torch.arange(width, device=low_B.device)
    return positions_BQ, positions_BQ < high_B[:, None]
