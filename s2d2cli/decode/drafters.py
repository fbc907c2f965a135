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


class SelfDrafter:
    """The model itself, seeing the whole block."""

    def start(self, session: Session) -> None: ...

    def advance(self, verdict: Verdict) -> None: ...

    def keep(self, index_R: Tensor) -> None: ...

    def enter(self, index_R: Tensor) -> None: ...

    def draft(self, session: Session) -> DraftStep:
        state, sampler = session.state, session.sampler
        plan = session.layout.draft(state)
        logits_BLV = session.forward(plan, state.active_B)
        state.encoded_B = torch.where(state.active_B, session.layout.settled_B(state), state.encoded_B)
        uniform_BL = None if sampler.greedy else session.uniforms.draft(state)
        tokens_BL, confidence_BL = sampler.draw(logits_BLV, uniform_BL)
        estimator = session.decoder.estimator
        return DraftStep(tokens_BL, confidence_BL, logits_BLV, state.masked_BL, sampler, estimator)
