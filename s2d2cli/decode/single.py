"""S2D2 in one forward per step: the verification of this draft and the next draft come out of the same pass.

Lossless: greedy decoding gives the autoregressive tokens, sampling keeps the verifier's distribution, since a draft may
come from any distribution that was fixed before the verifier's word on it. fan.py draws the forward.

Axes: B rows, L window positions, K branches, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from s2d2cli.config import need, one_of, register, require
from s2d2cli.decode.acceptance import Window, pick, ratios, resample
from s2d2cli.decode.drafters import CarriedDrafter
from s2d2cli.decode.fan import Fan, lay_out
from s2d2cli.decode.sampling import Sampler, invert_cdf
from s2d2cli.decode.state import BlockState, Commit, DraftStep, Source, Verdict, leading_count
from s2d2cli.lossless import AUTOREGRESSIVE

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session


@register("verifier", "single")
@dataclass
class SingleForward:
    """Verify and draft in one forward.

    `form=aligned`: drafts end at the border of the block as trained (decode.block_length). `form=sliding`: always
    decode.block_length drafts ahead, without a grid. `max_rows` bounds the token rows of a sample's forward: the
    branches that the estimator finds likeliest are kept; where the verdict needs another, one step drafts nothing.
    """

    acceptance: ClassVar[str] = "lossless"
    decides_all: ClassVar[bool] = True

    form: str = "aligned"
    max_rows: int | None = None

    def validate(self) -> None:
        one_of("verifier.form", self.form, ("aligned", "sliding"))
        require(
            self.max_rows is None or self.max_rows >= 8,
            f"verifier.max_rows must be at least 8, or left out, got {self.max_rows}",
        )

    def check_run(self, config: RunConfig) -> None:
        require(
            getattr(config.router, "verifies_all", False),
            f"verifier=single needs a router that verifies each step, always or cost_aware, got {config.router.kind}; "
            f"decoder=s2d2_single has that by itself",
        )
        need(
            "verifier=single",
            "s2d2_single",
            ("decode.context", config.decode.context, "causal"),
            ("decode.commit", config.decode.commit, "pending"),
            ("decode.denoising_steps", config.decode.denoising_steps, config.decode.block_length),
            ("decode.sub_block_length", config.decode.sub_block_length, None),
        )

    def reproduces(self, config: RunConfig) -> str:
        return AUTOREGRESSIVE

    @property
    def uses_estimate(self) -> bool:
        return self.max_rows is not None

    def drafter(self) -> CarriedDrafter:
        return CarriedDrafter()

    def positions(self, block_length: int) -> int:
        return block_length + 1 if self.form == "sliding" else block_length

    def grid(self, block_length: int) -> int:
        """The window begins at the first undecided position, wherever that is."""
        return 1

    def scratch(self, positions: int) -> int:
        masks = positions + positions * positions
        return 1 + (masks if self.max_rows is None else min(masks, self.max_rows))

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        state = session.state
        length_BK = self.branch_lengths(state, draft, session)
        fan = lay_out(session.layout, state, draft, length_BK)
        hidden_BQH = session.hidden(fan.plan, state.active_B)
        target_BSV = session.model.logits(hidden_BQH, fan.plan.read_BR)
        window = window_of(draft, state, target_BSV)
        accepted_B = self.accepted(window, session)
        commit = self.commit(draft, target_BSV, accepted_B, fan, session)
        place_BL, next_BL = fan.branch(accepted_B, state.block_length)
        state.encoded_B = torch.where(state.active_B, state.start_B + accepted_B, state.encoded_B)
        verified_B = state.active_B & (fan.num_drafts_B > 0)
        return Verdict(
            commit,
            accepted_B,
            verified_B,
            window,
            session.model.logits(hidden_BQH, place_BL),
            next_BL & state.active_B[:, None],
        )

    def branch_lengths(self, state: BlockState, draft: DraftStep, session: Session) -> Tensor:
        """How many masks the branch for each number of accepted drafts gets, (B, K)."""
        block = session.decoder.settings.block_length
        assert block is not None
        ahead_K = torch.arange(state.block_length, device=state.start_B.device)
        first_BK = state.start_B[:, None] + ahead_K
        end_BK = first_BK + block + 1 if self.form == "sliding" else state.block_ends_BX(first_BK)
        length_BK = torch.minimum(end_BK, state.end_B[:, None]) - first_BK
        possible_BK = (ahead_K <= draft.masked_BL.sum(1)[:, None]) & state.active_B[:, None]
        if self.max_rows is not None:  # a draft costs two rows, and should leave as many for what comes after it
            length_BK = length_BK.clamp(max=1 + (self.max_rows - 2) // 3)
        wanted_BK = getattr(session.decoder.router, "branch_BK", None)
        if wanted_BK is not None:
            length_BK = torch.minimum(length_BK, wanted_BK)
        length_BK = torch.where(possible_BK & (length_BK > 1), length_BK, 0)
        if self.max_rows is None:
            return length_BK
        spent_B = state.start_B - state.encoded_B + 2 * draft.masked_BL.sum(1) + 1
        return likeliest(length_BK, chances(draft), self.max_rows - spent_B)

    def accepted(self, window: Window, session: Session) -> Tensor:
        """How many drafts from the left hold, (B,)."""
        if session.sampler.greedy:
            agrees_BS = window.target_BSV.argmax(-1) == window.tokens_BS
        else:
            uniform_BS = session.uniforms.accept(session.state, window.positions_BS, window.checked_BS)
            agrees_BS = uniform_BS < ratios(window, session.sampler, 1.0)
        return leading_count(agrees_BS & window.checked_BS)

    def commit(self, draft: DraftStep, target_BSV: Tensor, accepted_B: Tensor, fan: Fan, session: Session) -> Commit:
        """The accepted drafts, and the verifier's own token behind them."""
        state = session.state
        place_L = torch.arange(state.block_length, device=accepted_B.device)
        held_BL = (place_L < accepted_B[:, None]) & state.active_B[:, None]
        own_BL = (place_L == accepted_B[:, None]) & state.active_B[:, None]
        token_B1 = self.own_token(draft, target_BSV, accepted_B, fan, session)
        bonus_B1 = (accepted_B == fan.num_drafts_B)[:, None]
        commit = Commit.nothing(draft.tokens_BL).add(draft.tokens_BL, held_BL, Source.ACCEPTED)
        own_tokens_BL = token_B1.expand_as(own_BL)
        commit = commit.add(own_tokens_BL, own_BL & ~bonus_B1, Source.RESAMPLED)
        return commit.add(own_tokens_BL, own_BL & bonus_B1, Source.BONUS)

    def own_token(self, draft: DraftStep, target_BSV: Tensor, accepted_B: Tensor, fan: Fan, session: Session) -> Tensor:
        """Greedy: the verifier's argmax. Sampled: from (q - p)+ at the first rejection, from q behind the drafts."""
        place_B1 = accepted_B[:, None]
        target_B1V = pick(target_BSV, place_B1)
        if session.sampler.greedy:
            return target_B1V.argmax(-1)
        state = session.state
        positions_B1 = state.start_B[:, None] + place_B1
        uniform_B1 = session.uniforms.residual(state, positions_B1, state.active_B[:, None])
        rest_B1 = resample(pick(draft.logits_BLV, place_B1), target_B1V, uniform_B1, session.sampler, 1.0)
        free_B1 = drawn(target_B1V, uniform_B1, session.sampler)
        return torch.where(place_B1 < fan.num_drafts_B[:, None], rest_B1, free_B1)


