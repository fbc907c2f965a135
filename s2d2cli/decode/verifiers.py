"""Verifiers: accept a prefix of what was drafted, and replace the first rejected token.

Axes: B rows, L block positions, S window positions, R rejections, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from s2d2cli.config import DecodeConfig, one_of, register, require
from s2d2cli.decode.acceptance import (
    Outcome,
    Window,
    cut_window,
    final_run,
    first_rejections,
    judge,
    pick,
    ratios,
    resample,
)
from s2d2cli.decode.drafters import Drafter, SelfDrafter
from s2d2cli.decode.layout import VerifyPlan, take
from s2d2cli.decode.sampling import Sampler
from s2d2cli.decode.state import BlockState, Bonus, Commit, DraftStep, Source, Verdict
from s2d2cli.lossless import AUTOREGRESSIVE

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session


class Verifier(Protocol):
    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict: ...

    def drafter(self) -> Drafter:
        """Who drafts for it."""

    def positions(self, block_length: int) -> int:
        """How many positions a step looks at."""

    def grid(self, block_length: int) -> int:
        """At multiples of what a block may begin."""

    def scratch(self, positions: int) -> int:
        """Cache slots for rows that must not last, padding's one included."""


class BlockVerifier:
    """For verifiers that look at one block at a time, drafted by a forward of its own."""

    def drafter(self) -> Drafter:
        return SelfDrafter()

    def positions(self, block_length: int) -> int:
        return block_length

    def grid(self, block_length: int) -> int:
        return block_length

    def scratch(self, positions: int) -> int:
        return 1 + positions


