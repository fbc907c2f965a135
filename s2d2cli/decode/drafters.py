"""Drafters: one forward that proposes a token for every mask of the current block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from s2d2cli.decode.state import DraftStep

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


class SelfDrafter:
    """The model itself, seeing the whole block."""

    def draft(self, session: Session) -> DraftStep:
        state, sampler = session.state, session.sampler
        plan = session.layout.draft(state)
        logits_BLV = session.forward(plan, state.active_B)
        state.encoded_B = torch.where(state.active_B, session.layout.settled_B(state), state.encoded_B)
        uniform_BL = None if sampler.greedy else session.uniforms.draft(state)
        tokens_BL, confidence_BL = sampler.draw(logits_BLV, uniform_BL)
        estimator = session.decoder.estimator
        return DraftStep(tokens_BL, confidence_BL, logits_BLV, state.masked_BL, sampler, estimator)
