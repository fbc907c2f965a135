"""Several blocks in flight (D2F, discrete diffusion forcing, Wang et al. 2025, 2508.09192).

A block need not be finished before the next one is begun. Two steps, drawn for blocks of four, `M` a mask, a-d
finished:

    prompt | a b c d | e M M h | i M M M |
    prompt | a b c d | e f M h | i M k M | M M M M |

All that is not cached is in one forward, in which each block sees itself and the blocks left of it; what is finished
rides along once more and is cached from then on. The last block was begun because the decided share of the one before
it, then the last, had reached `block_add_threshold`. A block is fully activated once its left neighbour's decided
share reaches `decoded_token_threshold`; the first block with a mask always is.

Every block reveals what is confident. A fully activated one reveals at least `min_tokens_per_step` a step, so that
the answer moves on; what a verifier has decided of it counts towards that number. The verifier's span, the first run
of masks, may reach from one block into the next.

Axes: B rows, L positions of all blocks in flight, N blocks, X all blocks of all rows, P positions of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s2d2cli.config import DecodeConfig, register, require
from s2d2cli.decode.state import BlockState, DraftStep
from s2d2cli.decode.unmask import by_block, first_by

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session


@register("unmask", "pipelined")
@dataclass
class Pipelined:
    """Reveal block by block what is more confident than `threshold` (published as skip_threshold), while up to
    `blocks_in_flight` blocks are at work; without that number as many as the answer has.

    The thresholds' defaults are those of the authors' demo as we remember them.
    """

    threshold: float = 0.9
    block_add_threshold: float = 0.1
    decoded_token_threshold: float = 0.95
    min_tokens_per_step: int = 1
    blocks_in_flight: int | None = None

    def validate(self) -> None:
        require(self.threshold >= 0, f"unmask.threshold must be 0 or more, got {self.threshold}")
        for name in ("block_add_threshold", "decoded_token_threshold"):
            share = getattr(self, name)
            require(0 < share <= 1, f"unmask.{name} is a share of a block, above 0 and at most 1, got {share}")
        for name in ("min_tokens_per_step", "blocks_in_flight"):
            number = getattr(self, name)
            require(number is None or number >= 1, f"unmask.{name} must be at least 1, got {number}")

    def check_run(self, config: RunConfig) -> None:
        verifier, decode = config.verifier, config.decode
        require(
            by_block(verifier),
            f"unmask=pipelined has blocks of its own in flight, so it needs verifier=self with verifier.form=aligned "
            f"and verifier.ahead=false, got verifier={getattr(verifier, 'kind', '?')}",
        )
        require(
            decode.context != "full",
            f"unmask=pipelined needs a model that attends by block, and model.family={config.model.family} attends "
            f"fully; use another unmask rule, or its D2F adapter (model=d2f-llada, d2f-dream)",
        )
        for key, value, needed in (
            ("denoising_steps", decode.denoising_steps, decode.block_length),
            ("sub_block_length", decode.sub_block_length, None),
            ("boundary", decode.boundary, "verified"),
        ):
            require(value == needed, f"unmask=pipelined decides by block; decode.{key} must be left out, got {value}")

    def idle(self, decode: DecodeConfig) -> dict[str, str]:
        alone = "one block in flight has no other before or behind it"
        names = ("block_add_threshold", "decoded_token_threshold") if self.blocks_in_flight == 1 else ()
        return dict.fromkeys(names, alone)

    @property
    def adds(self) -> bool:
        """Whether it reveals tokens beside those that a verification decided."""
        return self.blocks_in_flight != 1 or self.min_tokens_per_step > 1

    def blocks(self, block_length: int, new_tokens: int) -> int:
        """How many blocks may be in flight: no more than hold the answer, which may begin within one."""
        most = (new_tokens + 2 * block_length - 2) // block_length
        return min(most, self.blocks_in_flight or most)

    def start(self, session: Session) -> None:
        self.session = session
        self.end_B = torch.zeros_like(session.state.start_B)  # of what is in flight

    def keep(self, index_R: Tensor) -> None:
        self.end_B = self.end_B[index_R]

    def enter(self, index_R: Tensor) -> None:
        self.end_B[index_R] = 0

    def window_B(self, state: BlockState) -> Tensor:
        """How many positions are in flight now, after a block was added where one is due; called once a step. None is
        added behind a stop token: nobody would read it."""
        length = state.grid
        flight_B = (self.end_B - state.start_B).clamp(min=0)
        last_B1 = (flight_B // length - 1).clamp(min=0)[:, None]
        due_B = (flight_B == 0) | (self.decided_BN(state).gather(1, last_B1)[:, 0] >= self.block_add_threshold)
        due_B &= (flight_B < state.block_length) & (state.start_B + flight_B < state.end_B)
        due_B &= self.session.stop_position_B(state.start_B) >= state.canvas_BT.shape[1]
        flight_B = flight_B + length * due_B
        self.end_B = state.start_B + flight_B
        return flight_B

    def decided_BN(self, state: BlockState) -> Tensor:
        """The decided share of each block, float64."""
        decided_BL = state.tokens_BL != state.mask_id
        return decided_BL.view(len(decided_BL), state.blocks, -1).double().mean(2)

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        """The quota is this rule's own, a number for each block."""
        state = self.session.state
        left_XP, drafted_XP, confidence_XP = (
            tensor_BL.reshape(-1, state.block_length // state.blocks)
            for tensor_BL in (masked_BL, draft.masked_BL, draft.confidence_BL)
        )
        owed_X = self.owed_BN(state).flatten()
        verified_X = (drafted_XP & ~left_XP).sum(1)
        owed_X, met_X = owed_X - verified_X, (owed_X > 0) & (verified_X >= owed_X)
        sure_XP = left_XP & (confidence_XP > self.threshold)
        best_XP = first_by(-confidence_XP, left_XP, owed_X)
        chosen_XP = torch.where((sure_XP.sum(1) >= owed_X)[:, None], sure_XP, best_XP)
        return (chosen_XP & ~met_X[:, None]).view_as(masked_BL)

    def owed_BN(self, state: BlockState) -> Tensor:
        """How many tokens each block owes in this step: fully activated ones their number, the others none."""
        decided_BN = self.decided_BN(state)
        before_BN = torch.cat([torch.ones_like(decided_BN[:, :1]), decided_BN[:, :-1]], 1)
        return (before_BN >= self.decoded_token_threshold) * self.min_tokens_per_step
