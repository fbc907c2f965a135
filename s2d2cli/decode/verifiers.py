"""Verifiers: accept a prefix of the first drafted span, and replace the first rejected token.

Axes: B rows, L block positions, S span positions (0 is the span's first), V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from s2d2cli.config import one_of, register, require
from s2d2cli.decode.sampling import Sampler, invert_cdf, residual_probs
from s2d2cli.decode.state import Commit, DraftStep, Source, Verdict, leading_count

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session


class Verifier(Protocol):
    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict: ...


@dataclass(slots=True)
class SpanDraft:
    """The first span cut out of a draft, and what the verifier says about it."""

    wanted_BS: Tensor  # S is padded to the longest span of the batch
    index_BS: Tensor  # into the block
    positions_BS: Tensor
    tokens_BS: Tensor
    draft_prob_BS: Tensor
    target_BSV: Tensor  # the verifier's logits


@register("verifier", "self")
@dataclass
class SelfVerifier:
    """The model itself at block length one (S2D2, Han et al. 2026).

    `acceptance=lossless`: greedy accepts exactly the verifier's argmax and replaces by it; sampling accepts with
    probability min(1, q/p) and resamples the first rejection from (q - p)+ (Leviathan et al. 2023).
    `acceptance=published` does the second under greedy drafts too, as the published code does; it is there to
    reproduce that code's runs, and its "greedy" output is random.
    """

    acceptance: str = "lossless"
    published_temperature: float = 1.0  # acceptance=published: q's temperature under greedy drafts, top-k/p as given
    skip_redundant: bool = True  # no verification of a draft that already saw just what the verifier would see

    def validate(self) -> None:
        one_of("verifier.acceptance", self.acceptance, ("lossless", "published"))
        require(
            self.published_temperature > 0,
            f"verifier.published_temperature must be above 0, got {self.published_temperature}",
        )

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        state = session.state
        span_BL = draft.span_BL & verify_B[:, None]
        if self.skip_redundant:
            span_BL &= ~self._redundant_B(draft, session)[:, None]
        plan = session.layout.verify(state, draft, span_BL)
        if plan is None:
            return Verdict(Commit.nothing(draft.tokens_BL), verify_B.long() * 0, verify_B & False)
        verified_B = span_BL.any(1)
        span = cut_span(draft, state.start_B, span_BL, session.forward(plan, verified_B))
        if session.sampler.greedy and self.acceptance == "lossless":
            accepted_B, replacement_B = match_argmax(span)
        else:
            accepted_B, replacement_B = self._accept_by_ratio(draft, span, session)
        self._keep_encoded(session, span, accepted_B)
        return Verdict(commit_span(draft, span, accepted_B, replacement_B), accepted_B, verified_B)

    def _redundant_B(self, draft: DraftStep, session: Session) -> Tensor:
        """Rows whose only mask is the block's last position: with a causal context p equals q."""
        if session.layout.context != "causal":
            return torch.zeros_like(session.state.active_B)
        return draft.masked_BL[:, -1] & (draft.masked_BL.sum(1) == 1)

    def _accept_by_ratio(self, draft: DraftStep, span: SpanDraft, session: Session) -> tuple[Tensor, Tensor]:
        """min(1, q/p) from left to right; the first rejection is drawn from (q - p)+."""
        sampler, state, uniforms = self._target_sampler(session.sampler), session.state, session.uniforms
        target_prob_BS = sampler.prob_of(span.target_BSV, span.tokens_BS)
        ratio_BS = (target_prob_BS / span.draft_prob_BS.clamp(min=1e-12)).clamp(max=1)
        uniform_BS = uniforms.accept(state, span.positions_BS, span.wanted_BS)
        accepted_B = leading_count((uniform_BS < ratio_BS) & span.wanted_BS)
        rejected_B = accepted_B < span.wanted_BS.sum(1)
        at_B1 = accepted_B.clamp(max=span.wanted_BS.shape[1] - 1)[:, None]
        residual_BV = residual_probs(
            sampler.probs(pick(span.target_BSV, at_B1)),
            sampler.probs(pick(draft.logits_BLV, span.index_BS.gather(1, at_B1))),
        )
        uniform_B = uniforms.residual(state, span.positions_BS.gather(1, at_B1)[:, 0], rejected_B)
        return accepted_B, invert_cdf(residual_BV, uniform_B)

    def _target_sampler(self, sampler: Sampler) -> Sampler:
        """The draft's own transform; only the published code compares a plain p with a transformed q."""
        return replace(sampler, temperature=self.published_temperature) if sampler.greedy else sampler

    def _keep_encoded(self, session: Session, span: SpanDraft, accepted_B: Tensor) -> None:
        """With a causal context the accepted data rows of this very pass are the cache's final entries.

        The span's last token was no data row, and a replacement never is.
        """
        state, layout = session.state, session.layout
        if layout.context == "causal" and layout.pending:
            length_B = span.wanted_BS.sum(1)
            reached_B = span.positions_BS[:, 0] + torch.minimum(accepted_B, length_B - 1)
            state.encoded_B = torch.where(length_B > 0, reached_B, state.encoded_B)


def cut_span(draft: DraftStep, start_B: Tensor, span_BL: Tensor, target_BSV: Tensor) -> SpanDraft:
    offset_S = torch.arange(target_BSV.shape[1], device=start_B.device)
    wanted_BS = offset_S < span_BL.sum(1, keepdim=True)
    index_BS = (span_BL.long().argmax(1)[:, None] + offset_S).clamp(max=span_BL.shape[1] - 1)
    return SpanDraft(
        wanted_BS,
        index_BS,
        start_B[:, None] + index_BS,
        draft.tokens_BL.gather(1, index_BS),
        draft.confidence_BL.gather(1, index_BS),
        target_BSV,
    )


def match_argmax(span: SpanDraft) -> tuple[Tensor, Tensor]:
    """Greedy: (how many drafts equal the verifier's argmax before the first that does not, the argmax there)."""
    best_BS = span.target_BSV.argmax(-1)
    accepted_B = leading_count((best_BS == span.tokens_BS) & span.wanted_BS)
    return accepted_B, best_BS.gather(1, accepted_B.clamp(max=best_BS.shape[1] - 1)[:, None])[:, 0]


def commit_span(draft: DraftStep, span: SpanDraft, accepted_B: Tensor, replacement_B: Tensor) -> Commit:
    """The accepted prefix, then the replacement unless everything was accepted."""
    offset_S = torch.arange(span.wanted_BS.shape[1], device=accepted_B.device)
    accepted_BS = span.wanted_BS & (offset_S < accepted_B[:, None])
    replaced_BS = span.wanted_BS & (offset_S == accepted_B[:, None])
    commit = Commit.nothing(draft.tokens_BL)
    for mask_BS, tokens_BL, source in (
        (accepted_BS, draft.tokens_BL, Source.ACCEPTED),
        (replaced_BS, replacement_B[:, None].expand_as(draft.tokens_BL), Source.RESAMPLED),
    ):
        mask_BL = torch.zeros_like(draft.masked_BL).scatter_reduce(1, span.index_BS, mask_BS, "amax")
        commit = commit.add(tokens_BL, mask_BL, source)
    return commit


def pick(logits_BXV: Tensor, at_B1: Tensor) -> Tensor:
    """The logits at one position of each row, (B, V)."""
    return logits_BXV.gather(1, at_B1[..., None].expand(-1, -1, logits_BXV.shape[-1]))[:, 0]
