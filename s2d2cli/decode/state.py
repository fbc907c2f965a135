"""What a batch knows between forwards: the canvas, each row's current block, and what was proposed for it.

Axes: B rows, L positions of the current block, T canvas positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from s2d2cli.decode.sampling import Sampler, entropy, sliced

if TYPE_CHECKING:
    from s2d2cli.decode.acceptance import Window
    from s2d2cli.decode.estimators import AcceptanceEstimator


class Source(IntEnum):
    """How a token came to be."""

    UNDECIDED = 0
    PROMPT = 1
    UNMASKED = 2  # revealed by the unmask rule
    ACCEPTED = 3  # drafted, then accepted by the verifier
    RESAMPLED = 4  # drafted, rejected and replaced by the verifier
    THRESHOLD = 5  # drafted and kept for its ratio q/p, behind a rejection (verifier.ratio_threshold)
    HIGH_CONFIDENCE = 6  # drafted and kept for its confidence in a verified step (verifier.keep_confident)
    BONUS = 7  # the model's own next token: behind a draft that was accepted whole, or behind a committed block
    EDITED = 8  # drafted in place of a token that had been decided already (unmask=edit_tokens)


@dataclass(slots=True)
class Commit:
    """Tokens to write into the current block, where, and why."""

    tokens_BL: Tensor
    mask_BL: Tensor
    source_BL: Tensor  # int8 Source
    rank_BL: Tensor | None = None  # the order among the tokens of this step, from 0 on; None: all at once

    def add(self, tokens_BL: Tensor, mask_BL: Tensor, source: Source) -> Commit:
        """This commit and, where `mask_BL` holds, `tokens_BL` from `source`."""
        return Commit(
            torch.where(mask_BL, tokens_BL, self.tokens_BL),
            self.mask_BL | mask_BL,
            torch.where(mask_BL, int(source), self.source_BL).to(torch.int8),
            self.rank_BL,
        )

    @staticmethod
    def nothing(tokens_BL: Tensor) -> Commit:
        return Commit(
            tokens_BL, torch.zeros_like(tokens_BL, dtype=torch.bool), torch.zeros_like(tokens_BL).to(torch.int8)
        )


@dataclass(slots=True)
class Bonus:
    """A token for one position of each row where `mask_B` holds: inside the block, or the one behind it."""

    positions_B: Tensor
    tokens_B: Tensor
    mask_B: Tensor


@dataclass(slots=True)
class BlockState:
    """The canvas and each row's place in it. All per-row numbers are absolute positions unless they say otherwise."""

    canvas_BT: Tensor  # prompt, decided tokens and masks
    prompt_len_B: Tensor
    end_B: Tensor  # prompt length + max_new_tokens
    start_B: Tensor  # first position of the current block, a multiple of grid behind the grid's origin
    encoded_B: Tensor  # positions below have final keys and values in the cache
    active_B: Tensor
    step_B: Tensor  # forwards-with-a-decision this row has made: names its random numbers and its reveal order
    block_step_B: Tensor  # the same within the current block
    post_steps_B: Tensor  # those of them that met no mask
    quiet_B: Tensor  # bool: the last step met no mask and edited nothing
    reveal_step_BT: Tensor  # int32, the step that first decided each position; -1 for prompt and undecided
    order_BT: Tensor  # int32, how many tokens were decided before each; equal numbers were decided together
    decided_B: Tensor  # new tokens so far
    source_BT: Tensor  # int8 Source
    edits_BT: Tensor  # int32, how often each position was edited
    forwards_BK: Tensor  # forwards that each row took part in, by kind
    verified_B: Tensor  # steps that were verified
    window_B: Tensor  # so many positions are looked at together: block_length, or fewer where windows slide
    block_length: int  # the most positions that are looked at together
    blocks: int  # so many blocks, side by side
    sub_block: int  # of these so many are decided before the next ones are looked for
    grid: int  # where blocks may begin: at multiples of this, block_length or 1
    from_prompt: bool  # counted from the prompt's end; else from position 0
    mask_id: int

    @property
    def positions_BL(self) -> Tensor:
        return self.start_B[:, None] + torch.arange(self.block_length, device=self.start_B.device)

    @property
    def block_end_B(self) -> Tensor:
        return self.start_B + self.window_B

    @property
    def tokens_BL(self) -> Tensor:
        return self.canvas_BT.gather(1, self.positions_BL)

    @property
    def sub_block_BL(self) -> Tensor:
        """The block's part that holds its first mask; the last part of a full block."""
        part_L = torch.arange(self.block_length, device=self.start_B.device) // self.sub_block
        first_B = (self.first_masked_B - self.start_B).clamp(max=self.block_length - 1)
        return part_L == (first_B // self.sub_block)[:, None]

    @property
    def masked_BL(self) -> Tensor:
        """Undecided positions of the sub-block, in rows that are still at work."""
        inside_BL = (self.positions_BL < self.block_end_B[:, None]) & self.active_B[:, None]
        return (self.tokens_BL == self.mask_id) & self.sub_block_BL & inside_BL

    @property
    def generated_BL(self) -> Tensor:
        """The block's positions behind the prompt, of rows that are still at work."""
        return (self.positions_BL >= self.prompt_len_B[:, None]) & self.active_B[:, None]

    @property
    def first_masked_B(self) -> Tensor:
        """Absolute position of the block's first mask; of the first behind it when the block is full, with a bonus or
        without."""
        ahead_X = torch.arange(self.block_length + 1, device=self.start_B.device)
        return self.start_B + leading_count(self.canvas_BT.gather(1, self.start_B[:, None] + ahead_X) != self.mask_id)

    def block_ends_BX(self, positions_BX: Tensor) -> Tensor:
        """Where the block of each position ends."""
        origin_B1, length = self.origin_B[:, None], self.block_length // self.blocks
        return origin_B1 + ((positions_BX - origin_B1) // length + 1) * length

    @property
    def slides(self) -> bool:
        """Whether a window begins wherever the first mask is, not where a block does."""
        return self.grid < self.block_length // self.blocks

    @property
    def origin_B(self) -> Tensor:
        """Where the first block of the grid begins."""
        return self.prompt_len_B if self.from_prompt else torch.zeros_like(self.prompt_len_B)

    def on_grid_B(self, position_B: Tensor) -> Tensor:
        """The last place at or before these positions where a block may begin."""
        return self.origin_B + (position_B - self.origin_B) // self.grid * self.grid

    def rows(self, index_R: Tensor) -> BlockState:
        """The same for some of the rows."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        kept = {name: value[index_R] for name, value in values.items() if isinstance(value, Tensor)}
        return BlockState(**{**values, **kept})

    def begin(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
        """All rows start anew: prompts at position 0, masks behind them."""
        device = self.canvas_BT.device
        self.canvas_BT.fill_(self.mask_id)
        for row, prompt in enumerate(prompts):
            self.canvas_BT[row, : len(prompt)] = torch.tensor(prompt, device=device)
        self.prompt_len_B = torch.tensor([len(prompt) for prompt in prompts], device=device)
        self.end_B = self.prompt_len_B + new_tokens
        self.start_B = self.on_grid_B(self.prompt_len_B)
        is_prompt_BT = torch.arange(self.canvas_BT.shape[1], device=device) < self.prompt_len_B[:, None]
        self.source_BT = torch.where(is_prompt_BT, int(Source.PROMPT), int(Source.UNDECIDED)).to(torch.int8)
        self.reveal_step_BT.fill_(-1)
        self.active_B = torch.ones_like(self.active_B)
        self.window_B = torch.full_like(self.start_B, self.block_length)
        self.next_block(self.active_B)
        for counted in (
            *(self.encoded_B, self.step_B, self.forwards_BK, self.verified_B, self.edits_BT, self.order_BT),
            self.decided_B,
        ):
            counted.zero_()

    def next_block(self, rows_B: Tensor) -> None:
        """What is counted by block starts anew for these rows."""
        self.block_step_B = torch.where(rows_B, 0, self.block_step_B)
        self.post_steps_B = torch.where(rows_B, 0, self.post_steps_B)
        self.quiet_B = self.quiet_B & ~rows_B

    def put(self, index_R: Tensor, others: BlockState) -> None:
        """The rows of `others` take the place of these."""
        for f in fields(self):
            mine = getattr(self, f.name)
            if isinstance(mine, Tensor):
                mine[index_R] = getattr(others, f.name)

    def write(self, commit: Commit, bonus: Bonus | None) -> Tensor:
        """Decide tokens, and edit decided ones; else a decided token never changes. Returns how many were decided."""
        edited_BL = commit.mask_BL & (commit.source_BL == Source.EDITED)
        post_B = self.active_B & ~self.masked_BL.any(1)
        self.post_steps_B += post_B
        self.quiet_B = post_B & ~edited_BL.any(1)
        self._put(self.positions_BL, commit, self.step_B)
        self.edits_BT.scatter_add_(1, self.positions_BL, edited_BL.to(torch.int32))
        decided_B = (commit.mask_BL & ~edited_BL).sum(1)
        if bonus is not None:
            self.append(bonus, self.step_B)
            decided_B = decided_B + bonus.mask_B
        self.decided_B = self.decided_B + decided_B
        self.step_B += self.active_B
        self.block_step_B += self.active_B
        return decided_B

    def open_block(self, tokens_B: Tensor, rows_B: Tensor) -> None:
        """Decide the first token of these rows' block, if it is undecided and wanted, as part of the step before."""
        wanted_B = (self.canvas_BT.gather(1, self.start_B[:, None])[:, 0] == self.mask_id) & (self.start_B < self.end_B)
        mask_B = rows_B & wanted_B
        self.append(Bonus(self.start_B, tokens_B, mask_B), (self.step_B - 1).clamp(min=0))
        self.decided_B = self.decided_B + mask_B

    def append(self, bonus: Bonus, step_B: Tensor) -> None:
        mask_B1 = bonus.mask_B[:, None]
        source_B1 = torch.full_like(mask_B1, int(Source.BONUS), dtype=torch.int8)
        self._put(bonus.positions_B[:, None], Commit(bonus.tokens_B[:, None], mask_B1, source_B1), step_B)

    def _put(self, positions_BX: Tensor, commit: Commit, step_B: Tensor) -> None:
        step_BX = step_B[:, None].expand_as(positions_BX).to(torch.int32)
        first_BX = commit.mask_BL & (commit.source_BL != Source.EDITED)
        order_BX = self.decided_B[:, None] + (step_BX * 0 if commit.rank_BL is None else commit.rank_BL)
        for canvas_BT, new_BX, where_BX in (
            (self.canvas_BT, commit.tokens_BL, commit.mask_BL),
            (self.source_BT, commit.source_BL, commit.mask_BL),
            (self.reveal_step_BT, step_BX, first_BX),
            (self.order_BT, order_BX.to(torch.int32), first_BX),
        ):
            old_BX = canvas_BT.gather(1, positions_BX)
            canvas_BT.scatter_(1, positions_BX, torch.where(where_BX, new_BX, old_BX))


@dataclass
class DraftStep:
    """A proposal for every masked position of the current block; under an editing rule also for the decided ones."""

    tokens_BL: Tensor
    confidence_BL: Tensor  # float32, the drafter's probability of its own token
    logits_BLV: Tensor  # meaningful where there is a proposal
    masked_BL: Tensor
    sampler: Sampler  # what estimators make of the logits
    estimator: AcceptanceEstimator
    edits_BL: Tensor  # decided positions whose token the draft replaces
    step_B: Tensor | None = None  # the row's step whose forward made it; None: this one
    time_BL: Tensor | None = None  # of a draft that a second model made in several forwards: which one, from 0 on

    def first(self, count_B: Tensor) -> DraftStep:
        """The leftmost masks of it, so many in each row; the others count as not drafted."""
        return replace(self, masked_BL=self.masked_BL & (self.masked_BL.cumsum(1) <= count_B[:, None]))

    @property
    def broken_B(self) -> Tensor:
        """Rows whose scores are no numbers."""
        return (self.confidence_BL.isnan() & self.masked_BL).any(1)

    @property
    def span_BL(self) -> Tensor:
        """The first masked span: the leftmost maximal run of masks."""
        seen_BL = self.masked_BL.cumsum(1) > 0
        return self.masked_BL & ((seen_BL & ~self.masked_BL).cumsum(1) == 0)

    @cached_property
    def accept_prob_BL(self) -> Tensor:
        """The estimator's guess, in [0, 1]; computed only if somebody asks."""
        return self.estimator.accept_prob(self)

    @property
    def expected_accepted_B(self) -> Tensor:
        """E[K] of the first span: the sum over its prefixes of the product of acceptance probabilities."""
        span_BL = self.span_BL
        within_BL = self.accept_prob_BL.clamp(0, 1).masked_fill(~span_BL, 1.0)
        return (within_BL.cumprod(1) * span_BL).sum(1)

    @cached_property
    def entropy_BL(self) -> Tensor:
        """Entropy of each draft distribution in nats, float32."""
        return sliced(lambda logits_NV: (entropy(self.sampler.probs(logits_NV)),), self.logits_BLV)[0]


@dataclass(slots=True)
class Verdict:
    """What the verifier decided: tokens to write, per row how many drafts it accepted, and which rows it checked."""

    commit: Commit
    accepted_B: Tensor
    verified_B: Tensor
    window: Window | None = None  # what it looked at; None when no row was checked
    next_logits_BLV: Tensor | None = None  # a verdict may bring the next draft along: at the positions behind what it
    next_BL: Tensor | None = None  # decided, where this is True
    bonus: Bonus | None = None

    @property
    def broken_B(self) -> Tensor:
        """Rows whose scores are no numbers: where a hidden state is none, all of its logits are none, so two of them
        (one may be of a token that is never offered) tell."""
        if self.window is None:
            return torch.zeros_like(self.verified_B)
        return (self.window.target_BSV[..., :2].isnan().any(-1) & self.window.inside_BS).any(1)


def leading_count(flags_BX: Tensor) -> Tensor:
    """How many entries of each row are True before the first False, int64 (B,)."""
    return flags_BX.long().cumprod(1).sum(1)
