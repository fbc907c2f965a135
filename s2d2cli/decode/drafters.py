"""Drafters propose a token for every mask of the current block; the usual one makes a forward for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from s2d2cli.decode.state import DraftStep, Verdict

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


class Drafter(Protocol):
    """What a drafter remembers, it remembers per row, as routers do."""

    def start(self, session: Session) -> None: ...

    def draft(self, session: Session) -> DraftStep: ...

    def advance(self, verdict: Verdict) -> None:
        """What the verifier said of the draft, perhaps with the next one."""

    def keep(self, index_R: Tensor) -> None: ...

    def enter(self, index_R: Tensor) -> None: ...


class CarriedDrafter:
    """The draft that the last verdict brought along; where it brought none there is nothing to verify."""

    def start(self, session: Session) -> None:
        self.logits_BLV: Tensor | None = None
        self.carried_BL = torch.zeros_like(session.state.masked_BL)
        self.step_B = session.state.step_B.clone()  # of the last draft, whose verdict may have brought the next one

    def draft(self, session: Session) -> DraftStep:
        carried_BL = self.carried_BL & session.state.masked_BL
        return self.proposal(session, self.carried_logits(session), carried_BL)

    @property
    def carried_end_B(self) -> Tensor:
        """How far the carried draft reaches in its block."""
        place_L = torch.arange(1, self.carried_BL.shape[1] + 1, device=self.carried_BL.device)
        return (self.carried_BL * place_L).amax(1)

    def carried_logits(self, session: Session) -> Tensor:
        if self.logits_BLV is None:
            size, model = session.model.vocabulary.size, session.model
            self.logits_BLV = torch.zeros(*self.carried_BL.shape, size, dtype=model.dtype, device=model.device)
        return self.logits_BLV

    def proposal(self, session: Session, logits_BLV: Tensor, masked_BL: Tensor) -> DraftStep:
        sampler = session.sampler
        uniform_BL = None if sampler.greedy else session.uniforms.draft(session.state)
        tokens_BL, confidence_BL = sampler.draw(logits_BLV, uniform_BL)
        estimator, no_edits_BL = session.decoder.estimator, torch.zeros_like(masked_BL)
        step_B = torch.where(self.carried_BL.any(1), self.step_B, session.state.step_B)
        self.step_B = session.state.step_B.clone()
        return DraftStep(
            tokens_BL, confidence_BL, logits_BLV, masked_BL, session.estimated, estimator, no_edits_BL, step_B
        )

    def advance(self, verdict: Verdict) -> None:
        if verdict.next_BL is None:
            self.carried_BL = torch.zeros_like(self.carried_BL)
        else:
            self.logits_BLV, self.carried_BL = verdict.next_logits_BLV, verdict.next_BL

    def keep(self, index_R: Tensor) -> None:
        self.carried_BL, self.step_B = self.carried_BL[index_R], self.step_B[index_R]
        self.logits_BLV = None if self.logits_BLV is None else self.logits_BLV[index_R]

    def enter(self, index_R: Tensor) -> None:
        self.carried_BL[index_R] = False


class SelfDrafter(CarriedDrafter):
    """The model itself, seeing the whole block: a forward for the rows that have no draft yet."""

    def draft(self, session: Session) -> DraftStep:
        state = session.state
        carried_B = self.carried_BL.any(1)
        rows_B = state.active_B & ~carried_B
        state.window_B = session.window_B(state.start_B)
        if state.slides:  # such a window is as long as its draft
            state.window_B = torch.where(carried_B, self.carried_end_B, state.window_B)
        logits_BLV = own_logits(session, rows_B)
        if logits_BLV is None:
            return super().draft(session)
        if self.logits_BLV is not None:
            logits_BLV = torch.where(rows_B[:, None, None], logits_BLV, self.logits_BLV)
        draft = self.proposal(session, logits_BLV, state.masked_BL)
        if session.decoder.editor is not None:
            draft.edits_BL = session.decoder.editor.edits(draft, state)
        return draft


def own_logits(session: Session, rows_B: Tensor) -> Tensor | None:
    """What the session's model says of these rows' masks, (B, L, V), in a forward for them; None without any."""
    found = session.layout.draft(session.state, rows_B)
    if found is None:
        return None
    plan, place_BR = found
    logits_BRV, state = session.forward(plan, rows_B), session.state
    state.encoded_B = torch.where(rows_B, session.layout.settled_B(state), state.encoded_B)
    return spread(logits_BRV, place_BR, state.masked_BL)


def spread(logits_BRV: Tensor, place_BR: Tensor, like_BL: Tensor) -> Tensor:
    """Logits at their places in the block, (B, L, V), and zeros at the others."""
    empty_BLV = logits_BRV.new_zeros(*like_BL.shape, logits_BRV.shape[-1])
    return empty_BLV.scatter(1, place_BR[..., None].expand_as(logits_BRV), logits_BRV)
