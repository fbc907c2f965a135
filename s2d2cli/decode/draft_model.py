"""Drafts by a second, smaller model. It denoises the block all by itself, by the run's unmask rule in at most
decode.denoising_steps forwards, and the target looks at the finished block.

It has a cache of its own. What it encoded of a draft stays in there as far as the draft was accepted.

Axes: B rows, L block positions, R rows that change, T canvas positions, V vocabulary.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from s2d2cli.config import need, require
from s2d2cli.decode.drafters import spread
from s2d2cli.decode.layout import Layout
from s2d2cli.decode.state import BlockState, DraftStep, Verdict, leading_count
from s2d2cli.decode.unmask import quota_B
from s2d2cli.models.plan import ForwardPlan, Kind

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session

FAR = 32  # each forward of a draft draws numbers of its own: those of steps 2 ** FAR apart, which no row ever makes

T = TypeVar("T")


def check_two_models(config: RunConfig) -> None:
    """What every decoder with a draft model needs."""
    kind, decode = config.verifier.kind, config.decode
    need(
        f"verifier={kind}",
        kind,
        ("router", config.router.kind, "always"),
        ("decode.commit", decode.commit, "pending"),
        ("decode.sub_block_length", decode.sub_block_length, None),
    )
    require(
        not hasattr(config.unmask, "start"),
        f"verifier={kind} drafts by a rule that remembers nothing between steps, got unmask={config.unmask.kind}; use "
        f"another unmask rule",
    )


class ModelDrafter:
    """The target's draft model; `DraftStep.time_BL` says which of its forwards revealed each token, and logits and
    confidence are those of that forward."""

    def start(self, session: Session) -> None:
        model, canvas_BT = session.model.draft_model, session.state.canvas_BT
        assert model is not None, "Decoder.check comes first"
        self.session, self.model = session, model
        num_rows, num_positions = canvas_BT.shape
        self.layout = Layout(session.decoder.settings, 1, num_positions, edits=False, shift=model.shift)
        self.cache = model.new_cache(num_rows, num_positions, self.layout.scratch)
        self.encoded_B = torch.zeros(num_rows, dtype=torch.long, device=model.device)
        self.seen_BT = canvas_BT.to(model.device, copy=True)  # the canvas of the last draft, and the draft in it

    def enter(self, index_R: Tensor) -> None:
        """The whole blocks of these rows' prompts are encoded."""
        session, index_R = self.session, index_R.to(self.model.device)
        session.meter.lap(Kind.PREFILL.value)
        mine = moved(session.state, self.model.device).rows(index_R)
        mine.encoded_B.zero_()
        plan = self.layout.encode(Kind.DRAFT_MODEL, mine, mine.active_B)
        if plan is not None:
            read_B = torch.zeros_like(self.encoded_B, dtype=torch.bool)
            read_B[index_R] = mine.start_B > 0
            self.count(plan, read_B)
            self.model.forward(plan, self.cache.window(index_R))
        self.encoded_B[index_R] = mine.start_B
        self.seen_BT[index_R] = mine.canvas_BT
        session.meter.lap(Kind.DRAFT_MODEL.value)

    def draft(self, session: Session) -> DraftStep:
        mine = self.begin(session.state)
        draft, number = self.empty(mine), 0
        while (found := self.layout.draft(mine, mine.masked_BL.any(1))) is not None:
            self.reveal(mine, draft, self.forward(mine, found), number)
            number += 1
        self.encoded_B, self.seen_BT = mine.encoded_B, mine.canvas_BT
        session.meter.lap(Kind.DRAFT_MODEL.value)
        return moved(draft, session.model.device)

    def begin(self, state: BlockState) -> BlockState:
        """A state of its own, with what its cache holds of this canvas."""
        mine = moved(state, self.model.device)
        mine.canvas_BT = mine.canvas_BT.clone()
        mine.encoded_B = torch.minimum(self.encoded_B, leading_count(mine.canvas_BT == self.seen_BT))
        mine.block_step_B = torch.zeros_like(mine.block_step_B)
        return mine

    def empty(self, mine: BlockState) -> DraftStep:
        """Every mask is to be drafted, and none is yet."""
        tokens_BL, no_BL = mine.tokens_BL, torch.zeros_like(mine.masked_BL)
        size, model, session = self.model.vocabulary.size, self.model, self.session
        return DraftStep(
            tokens_BL,
            torch.zeros_like(tokens_BL, dtype=torch.float32),
            torch.zeros(*tokens_BL.shape, size, dtype=model.dtype, device=model.device),
            mine.masked_BL,
            session.estimated,
            session.decoder.estimator,
            no_BL,
            time_BL=torch.zeros_like(tokens_BL),
        )

    def forward(self, mine: BlockState, found: tuple[ForwardPlan, Tensor]) -> Tensor:
        """The draft model's logits at the masks that are left, (B, L, V)."""
        plan, place_BR = found
        rows_B = mine.masked_BL.any(1)
        self.count(plan, rows_B)
        logits_BRV = self.model.forward(plan, self.cache)
        mine.encoded_B = torch.where(rows_B, self.layout.settled_B(mine), mine.encoded_B)
        return spread(logits_BRV, place_BR, mine.masked_BL)

    def count(self, plan: ForwardPlan, rows_B: Tensor) -> None:
        session = self.session
        plan = replace(plan, kind=Kind.DRAFT_MODEL)
        session.meter.forward(plan, rows_B.to(session.model.device), session.state.forwards_BK)

    def reveal(self, mine: BlockState, draft: DraftStep, logits_BLV: Tensor, number: int) -> None:
        """What the unmask rule reveals after the draft's forward of this number goes into `mine` and `draft`."""
        session, uniform_BL = self.session, None
        if not session.sampler.greedy:
            apart = replace(session.state, step_B=session.state.step_B + (number << FAR))
            uniform_BL = session.uniforms.draft(apart).to(self.model.device)
        tokens_BL, confidence_BL = session.sampler.draw(logits_BLV, uniform_BL)
        step = replace(
            draft, tokens_BL=tokens_BL, confidence_BL=confidence_BL, logits_BLV=logits_BLV, masked_BL=mine.masked_BL
        )
        steps, rule = session.decoder.settings.denoising_steps, session.decoder.unmask
        assert steps is not None and draft.time_BL is not None
        chosen_BL = rule.select(step, step.masked_BL, quota_B(rule, mine, step, steps))
        for kept, new in (
            (draft.tokens_BL, tokens_BL),
            (draft.confidence_BL, confidence_BL),
            (draft.logits_BLV, logits_BLV),
            (draft.time_BL, torch.full_like(tokens_BL, number)),
        ):
            kept[chosen_BL] = new[chosen_BL]
        mine.canvas_BT.scatter_(1, mine.positions_BL, torch.where(chosen_BL, tokens_BL, mine.tokens_BL))
        mine.block_step_B += 1

    def advance(self, verdict: Verdict) -> None: ...

    def keep(self, index_R: Tensor) -> None:
        index_R = index_R.to(self.model.device)
        self.cache = self.cache.rows(index_R)
        self.encoded_B, self.seen_BT = self.encoded_B[index_R], self.seen_BT[index_R]


def moved(found: T, device: torch.device) -> T:
    """The same with its tensors on that device."""
    values: dict[str, Any] = {f.name: getattr(found, f.name) for f in fields(found)}  # type: ignore[arg-type]
    tensors = {name: value.to(device) for name, value in values.items() if torch.is_tensor(value)}
    return replace(found, **tensors)  # type: ignore[type-var]
