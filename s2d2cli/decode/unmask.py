"""Unmask rules: which masked positions plain block diffusion reveals in a step.

A rule gets a quota, the tokens that the step still owes: denoising_steps spread over the block, less what a verifier
has decided already. It selects exactly that many; the dynamic and the entropy-bounded rule may take more. `EditTokens`
also changes decided tokens until their block is finished.

Axes: B rows, L block positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

from s2d2cli.config import register, require
from s2d2cli.decode.state import BlockState, Commit, DraftStep, Source

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.verifiers import Verifier


class UnmaskRule(Protocol):
    """A rule that remembers has `start`, `keep` and `enter` besides, as routers do."""

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        """bool (B, L): positions to reveal, all of them masked; none where the quota is 0."""


@register("unmask", "sequential")
@dataclass
class Sequential:
    """Reveal the leftmost masks."""

    one_by_one: ClassVar[str] = "sequential"  # never more than it owes; with one token a step it is this decoder

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        return masked_BL & (masked_BL.cumsum(1) <= quota_B[:, None])


@register("unmask", "low_confidence_static")
@dataclass
class LowConfidenceStatic:
    """Reveal the most confident masks, exactly the quota (the low-confidence ones stay masked, hence the name)."""

    one_by_one: ClassVar[str] = "static"

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        return first_by(-draft.confidence_BL, masked_BL, quota_B)


@register("unmask", "low_confidence_dynamic")
@dataclass
class LowConfidenceDynamic:
    """Reveal every mask whose confidence exceeds the threshold; if these are fewer than the quota, as static does."""

    threshold: float = 0.85

    def validate(self) -> None:
        require(self.threshold >= 0, f"unmask.threshold must be 0 or more, got {self.threshold}")

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        high_BL = masked_BL & (draft.confidence_BL > self.threshold)
        return at_least(high_BL, first_by(-draft.confidence_BL, masked_BL, quota_B), quota_B)


@register("unmask", "edit_tokens")
@dataclass
class EditTokens(LowConfidenceDynamic):
    """Reveal as the dynamic rule does, and replace decided tokens that the draft would now decide otherwise with a
    confidence above `edit_threshold` (LLaDA2.1). The prompt is never edited.

    A full block gets up to `max_post_steps` further steps, until one edits nothing. So a block takes at most
    block length / `num_to_transfer` steps (rounded up) and `max_post_steps` more, whatever the model predicts. With a
    verifier what it decided may be edited too: the answer is not that of autoregressive decoding.
    """

    threshold: float = 0.95
    edit_threshold: float = 0.9
    num_to_transfer: int = 1  # tokens that a step owes, in place of decode.denoising_steps
    max_post_steps: int = 16

    def validate(self) -> None:
        super().validate()
        require(self.edit_threshold >= 0, f"unmask.edit_threshold must be 0 or more, got {self.edit_threshold}")
        require(self.num_to_transfer >= 1, f"unmask.num_to_transfer must be at least 1, got {self.num_to_transfer}")
        require(self.max_post_steps >= 0, f"unmask.max_post_steps must be 0 or more, got {self.max_post_steps}")

    def check_run(self, config: RunConfig) -> None:
        verifier, decode = config.verifier, config.decode
        require(
            by_block(verifier),
            f"unmask=edit_tokens may edit a block until it is finished, so it needs verifier=self with "
            f"verifier.form=aligned and verifier.ahead=false, got verifier={getattr(verifier, 'kind', '?')}",
        )
        require(
            decode.denoising_steps == decode.block_length,
            f"unmask=edit_tokens decides at least unmask.num_to_transfer tokens a step, so decode.denoising_steps must "
            f"be left out, got {decode.denoising_steps}",
        )
        require(
            decode.context != "full",
            f"unmask=edit_tokens needs a model trained to edit, and model.family={config.model.family} was not; "
            f"use another unmask rule",
        )

    def edits(self, draft: DraftStep, state: BlockState) -> Tensor:
        """bool (B, L): decided positions that get the draft's token."""
        decided_BL = state.generated_BL & (state.tokens_BL != state.mask_id)
        return decided_BL & (draft.confidence_BL > self.edit_threshold) & (draft.tokens_BL != state.tokens_BL)

    def finished_B(self, state: BlockState) -> Tensor:
        """Rows whose block, if it is full, gets no further step."""
        return state.quiet_B | (state.post_steps_B >= self.max_post_steps)