def window_of(draft: DraftStep, state: BlockState, target_BSV: Tensor) -> Window:
    """The drafts as the verifier saw them, for acceptance and for whoever looks on."""
    num = target_BSV.shape[1] - 1
    index_BS = torch.arange(num, device=target_BSV.device).expand(len(target_BSV), -1)
    checked_BS = draft.masked_BL[:, :num]
    return Window(
        checked_BS,
        checked_BS,
        index_BS,
        state.start_B[:, None] + index_BS,
        draft.tokens_BL[:, :num],
        draft.confidence_BL[:, :num],
        target_BSV[:, :num],
    )


def drawn(logits_B1V: Tensor, uniform_B1: Tensor, sampler: Sampler) -> Tensor:
    return invert_cdf(sampler.probs(logits_B1V[:, 0]), uniform_B1[:, 0])[:, None]


def chances(draft: DraftStep) -> Tensor:
    """The estimator's probability of exactly k accepted drafts, (B, K)."""
    accept_BL = draft.accept_prob_BL.clamp(0, 1).masked_fill(~draft.masked_BL, 0.0)
    reach_BL = torch.cat([torch.ones_like(accept_BL[:, :1]), accept_BL.cumprod(1)[:, :-1]], 1)
    return reach_BL * (1 - accept_BL)


def likeliest(length_BK: Tensor, chance_BK: Tensor, budget_B: Tensor) -> Tensor:
    """The lengths of the branches that fit into the budget, likeliest first; the others get 0."""
    order_BK = chance_BK.masked_fill(length_BK == 0, -1.0).argsort(dim=1, descending=True, stable=True)
    sorted_BK = length_BK.gather(1, order_BK)
    kept_BK = torch.where(sorted_BK.cumsum(1) <= budget_B[:, None], sorted_BK, 0)
    return torch.zeros_like(length_BK).scatter(1, order_BK, kept_BK)
