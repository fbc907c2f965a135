"""What is asked of a decoder, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from s2d2cli.decode.meter import KINDS, Bill, Cost
from s2d2cli.decode.state import BlockState, Source


@dataclass(frozen=True)
class Request:
    """One prompt. The id names the sample's random stream."""

    sample_id: str
    prompt_ids: list[int]


@dataclass(frozen=True)
class Generation:
    """What one request got."""

    sample_id: str
    token_ids: list[int]  # new ids up to and including the stop token
    finish: str  # "stop" or "length"
    reveal_steps: list[int]  # the row's step that first decided each token; equal numbers were decided together
    sources: list[str]  # how each token came to be: unmasked, accepted, resampled, edited
    forwards: dict[str, int]  # forwards that this row took part in, by kind
    drafted_steps: int
    verified: int  # steps that were verified
    accepted: int  # new tokens that were drafted, accepted and not edited; none behind the stop token
    reveal_order: list[int] = field(default_factory=list)  # how many new tokens were decided before each
    edits: int = 0  # how often a decided token was replaced
    bill: Bill = field(default=Bill(Cost(), 0.0), compare=False)  # depends on the company; the rest does not


@dataclass(frozen=True)
class BatchResult:
    """A batch's generations and what they cost together. Seconds cover decoding only, prefill included."""

    generations: list[Generation]
    forwards: dict[str, int]  # of the whole batch, by kind
    cost: Cost

    @property
    def seconds(self) -> float:
        return self.cost.total_s

    @property
    def query_rows(self) -> int:
        return round(self.cost.query_rows)


def generations(requests: Sequence[Request], state: BlockState, stop_ids: Sequence[int]) -> list[Generation]:
    """Each row's result as far as it is decided, on the host: one transfer per tensor."""
    columns = [
        tensor.tolist()
        for tensor in (
            state.canvas_BT,
            state.reveal_step_BT,
            state.order_BT,
            state.source_BT,
            state.edits_BT,
            state.forwards_BK,
            state.step_B,
            state.verified_B,
            state.prompt_len_B,
            state.end_B,
        )
    ]
    results = []
    for request, row in zip(requests, zip(*columns, strict=True), strict=True):
        canvas, reveal_steps, order, sources, edits, forwards, steps, verified, low, end = row
        high, finish = cut(canvas, low, end, stop_ids, state.mask_id)
        results.append(
            Generation(
                sample_id=request.sample_id,
                token_ids=canvas[low:high],
                finish=finish,
                reveal_steps=reveal_steps[low:high],
                reveal_order=order[low:high],
                sources=[Source(source).name.lower() for source in sources[low:high]],
                edits=sum(edits[low:high]),
                forwards={kind.value: count for kind, count in zip(KINDS, forwards, strict=True)},
                drafted_steps=steps,
                verified=verified,
                accepted=sources[low:high].count(Source.ACCEPTED),
            )
        )
    return results


def cut(canvas: list[int], low: int, end: int, stop_ids: Sequence[int], mask_id: int) -> tuple[int, str]:
    """Where the generation ends: behind its first stop token, at its length, or (midway) at its first mask."""
    for position in range(low, end):
        if canvas[position] in stop_ids:
            return position + 1, "stop"
        if canvas[position] == mask_id:
            return position, "length"
    return end, "length"
