"""Looking on while a session decodes: every step's decision, and every token's story.

Axes: B rows, L block positions, S window positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from s2d2cli.decode.state import Bonus, Commit, DraftStep, Source, Verdict

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


class Observer(Protocol):
    def observe(self, session: Session, draft: DraftStep, verdict: Verdict, commit: Commit) -> None:
        """Called in each step, before `commit` is written."""


class Unobserved:
    def observe(self, session: Session, draft: DraftStep, verdict: Verdict, commit: Commit) -> None: ...


class StepLog:
    """Plain rows per sample: `steps[sample_id]` is a list of {step, block, forwards, span, score, expected, verified,
    accepted, tokens}. `forwards` counts the row's own up to this decision, prefill included. Each token has its
    position, id, source, the id that an edit replaced (else null), the step whose forward proposed it (`step` is the
    one that decided it), which of a draft model's forwards in that step it was (null without one), its order among the
    step's tokens (equal: together), and the probabilities that drafter and verifier gave to the drafted token (null
    where nobody verified). Asks the estimator in each step, so it costs time."""

    def __init__(self) -> None:
        self.steps: dict[str, list[dict[str, Any]]] = {}

    def observe(self, session: Session, draft: DraftStep, verdict: Verdict, commit: Commit) -> None:
        state, router = session.state, session.decoder.router
        columns = {
            "step": state.step_B,
            "block": (state.start_B - state.origin_B) // (session.decoder.settings.block_length or 1),
            "forwards": state.forwards_BK.sum(1),
            "span": draft.span_BL.sum(1),
            "score": router.score_B(draft) if hasattr(router, "score_B") else None,
            "expected": draft.expected_accepted_B,
            "verified": verdict.verified_B,
            "accepted": verdict.accepted_B,
        }
        on_host = {name: None if column is None else column.tolist() for name, column in columns.items()}
        tokens = self._tokens(session, draft, verdict, commit)
        for row, active in enumerate(state.active_B.tolist()):
            if active:
                entry = {name: None if column is None else column[row] for name, column in on_host.items()}
                sample = session.requests[session.live[row]].sample_id
                self.steps.setdefault(sample, []).append(entry | {"tokens": tokens[row]})

    def _tokens(
        self, session: Session, draft: DraftStep, verdict: Verdict, commit: Commit
    ) -> list[list[dict[str, Any]]]:
        columns = (
            session.state.positions_BL,
            commit.tokens_BL,
            commit.source_BL,
            session.state.tokens_BL,
            draft.confidence_BL,
            self._verify_prob(session, draft, verdict),
            self._proposed(session, draft, commit),
            torch.zeros_like(commit.tokens_BL) if commit.rank_BL is None else commit.rank_BL,
            torch.full_like(commit.tokens_BL, -1) if draft.time_BL is None else draft.time_BL,
        )
        rows: list[list[dict[str, Any]]] = [[] for _ in session.live]
        values = [column.tolist() for column in columns]
        for row, place in commit.mask_BL.nonzero().tolist():
            position, token, source, was, drafted, verified, proposed, rank, time = (c[row][place] for c in values)
            rows[row].append(
                {
                    "position": position,
                    "token": token,
                    "source": Source(source).name.lower(),
                    "was": was if source == Source.EDITED else None,
                    "proposed_step": proposed,
                    "proposed_at": time if time >= 0 and source != Source.RESAMPLED else None,
                    "order": rank,
                    "draft_prob": drafted,
                    "verify_prob": None if verified != verified else verified,
                }
            )
        if verdict.bonus is not None:
            for row in verdict.bonus.mask_B.nonzero()[:, 0].tolist():
                rows[row].append(self._bonus(verdict.bonus, row, int(session.state.step_B[row])))
        return rows

    def _bonus(self, bonus: Bonus, row: int, step: int) -> dict[str, Any]:
        return {
            "position": int(bonus.positions_B[row]),
            "token": int(bonus.tokens_B[row]),
            "source": Source.BONUS.name.lower(),
            "proposed_step": step,
            "order": 0,
            **dict.fromkeys(("was", "proposed_at", "draft_prob", "verify_prob")),  # nobody drafted it
        }

    def _proposed(self, session: Session, draft: DraftStep, commit: Commit) -> Tensor:
        """The step of the draft, which may have come along with the step before; a verifier's own tokens are new."""
        now_B1 = session.state.step_B[:, None]
        draft_B1 = now_B1 if draft.step_B is None else draft.step_B[:, None]
        own_BL = (commit.source_BL == Source.RESAMPLED) | (commit.source_BL == Source.BONUS)
        return torch.where(own_BL, now_B1, draft_B1)

    def _verify_prob(self, session: Session, draft: DraftStep, verdict: Verdict) -> Tensor:
        """(B, L), NaN where the verifier did not look."""
        nothing_BL = torch.full_like(draft.confidence_BL, torch.nan)
        if verdict.window is None:
            return nothing_BL
        window = verdict.window
        prob_BS = session.sampler.prob_of(window.target_BSV, window.tokens_BS)
        return window.to_block(window.checked_BS, prob_BS, nothing_BL)[0]