@register("verifier", "self")
@dataclass
class SelfVerifier(BlockVerifier):
    """The model itself at block length one (S2D2, Han et al. 2026).

    `acceptance=lossless`: greedy accepts exactly the verifier's argmax and replaces by it; sampling accepts with
    probability min(1, q/p) and resamples the first rejection from (q - p)+ (Leviathan et al. 2023).
    `acceptance=ratio` does the second under greedy drafts too, as the published code does; it is there to reproduce
    that code's runs, and its "greedy" output is random. `acceptance=published` besides commits the very token that it
    rejected where nothing is resampled, as published for SDAR. The settings below the line trade exactness away.
    """

    acceptance: str = "lossless"
    published_temperature: float = 1.0  # without acceptance=lossless q's under greedy drafts; top-k and top-p as given
    skip_redundant: bool = True  # no verification of a draft that already saw just what the verifier would see
    ahead: bool = False  # carry the next block's masks: when the whole block is accepted, they are the next draft
    bonus: bool = True  # right-shifted models: a window accepted whole also gives the token behind it
    form: str = "aligned"  # "sliding": without a grid, always decode.block_length drafts from the first mask on
    # ---
    spans: str = "first"  # "all": every masked span in one pass, each conditioned on the drafts left of it
    resample: bool = True  # false: a rejected position stays masked, for the unmask rule or a later step
    residual_temperature: float = 1.0  # below 1 sharpens what replaces a rejected token, above 1 flattens it
    tempering: float = 1.0  # accept with min(1, (q/p) ** tempering)
    ratio_threshold: float | None = None  # behind a rejection, keep drafts whose q/p reaches this
    ratio_spans: str = "first"  # where ratio_threshold looks: the first span's rest, or "all" masks of the block
    keep_confident: bool = False  # in a verified step also keep what exceeds the unmask rule's threshold

    def validate(self) -> None:
        one_of("verifier.acceptance", self.acceptance, ("lossless", "ratio", "published"))
        one_of("verifier.form", self.form, ("aligned", "sliding"))
        one_of("verifier.spans", self.spans, ("first", "all"))
        one_of("verifier.ratio_spans", self.ratio_spans, ("first", "all"))
        for name in ("published_temperature", "residual_temperature", "tempering"):
            require(getattr(self, name) > 0, f"verifier.{name} must be above 0, got {getattr(self, name)}")
        ratio = self.ratio_threshold
        require(ratio is None or ratio >= 0, f"verifier.ratio_threshold must be 0 or more, or left out, got {ratio}")

    def check_run(self, config: RunConfig) -> None:
        require(
            config.decode.context != "full" or not getattr(config.router, "verifies", True),
            f"verifier=self asks the autoregressive mode, and model.family={config.model.family}, which attends fully, "
            f"has none; use decoder=static, sequential, dynamic or ssd",
        )
        require(
            self.form == "aligned" or encodes(config.decode),
            f"verifier.form=sliding needs decode.context=causal and decode.commit=pending, got "
            f"{config.decode.context} and {config.decode.commit}",
        )
        require(
            self.form == "aligned" or getattr(config.router, "verifies", True),
            f"verifier.form=sliding is for a router that verifies, got router={config.router.kind}; leave it out",
        )
        require(
            self.form == "aligned" or config.decode.sub_block_length is None,
            "verifier.form=sliding has no blocks to divide; leave decode.sub_block_length out",
        )

    def reproduces(self, config: RunConfig) -> str | None:
        """Autoregressive decoding, where every token is verified in the context in which that decodes, and none of the
        settings is in use that trade exactness away."""
        decode, greedy = config.decode, config.decode.temperature == 0
        verified = getattr(config.router, "verifies_all", False) and decode.denoising_steps == decode.block_length
        accepted = self.acceptance == "lossless" or (self.acceptance == "ratio" and not greedy)
        plain = greedy or (self.tempering == self.residual_temperature == 1 and decode.boundary == "verified")
        strict = self.spans == "first" and self.resample and self.ratio_threshold is None and not self.keep_confident
        more = hasattr(config.unmask, "edits") or getattr(config.unmask, "adds", False)
        holds = verified and accepted and plain and strict and not more and decode.context == "causal"
        return AUTOREGRESSIVE if holds else None

    def grid(self, block_length: int) -> int:
        return 1 if self.form == "sliding" else block_length

    def idle(self, decode: DecodeConfig) -> dict[str, str]:
        """Settings that the others make pointless; see effect.py."""
        greedy = decode.temperature == 0
        exact = greedy and self.acceptance == "lossless"
        no_ratio = exact and self.ratio_threshold is None
        found = {
            "skip_redundant": decode.context != "causal" and "it is about decode.context=causal",
            "ahead": not encodes(decode) and "it needs decode.context=causal and decode.commit=pending",
            "acceptance": not greedy and self.resample and "sampled drafts are accepted alike under both",
            "published_temperature": (not greedy or no_ratio) and "it is about greedy drafts accepted by ratio",
            "tempering": no_ratio and "greedy drafts are accepted exactly, without a ratio",
            "residual_temperature": (exact or not self.resample) and "no replacement is drawn at random",
        }
        return {key: why for key, why in found.items() if why}

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        state = session.state
        if self.skip_redundant:
            verify_B = verify_B & ~redundant(draft, session)
        span_BL = draft.span_BL & verify_B[:, None]
        seen_BL = draft.masked_BL & verify_B[:, None] if "all" in (self.spans, self.ratio_spans) else span_BL
        found = session.layout.verify(state, draft, seen_BL, self._next_B(session))
        if found is None:
            return Verdict(Commit.nothing(draft.tokens_BL), verify_B.long() * 0, verify_B & False)
        verified_B = seen_BL.any(1)
        hidden_BQH = session.hidden(found.plan, verified_B)
        target_BXV = session.model.logits(hidden_BQH, found.plan.read_BR)
        window = cut_window(draft, state.start_B, seen_BL, target_BXV[:, : found.num_window])
        checked_BS = window.checked_BS
        if self.spans == "first":
            checked_BS = checked_BS & span_BL.gather(1, window.index_BS)
        outcome = self.judged(window, checked_BS, session)
        commit = self.committed(draft, window, outcome, session)
        self._keep_encoded(session, window, outcome, found.data_end_B)
        verdict = Verdict(commit, outcome.accepted_BS.sum(1), verified_B, window)
        if self.bonus and target_BXV.shape[1] > found.num_window and not session.layout.edits:
            verdict.bonus = self._bonus(target_BXV, window, outcome, session)
        if found.next_BN.shape[1]:
            whole_B = final_run(window, outcome) == window.inside_BS.sum(1)
            place_BL, next_BL = self._carried(found, state, session.model.shift)
            verdict.next_BL = next_BL & whole_B[:, None]
            verdict.next_logits_BLV = session.model.logits(hidden_BQH, place_BL)
        return verdict

    def _carried(self, found: VerifyPlan, state: BlockState, shift: int) -> tuple[Tensor, Tensor]:
        """Where the next block's masks stand in the plan, (B, L), and which are drafts: with a right-shifted model not
        the first, where the bonus will be. Without a grid the next block begins behind that."""
        skip = shift if state.grid == 1 else 0
        place_L = torch.arange(state.block_length, device=state.start_B.device)
        next_BL = (place_L >= shift - skip) & (place_L < (found.next_B - skip)[:, None])
        place_BN = found.next_BN[:, skip:]
        return torch.nn.functional.pad(place_BN, (0, state.block_length - place_BN.shape[1])), next_BL

    def scratch(self, positions: int) -> int:
        return 1 + (2 if self.ahead else 1) * positions

    def _next_B(self, session: Session) -> Tensor:
        """How many masks of the next block may ride along. Those of a right-shifted model need the bonus."""
        end_B = session.state.block_end_B
        carries = self.ahead and session.layout.prefix_final and (self.bonus or not session.model.shift)
        return session.window_B(end_B) if carries else torch.zeros_like(end_B)

    def _exact(self, sampler: Sampler) -> bool:
        return sampler.greedy and self.acceptance == "lossless"

    def target(self, sampler: Sampler) -> Sampler:
        """The draft's own transform; only the published code compares a plain p with a transformed q."""
        return replace(sampler, temperature=self.published_temperature) if sampler.greedy else sampler

    def estimated(self, sampler: Sampler) -> Sampler:
        """Which distributions estimators look at: the published ones that q is transformed like, else the drafter's."""
        return sampler if self.acceptance == "lossless" else self.target(sampler)

    def judged(self, window: Window, checked_BS: Tensor, session: Session) -> Outcome:
        if self._exact(session.sampler):
            return judge(window.target_BSV.argmax(-1) == window.tokens_BS, checked_BS)
        uniform_BS = session.uniforms.accept(session.state, window.positions_BS, checked_BS)
        return judge(uniform_BS < ratios(window, self.target(session.sampler), self.tempering), checked_BS)

    def committed(self, draft: DraftStep, window: Window, outcome: Outcome, session: Session) -> Commit:
        """Accepted tokens, replacements, and what the looser settings keep besides."""
        commit = Commit.nothing(draft.tokens_BL)
        rejected_BS = outcome.rejected_BS
        if self.resample:
            replaced_BS, tokens_BS = rejected_BS, self._replacements(draft, window, rejected_BS, session)
        else:
            replaced_BS, tokens_BS = rejected_BS & False, window.tokens_BS
        accepted_BS = outcome.accepted_BS
        if not self.resample and self.acceptance == "published":
            accepted_BS = accepted_BS | rejected_BS
        kept_BS = self._kept_by_ratio(window, accepted_BS | replaced_BS, outcome, session)
        for flags_BS, values_BS, source in (
            (accepted_BS, window.tokens_BS, Source.ACCEPTED),
            (replaced_BS, tokens_BS, Source.RESAMPLED),
            (kept_BS, window.tokens_BS, Source.THRESHOLD),
        ):
            values_BL, flags_BL = window.to_block(flags_BS, values_BS, draft.tokens_BL)
            commit = commit.add(values_BL, flags_BL, source)
        if self.keep_confident:
            sure_BL = draft.masked_BL & (
                draft.confidence_BL > session.decoder.confidence_line("verifier.keep_confident")
            )
            kept_BL = sure_BL & ~commit.mask_BL & window.checked_BS.any(1, keepdim=True)
            commit = commit.add(draft.tokens_BL, kept_BL, Source.HIGH_CONFIDENCE)
        return commit

    def _kept_by_ratio(self, window: Window, taken_BS: Tensor, outcome: Outcome, session: Session) -> Tensor:
        if self.ratio_threshold is None:
            return taken_BS & False
        ratio_BS = ratios(window, self.target(session.sampler), self.tempering)
        where_BS = window.checked_BS if self.ratio_spans == "all" else outcome.checked_BS
        return where_BS & ~taken_BS & (ratio_BS >= self.ratio_threshold)

    def _replacements(self, draft: DraftStep, window: Window, rejected_BS: Tensor, session: Session) -> Tensor:
        """The verifier's argmax, or a draw from (q - p)+, at the rejected places, (B, S)."""
        if self._exact(session.sampler):
            return window.target_BSV.argmax(-1)
        most = 1 if self.spans == "first" else (rejected_BS.shape[1] + 1) // 2
        places_BR = first_rejections(rejected_BS, most)
        uniform_BS = session.uniforms.residual(session.state, window.positions_BS, rejected_BS)
        tokens_BR = resample(
            pick(draft.logits_BLV, window.index_BS.gather(1, places_BR)),
            pick(window.target_BSV, places_BR),
            uniform_BS.gather(1, places_BR),
            self.target(session.sampler),
            self.residual_temperature,
        )
        return window.tokens_BS.scatter(1, places_BR, tokens_BR)

    def _bonus(self, target_BXV: Tensor, window: Window, outcome: Outcome, session: Session) -> Bonus:
        """The verifier's own token behind a window that holds to its end, where nothing is decided yet."""
        state, sampler = session.state, session.sampler
        length_B1 = window.inside_BS.sum(1, keepdim=True)
        position_B1 = window.positions_BS[:, :1] + length_B1
        whole_B1 = (length_B1 > 0) & (final_run(window, outcome)[:, None] == length_B1)
        free_B1 = (take(state.canvas_BT, position_B1) == state.mask_id) & (position_B1 < state.end_B[:, None])
        mask_B1 = whole_B1 & free_B1
        sampler = sampler if self._exact(sampler) else self.target(sampler)
        uniform_B1 = None if sampler.greedy else session.uniforms.residual(state, position_B1, mask_B1)
        token_B1, _ = sampler.draw(pick(target_BXV, length_B1), uniform_B1)
        return Bonus(position_B1[:, 0], token_B1[:, 0], mask_B1[:, 0])

    def _keep_encoded(self, session: Session, window: Window, outcome: Outcome, data_end_B: Tensor) -> None:
        """Where a block's prefix is final the final data rows of this very pass are the cache's final entries.

        The window's last token is not always one of them (see layout.py), and a replacement never is.
        """
        state = session.state
        if session.layout.prefix_final:
            reached_B = torch.minimum(window.positions_BS[:, 0] + final_run(window, outcome), data_end_B)
            state.encoded_B = torch.where(window.inside_BS.any(1), reached_B, state.encoded_B)


def encodes(decode: DecodeConfig) -> bool:
    """Only there a verification's data rows can be the cache's final entries, those that the next block's masks see."""
    return decode.context == "causal" and decode.commit == "pending"


def redundant(draft: DraftStep, session: Session) -> Tensor:
    """Rows whose only mask sees nothing but what is left of it: with a causal context p equals q unless the draft edits
    something there, (B,). That is the block's last position, or with a right-shifted model any."""
    state = session.state
    if session.layout.context != "causal":
        return torch.zeros_like(state.active_B)
    last_B = (state.first_masked_B == state.block_end_B - 1) & draft.masked_BL.any(1)
    if session.layout.shift:  # where a bonus is not encoded yet, the draft was carried and has not seen it
        last_B = (draft.masked_BL.sum(1) == 1) & (state.encoded_B == session.layout.settled_B(state))
    return last_B & ~draft.edits_BL.any(1)
