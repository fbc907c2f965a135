"""Self-speculative decoding along the model's own order (SSD, Gao et al. 2025): several steps of one-token decoding
checked in one forward, lossless against exactly that decoding.

One-token decoding reveals in each forward the position that the unmask rule puts first, with its likeliest token. A
draft names a whole sequence of such steps, d1 d2 ... dN; only d1 is certain. One forward computes the block as it would
be after d1, after d1 d2, and so on. Where the block after d1 puts d2 first the model agrees with its draft, and so on
down the chain; the last state that was reached is computed already and is the next draft, so that each round is one
forward and decides at least one token.

`order=mix` adds the states with the next token left out, {d1 .. di, d(i+2)}: a model that takes two drafted tokens in
the other order comes back to the chain behind them.

Axes: B rows, L block positions, N drafted tokens, X states of the block that are computed, Y = B times X, R masks that
are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from s2d2cli.config import DecodeConfig, need, one_of, register, require
from s2d2cli.decode.border import NextBlock, fits, next_block
from s2d2cli.decode.drafters import spread
from s2d2cli.decode.state import Commit, DraftStep, Source, Verdict
from s2d2cli.decode.tree import Tree, lay_out, states, tree
from s2d2cli.decode.verifiers import BlockVerifier
from s2d2cli.lossless import one_by_one
from s2d2cli.models.plan import joined

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session


@dataclass
class Order:
    """The drafted tokens of each row in the order in which one-token decoding is expected to reveal them."""

    place_BN: Tensor  # in the block
    token_BN: Tensor
    real_BN: Tensor  # false behind the last drafted token


@dataclass
class Seen:
    """What the model said in each state: where it reads what, and what one-token decoding would reveal next."""

    logits_BXRV: Tensor
    place_BXR: Tensor
    place_BX: Tensor
    token_BX: Tensor


@register("verifier", "chain")
@dataclass
class ChainVerifier(BlockVerifier):
    """Check `nodes` drafted steps of one-token decoding in one forward (SSD)."""

    acceptance: ClassVar[str] = "lossless"

    nodes: int | None = None  # null: what the source found best, 5 for Dream and 4 for LLaDA, and 4 for all others
    order: str = "linear"
    ahead: bool = False  # where the draft fills the block, the next block's masks ride along

    def complete(self, config: RunConfig) -> None:
        if self.nodes is None:
            self.nodes = 5 if config.model.family == "dream" else 4

    def validate(self) -> None:
        assert self.nodes is not None, "config.complete() comes first"
        require(1 <= self.nodes <= 64, f"verifier.nodes must lie between 1 and 64, got {self.nodes}")
        one_of("verifier.order", self.order, ("linear", "mix"))

    def check_run(self, config: RunConfig) -> None:
        need(
            "verifier=chain",
            "ssd",
            ("router", config.router.kind, "always"),
            ("decode.temperature", config.decode.temperature, 0),
            ("decode.denoising_steps", config.decode.denoising_steps, config.decode.block_length),
        )
        require(
            hasattr(config.unmask, "one_by_one"),
            f"verifier=chain needs a rule that reveals just what it owes, unmask=low_confidence_static or sequential, "
            f"got {config.unmask.kind}; decoder=ssd has that by itself",
        )

    def idle(self, decode: DecodeConfig) -> dict[str, str]:
        why = "with decode.context=full it needs decode.cache=none, else decode.commit=pending"
        return {} if fits(decode) else {"ahead": why}

    def reproduces(self, config: RunConfig) -> str | None:
        return one_by_one(config)

    def width(self, positions: int) -> int:
        """How many tokens a draft names."""
        assert self.nodes is not None, "config.complete() comes first"
        return min(self.nodes, positions)

    def scratch(self, positions: int) -> int:
        return 1 + len(states(self.width(positions), self.order == "mix")) * (positions + 1)

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        state = session.state
        nodes = self.width(state.block_length)
        order, shape = in_order(draft, session, nodes), tree(nodes, self.order == "mix", verify_B.device)
        written_BXL = written(shape, order, draft.masked_BL)
        left_BXL = draft.masked_BL[:, None] & ~written_BXL
        # a state that needs tokens beyond the draft, or has no mask left, tells nothing
        drafted_BX = shape.needs_X <= order.real_BN.sum(1, keepdim=True)
        real_BX = drafted_BX & left_BXL.any(2) & verify_B[:, None]
        beyond = self.beyond(draft, order, session, verify_B)
        if not bool(real_BX.any()):
            verdict = decided(draft, order, order.place_BN[:, :1], real_BX.any(1))
            if beyond is not None:
                beyond.carry(verdict, session.forward(beyond.plan, beyond.rows_B), beyond.rows_B, session)
            return verdict
        tokens_BXL = torch.where(written_BXL, draft.tokens_BL[:, None], state.tokens_BL[:, None])
        plan, place_BXR = lay_out(session.layout, state, tokens_BXL, left_BXL & real_BX[..., None])
        num_read = plan.read_BR.shape[1]
        if beyond is not None:
            plan = joined(plan, beyond.plan)
        logits_BQV = session.forward(plan, real_BX.any(1) if beyond is None else real_BX.any(1) | beyond.rows_B)
        seen = next_steps(logits_BQV[:, :num_read].view(*place_BXR.shape, -1), place_BXR, left_BXL, session)
        path_BN, at_B = walk(shape, order, seen, real_BX)
        verdict = decided(draft, order, path_BN, real_BX.any(1))
        row_B = torch.arange(len(at_B), device=at_B.device)
        verdict.next_logits_BLV = spread(seen.logits_BXRV[row_B, at_B], seen.place_BXR[row_B, at_B], draft.masked_BL)
        verdict.next_BL = left_BXL[row_B, at_B] & real_BX[row_B, at_B, None]
        if beyond is not None:
            whole_B = beyond.rows_B & ((path_BN >= 0).sum(1) == order.real_BN.sum(1))
            beyond.carry(verdict, logits_BQV[:, num_read:], whole_B, session)
        return verdict

    def beyond(self, draft: DraftStep, order: Order, session: Session, verify_B: Tensor) -> NextBlock | None:
        if not self.ahead or not fits(session.decoder.settings):
            return None
        return next_block(draft, session, verify_B & (order.real_BN.sum(1) == draft.masked_BL.sum(1)))


def in_order(draft: DraftStep, session: Session, most: int) -> Order:
    """What the unmask rule would reveal, one by one, if the draft never changed."""
    left_BL, places = draft.masked_BL, []
    one_B = torch.ones_like(left_BL[:, 0], dtype=torch.long)
    for _ in range(most):
        chosen_BL = session.decoder.unmask.select(draft, left_BL, one_B)
        places.append(chosen_BL.long().argmax(1))
        left_BL = left_BL & ~chosen_BL
    place_BN = torch.stack(places, 1)
    rank_N = torch.arange(most, device=place_BN.device)
    return Order(place_BN, draft.tokens_BL.gather(1, place_BN), rank_N < draft.masked_BL.sum(1, keepdim=True))


def written(shape: Tree, order: Order, masked_BL: Tensor) -> Tensor:
    """Where each state has drafted tokens, bool (B, X, L)."""
    place_L = torch.arange(masked_BL.shape[1], device=masked_BL.device)
    at_BNL = (order.place_BN[..., None] == place_L) & order.real_BN[..., None]
    return (shape.written_XN[..., None] & at_BNL[:, None]).any(2)


def next_steps(logits_BXRV: Tensor, place_BXR: Tensor, left_BXL: Tensor, session: Session) -> Seen:
    """What one-token decoding would reveal in each state."""
    masks_R = torch.arange(place_BXR.shape[2], device=place_BXR.device)
    real_YR = (masks_R < left_BXL.sum(2, keepdim=True)).flatten(0, 1)
    logits_YRV = logits_BXRV.flatten(0, 1)
    tokens_YR, confidence_YR = session.sampler.draw(logits_YRV, None)
    estimator, edits_YR = session.decoder.estimator, torch.zeros_like(real_YR)
    draft = DraftStep(tokens_YR, confidence_YR, logits_YRV, real_YR, session.sampler, estimator, edits_YR)
    chosen_YR = session.decoder.unmask.select(draft, real_YR, torch.ones_like(real_YR[:, 0], dtype=torch.long))
    first_Y1 = chosen_YR.long().argmax(1, keepdim=True)
    place_Y1, token_Y1 = (x_YR.gather(1, first_Y1) for x_YR in (place_BXR.flatten(0, 1), tokens_YR))
    return Seen(logits_BXRV, place_BXR, place_Y1.view_as(left_BXL[..., 0]), token_Y1.view_as(left_BXL[..., 0]))


def walk(shape: Tree, order: Order, seen: Seen, real_BX: Tensor) -> tuple[Tensor, Tensor]:
    """From the state after the first token along the states that the model agrees with: the places that are decided on
    the way, in their order and -1 behind them, (B, N), and the state where it stops, (B,)."""
    same_BXN = (seen.place_BX[..., None] == order.place_BN[:, None]) & (
        seen.token_BX[..., None] == order.token_BN[:, None]
    )
    agrees_BXN = same_BXN & real_BX[..., None] & order.real_BN[:, None]
    row_B = torch.arange(len(real_BX), device=real_BX.device)
    at_B, moved_B = torch.zeros_like(row_B), torch.ones_like(row_B, dtype=torch.bool)
    path = [order.place_BN[:, 0]]
    for _ in range(1, order.place_BN.shape[1]):
        step_BN = agrees_BXN[row_B, at_B] & (shape.child_XN[at_B] >= 0)
        moved_B = moved_B & step_BN.any(1)
        token_B = step_BN.long().argmax(1)
        path.append(torch.where(moved_B, order.place_BN[row_B, token_B], -1))
        at_B = torch.where(moved_B, shape.child_XN[at_B, token_B], at_B)
    return torch.stack(path, 1), at_B


def decided(draft: DraftStep, order: Order, path_BN: Tensor, verified_B: Tensor) -> Verdict:
    """The places of a path get their drafted tokens, in its order."""
    length = draft.masked_BL.shape[1]
    rank_BN = torch.arange(path_BN.shape[1], device=path_BN.device).expand_as(path_BN)
    spare_BN = torch.where((path_BN >= 0) & order.real_BN[:, :1], path_BN, length)  # a column that is cut off
    blank_BX = torch.full_like(draft.tokens_BL[:, :1], -1).expand(-1, length + 1)
    rank_BL = blank_BX.scatter(1, spare_BN, rank_BN)[:, :-1]
    commit = Commit.nothing(draft.tokens_BL)
    commit = commit.add(draft.tokens_BL, rank_BL == 0, Source.UNMASKED)
    commit = commit.add(draft.tokens_BL, rank_BL > 0, Source.ACCEPTED)
    commit.rank_BL = rank_BL.clamp(min=0)
    return Verdict(commit, (rank_BL > 0).sum(1), verified_B)
