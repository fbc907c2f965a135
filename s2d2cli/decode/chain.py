"""Self-speculative decoding along the model's own order (SSD, Gao et al. 2025): several steps of one-token decoding
checked in one forward, lossless against exactly that decoding.

One-token decoding reveals in each forward the position that the unmask rule puts first, with its likeliest token. A
draft names a whole sequence of such steps, d1 d2 ... dN; only d1 is certain. One forward computes the block as it would
be after d1, after d1 d2, and so on. Where the block after d1 puts d2 first the model agrees with its draft, and so on
down the chain; the last state that was reached is computed already and is the next draft, so that each round is one
forward and decides at least one token.

`order=mix` adds the states with the next token left out, {d1 .. di, d(i+2)}: a model that takes two drafted tokens in
the other order comes back to the chain behind them.

Axes: B rows, L block positions, N drafted tokens, X states of the block that are computed, R masks that are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from s2d2cli.config import one_of, register, require
from s2d2cli.decode.acceptance import pick
from s2d2cli.decode.state import Commit, DraftStep, Source, Verdict
from s2d2cli.decode.tree import lay_out
from s2d2cli.decode.verifiers import BlockVerifier

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session


@dataclass
class Order:
    """The drafted tokens of each row in the order in which one-token decoding is expected to reveal them."""

    place_BN: Tensor  # in the block
    token_BN: Tensor
    count_B: Tensor  # how many there are


@register("verifier", "chain")
@dataclass
class ChainVerifier(BlockVerifier):
    """Check `nodes` drafted steps of one-token decoding in one forward (SSD)."""

    acceptance: ClassVar[str] = "lossless"

    nodes: int = 4
    order: str = "linear"

    def validate(self) -> None:
        require(1 <= self.nodes <= 64, f"verifier.nodes must lie between 1 and 64, got {self.nodes}")
        one_of("verifier.order", self.order, ("linear", "mix"))

    def check_run(self, config: RunConfig) -> None:
        for key, value, needed in (
            ("router", config.router.kind, "always"),
            ("decode.temperature", config.decode.temperature, 0),
            ("decode.denoising_steps", config.decode.denoising_steps, config.decode.block_length),
        ):
            require(
                value == needed, f"verifier=chain needs {key}={needed}, got {value}; decoder=ssd has that by itself"
            )
        require(
            getattr(config.unmask, "exact", False),
            f"verifier=chain needs a rule that reveals just what it owes, unmask=low_confidence_static or sequential, "
            f"got {config.unmask.kind}; decoder=ssd has that by itself",
        )

    def scratch(self, positions: int) -> int:
        return 1 + len(self.states(positions)) * (positions + 1)

    def states(self, positions: int) -> list[frozenset[int]]:
        """Which drafted tokens (numbered from 0) are written in each computed state of so many positions."""
        nodes = min(self.nodes, positions)
        chain = [frozenset(range(k)) for k in range(1, nodes + 1)]
        skips = [frozenset({*range(k), k + 1}) for k in range(1, nodes - 1)]
        return chain + (skips if self.order == "mix" else [])

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        state = session.state
        order = in_order(draft, session, min(self.nodes, state.block_length))
        written_BXL = self.written(order, draft.masked_BL)
        left_BXL = draft.masked_BL[:, None] & ~written_BXL
        # a state that needs tokens beyond the draft, or has no mask left, tells nothing
        needs_X = torch.tensor([max(one) + 1 for one in self.states(state.block_length)], device=verify_B.device)
        real_BX = (needs_X <= order.count_B[:, None]) & left_BXL.any(2) & verify_B[:, None]
        if not bool(real_BX.any()):
            return self.decided(draft, order, torch.ones_like(order.count_B), order.place_BN, real_BX.any(1))
        tokens_BXL = torch.where(written_BXL, draft.tokens_BL[:, None], state.tokens_BL[:, None])
        plan, place_BXR = lay_out(session.layout, state, tokens_BXL, left_BXL & real_BX[..., None])
        logits_BQV = session.forward(plan, real_BX.any(1))
        steps = self.next_steps(logits_BQV, place_BXR, left_BXL, session)
        return self.walked(draft, order, real_BX, left_BXL, (steps, logits_BQV, place_BXR))

    def written(self, order: Order, masked_BL: Tensor) -> Tensor:
        """Where each state has drafted tokens, bool (B, X, L)."""
        num_drafted, length = order.place_BN.shape[1], masked_BL.shape[1]
        has_XN = torch.tensor(
            [[n in one for n in range(num_drafted)] for one in self.states(length)], device=masked_BL.device
        )
        rank_N = torch.arange(num_drafted, device=masked_BL.device)
        drafted_BN = rank_N < order.count_B[:, None]
        at_BNL = (order.place_BN[..., None] == torch.arange(length, device=masked_BL.device)) & drafted_BN[..., None]
        return (has_XN[None, :, :, None] & at_BNL[:, None]).any(2)

    def next_steps(
        self, logits_BQV: Tensor, place_BXR: Tensor, left_BXL: Tensor, session: Session
    ) -> tuple[Tensor, Tensor]:
        """What one-token decoding would reveal in each state: place in the block and token, each (B, X)."""
        rows, states, masks = place_BXR.shape
        real_BXR = torch.arange(masks, device=place_BXR.device) < left_BXL.sum(2, keepdim=True)
        logits_YRV = logits_BQV.view(rows * states, masks, -1)
        tokens_YR, confidence_YR = session.sampler.draw(logits_YRV, None)
        real_YR = real_BXR.flatten(0, 1)
        estimator, edits_YR = session.decoder.estimator, torch.zeros_like(real_YR)
        seen = DraftStep(tokens_YR, confidence_YR, logits_YRV, real_YR, session.sampler, estimator, edits_YR)
        chosen_YR = session.decoder.unmask.select(seen, real_YR, torch.ones_like(real_YR[:, 0], dtype=torch.long))
        first_Y1 = chosen_YR.long().argmax(1, keepdim=True)
        place_BX = place_BXR.flatten(0, 1).gather(1, first_Y1).view(rows, states)
        return place_BX, tokens_YR.gather(1, first_Y1).view(rows, states)

    def walked(
        self,
        draft: DraftStep,
        order: Order,
        real_BX: Tensor,
        left_BXL: Tensor,
        seen: tuple[tuple[Tensor, Tensor], Tensor, Tensor],
    ) -> Verdict:
        """From the state after d1 along the states that the model agrees with; where it stops is the next draft."""
        (place_BX, token_BX), logits_BQV, place_BXR = seen
        agrees_BXN = (place_BX[..., None] == order.place_BN[:, None]) & (token_BX[..., None] == order.token_BN[:, None])
        drafted_BN = torch.arange(order.place_BN.shape[1], device=place_BX.device) < order.count_B[:, None]
        agrees_BXN &= real_BX[..., None] & drafted_BN[:, None]
        at_B = torch.zeros_like(order.count_B)
        revealed_BN = torch.zeros_like(order.place_BN)
        moved_B = torch.ones_like(order.count_B, dtype=torch.bool)
        num_B = torch.ones_like(order.count_B)
        child_XN = self.children(draft.masked_BL.shape[1]).to(at_B.device)
        for round_ in range(1, order.place_BN.shape[1]):
            choice_BN = agrees_BXN[torch.arange(len(at_B), device=at_B.device), at_B] & (child_XN[at_B] >= 0)
            moved_B = moved_B & choice_BN.any(1)
            token_B = choice_BN.long().argmax(1)
            revealed_BN[:, round_] = torch.where(moved_B, token_B, 0)
            num_B = num_B + moved_B
            at_B = torch.where(moved_B, child_XN[at_B, token_B], at_B)
        place_order_BN = order.place_BN.gather(1, revealed_BN)
        verdict = self.decided(draft, order, num_B, place_order_BN, real_BX.any(1))
        at_B1 = at_B[:, None]
        stopped_B = real_BX.gather(1, at_B1)[:, 0]
        index_BR = place_BXR[torch.arange(len(at_B), device=at_B.device), at_B]
        logits_BRV = pick(logits_BQV, at_B1 * place_BXR.shape[2] + torch.arange(place_BXR.shape[2], device=at_B.device))
        empty_BLV = logits_BQV.new_zeros(*draft.masked_BL.shape, logits_BQV.shape[-1])
        verdict.next_logits_BLV = empty_BLV.scatter(1, index_BR[..., None].expand_as(logits_BRV), logits_BRV)
        verdict.next_BL = left_BXL[torch.arange(len(at_B), device=at_B.device), at_B] & stopped_B[:, None]
        return verdict

    def children(self, positions: int) -> Tensor:
        """The state that each state becomes when a drafted token is added, (X, N); -1 where there is none."""
        states = self.states(positions)
        places = {one: place for place, one in enumerate(states)}
        drafted = range(min(self.nodes, positions))
        return torch.tensor([[-1 if n in one else places.get(one | {n}, -1) for n in drafted] for one in states])

    def decided(self, draft: DraftStep, order: Order, num_B: Tensor, place_BN: Tensor, verified_B: Tensor) -> Verdict:
        """The first `num` of these places get their drafted tokens, in this order."""
        rank_BN = torch.arange(place_BN.shape[1], device=num_B.device).expand_as(place_BN)
        taken_BN = (rank_BN < num_B[:, None]) & (order.count_B > 0)[:, None]
        spare_BN = torch.where(taken_BN, place_BN, draft.masked_BL.shape[1])  # a column that is cut off
        blank_BX = torch.full_like(draft.tokens_BL[:, :1], -1).expand(-1, draft.masked_BL.shape[1] + 1)
        rank_BL = blank_BX.scatter(1, spare_BN, rank_BN)[:, :-1]
        commit = Commit.nothing(draft.tokens_BL)
        commit = commit.add(draft.tokens_BL, rank_BL == 0, Source.UNMASKED)
        commit = commit.add(draft.tokens_BL, rank_BL > 0, Source.ACCEPTED)
        commit.rank_BL = rank_BL.clamp(min=0)
        return Verdict(commit, (rank_BL > 0).sum(1), verified_B)


def in_order(draft: DraftStep, session: Session, most: int) -> Order:
    """What the unmask rule would reveal, one by one, if the draft never changed."""
    left_BL, places = draft.masked_BL, []
    one_B = torch.ones_like(left_BL[:, 0], dtype=torch.long)
    for _ in range(most):
        chosen_BL = session.decoder.unmask.select(draft, left_BL, one_B)
        places.append(chosen_BL.long().argmax(1))
        left_BL = left_BL & ~chosen_BL
    place_BN = torch.stack(places, 1)
    return Order(place_BN, draft.tokens_BL.gather(1, place_BN), draft.masked_BL.sum(1).clamp(max=most))