@register("unmask", "entropy_bounded")
@dataclass
class EntropyBounded:
    """Reveal the masks of least entropy as long as their entropies, the largest left out, sum to at most `gamma` nats.

    That sum bounds what revealing them together can cost against revealing them one after the other (EB-Sampler,
    Ben-Hamu et al. 2025). The rules of this name in SDAR and JetEngine count the largest too: `whole_sum`. (SDAR's also
    sums over positions instead of the vocabulary, a fault that is not repeated here.)
    """

    gamma: float = 0.1
    whole_sum: bool = False

    def validate(self) -> None:
        require(self.gamma >= 0, f"unmask.gamma must be 0 or more, got {self.gamma}")

    def select(self, draft: DraftStep, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
        ranked_BL, order_BL = draft.entropy_BL.masked_fill(~masked_BL, torch.inf).sort(dim=1, stable=True)
        finite_BL = ranked_BL.nan_to_num(posinf=0.0)
        sum_BL = finite_BL.cumsum(1) if self.whole_sum else finite_BL.cumsum(1) - finite_BL
        within_BL = (sum_BL <= self.gamma) & ranked_BL.isfinite()
        bounded_BL = torch.zeros_like(masked_BL).scatter(1, order_BL, within_BL)
        return at_least(bounded_BL, first_by(draft.entropy_BL, masked_BL, quota_B), quota_B)


def by_block(verifier: Verifier) -> bool:
    """Whether it decides block after block, and lets nothing of the next one ride along."""
    windows = getattr(verifier, "decides_all", False) or getattr(verifier, "form", "") == "sliding"
    return not windows and not getattr(verifier, "ahead", False)


def first_by(key_BL: Tensor, masked_BL: Tensor, quota_B: Tensor) -> Tensor:
    """The `quota` masks with the smallest key; ties go to the left."""
    order_BL = key_BL.masked_fill(~masked_BL, torch.inf).argsort(dim=1, stable=True)
    return masked_BL & (order_BL.argsort(dim=1) < quota_B[:, None])


def at_least(wanted_BL: Tensor, quota_BL: Tensor, quota_B: Tensor) -> Tensor:
    """`wanted` where it fills the quota, else the quota's own choice; nothing where the quota is 0."""
    enough_B = (wanted_BL.sum(1) >= quota_B) & (quota_B > 0)
    return torch.where(enough_B[:, None], wanted_BL, quota_BL)


def quota_B(rule: UnmaskRule, state: BlockState, draft: DraftStep, denoising_steps: int) -> Tensor:
    """Tokens this step must decide: the rule's own number, or L // S, one more in the first L % S steps; never more
    than there are masks."""
    base, remainder = divmod(state.block_length, denoising_steps)
    wanted_B = base + (state.block_step_B < remainder).long()
    if isinstance(rule, EditTokens):
        wanted_B = torch.full_like(wanted_B, rule.num_to_transfer)
    return torch.minimum(wanted_B, draft.masked_BL.sum(1))


def reveal(rule: UnmaskRule, draft: DraftStep, commit: Commit, quota_B: Tensor) -> Commit:
    """`commit`, what `rule` adds where it falls short of the quota, and the draft's edits."""
    left_BL = draft.masked_BL & ~commit.mask_BL
    owed_B = (quota_B - commit.mask_BL.sum(1)).clamp(min=0)
    commit = commit.add(draft.tokens_BL, rule.select(draft, left_BL, owed_B), Source.UNMASKED)
    return commit.add(draft.tokens_BL, draft.edits_BL, Source.EDITED)
