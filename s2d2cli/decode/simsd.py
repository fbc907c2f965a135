"""SimSD (2606.02544): a draft model denoises the block, the target checks the whole draft in one forward of four
quadrants (quadrants.py draws it). Approximate: not the tokens of any decoder of the target alone.

Why it is none: the target judges each token in the sight of tokens that were drafted before it, also of such that it
then rejects, and with `mask=published` a token has a say in the judgement on itself. What the paper and its published
code disagree on: the code accepts in the order of positions and replaces the first rejected token; the text accepts in
the order of time, and lets the target denoise what is left when that is little, as `min_drafts` does (1: never).

Axes: B rows, L block positions, R drafted positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from s2d2cli.config import need, one_of, register, require
from s2d2cli.decode.acceptance import Window
from s2d2cli.decode.draft_model import ModelDrafter, check_two_models
from s2d2cli.decode.drafters import own_logits
from s2d2cli.decode.layout import host_ints
from s2d2cli.decode.quadrants import lay_out
from s2d2cli.decode.state import BlockState, Commit, DraftStep, Verdict
from s2d2cli.decode.verifiers import BlockVerifier, SelfVerifier
from s2d2cli.values import RIGHT_SHIFTED

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session


@register("verifier", "simsd")
@dataclass
class SimSD(BlockVerifier):
    """The target checks in one forward what a second model drafts, in the order in which it was drafted (SimSD).

    Greedy: the drafted token must be the target's likeliest. Sampled: accepted with probability min(1, q/p), the first
    rejected one drawn anew from (q - p)+. With `order=time` tokens behind a rejected one stay where they are accepted,
    and leave holes.
    """

    acceptance: ClassVar[str] = "matching"
    decides_all: ClassVar[bool] = True
    uses_draft_model: ClassVar[bool] = True
    rule: ClassVar[SelfVerifier] = SelfVerifier()  # how a window is judged

    mask: str = "published"  # "exact": without the leak, and without the masks that real denoising would see
    order: str = "position"  # "time": accept in the order in which the draft model revealed
    min_drafts: int = 2  # where fewer positions are left the target denoises them itself

    def validate(self) -> None:
        one_of("verifier.mask", self.mask, ("published", "exact"))
        one_of("verifier.order", self.order, ("position", "time"))
        require(self.min_drafts >= 1, f"verifier.min_drafts must be at least 1, got {self.min_drafts}")

    def check_run(self, config: RunConfig) -> None:
        check_two_models(config)
        need("verifier=simsd", "simsd", ("decode.context", config.decode.context, "block"))
        require(
            config.model.family not in RIGHT_SHIFTED,
            f"verifier=simsd reads a token's score at a mask in its place, and model.family={config.model.family} has "
            f"it one place further left; use decoder=draft_target",
        )

    def drafter(self) -> ModelDrafter:
        return FewLeftDrafter(self.min_drafts)

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        state = session.state
        checked_BL = draft.masked_BL & (verify_B & ~few_left_B(state, self.min_drafts))[:, None]
        places = self.in_order(draft, checked_BL)
        verified_B = checked_BL.any(1)
        if not places[0].shape[1]:
            return Verdict(Commit.nothing(draft.tokens_BL), verify_B.long() * 0, verified_B)
        plan = lay_out(session.layout, state, draft, places, self.mask == "exact")
        window = window_of(draft, state, places, session.forward(plan, verified_B))
        state.encoded_B = torch.where(verified_B, state.start_B, state.encoded_B)
        outcome = self.rule.judged(window, window.checked_BS, session)
        commit = self.rule.committed(draft, window, outcome, session)
        return Verdict(commit, outcome.accepted_BS.sum(1), verified_B, window)

    def in_order(self, draft: DraftStep, checked_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Places in the block in the order in which they are accepted, (B, R), and which are real: rows with fewer are
        filled up."""
        length = checked_BL.shape[1]
        place_L = torch.arange(length, device=checked_BL.device)
        assert draft.time_BL is not None
        key_BL = place_L + length * draft.time_BL if self.order == "time" else place_L.expand_as(checked_BL)
        behind_BL = key_BL.masked_fill(~checked_BL, torch.iinfo(torch.long).max)
        (num,) = host_ints(checked_BL.sum(1).max())
        place_BR = behind_BL.argsort(dim=1, stable=True)[:, :num]
        return place_BR, checked_BL.gather(1, place_BR)


class FewLeftDrafter(ModelDrafter):
    """The draft model; where fewer than `least` positions are left, the target itself."""

    def __init__(self, least: int) -> None:
        self.least = least

    def begin(self, state: BlockState) -> BlockState:
        mine = super().begin(state)
        mine.active_B = mine.active_B & ~few_left_B(mine, self.least)
        return mine

    def draft(self, session: Session) -> DraftStep:
        draft, few_B = super().draft(session), few_left_B(session.state, self.least)
        own_BLV = own_logits(session, few_B)
        if own_BLV is None:
            return draft
        uniform_BL = None if session.sampler.greedy else session.uniforms.draft(session.state)
        tokens_BL, confidence_BL = session.sampler.draw(own_BLV, uniform_BL)
        return replace(
            draft,
            tokens_BL=torch.where(few_B[:, None], tokens_BL, draft.tokens_BL),
            confidence_BL=torch.where(few_B[:, None], confidence_BL, draft.confidence_BL),
            logits_BLV=torch.where(few_B[:, None, None], own_BLV, draft.logits_BLV),
            masked_BL=session.state.masked_BL,
        )


def few_left_B(state: BlockState, least: int) -> Tensor:
    """Rows at work with fewer masks than that in their block."""
    return state.active_B & (state.masked_BL.sum(1) < least)


def window_of(draft: DraftStep, state: BlockState, places: tuple[Tensor, Tensor], target_BRV: Tensor) -> Window:
    """The drafts in the order in which they are accepted, as the target saw them."""
    place_BR, real_BR = places
    tokens_BR, prob_BR = (values_BL.gather(1, place_BR) for values_BL in (draft.tokens_BL, draft.confidence_BL))
    return Window(real_BR, real_BR, place_BR, state.start_B[:, None] + place_BR, tokens_BR, prob_BR, target_BRV)
