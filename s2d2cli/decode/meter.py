"""What decoding costs: seconds by phase, forwards, token rows; for the whole batch, and each sample's fair share.

A share is what the samples at work together cost, divided by their number, from the step in which a sample entered to
the one in which it left. So the shares of all samples add up to the whole, however batches were made up, and a run that
is killed and goes on only loses what its unfinished samples had cost.

Axes: B rows, K kinds of forward.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from s2d2cli.models.plan import ForwardPlan, Kind

KINDS = list(Kind)
OTHER = "other"  # routing, revealing, bookkeeping
PHASES = (*(kind.value for kind in KINDS), OTHER)


@dataclass
class Cost:
    """Seconds by phase, forwards, and token rows sent through the model, padding included."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    forwards: float = 0.0
    query_rows: float = 0.0

    def plus(self, other: Cost, times: float = 1.0) -> Cost:
        seconds = {phase: self.seconds[phase] + times * other.seconds[phase] for phase in PHASES}
        return Cost(seconds, self.forwards + times * other.forwards, self.query_rows + times * other.query_rows)

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Bill:
    """What one sample cost: its share, and how long it was in the batch."""

    share: Cost
    latency_s: float


class Meter:
    """Time runs from `start` to the last `lap`; what lies between a lap and the next `start` belongs to nobody."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.forwards = {kind.value: 0 for kind in KINDS}  # of the whole batch
        self.whole = Cost()
        self._open = Cost()  # since the last charge
        self._stamps: list[tuple[str, Any]] = []
        self._made: set[str] = set()  # kinds of the forwards since the last lap
        self._per_row = Cost()  # what a sample that was there from the beginning would have to bear
        self._entry: dict[int, tuple[Cost, float]] = {}

    def start(self) -> None:
        self._stamps = [("", self._stamp())]

    def lap(self, phase: str) -> None:
        """The time since the last lap was spent on `phase`, if it made a forward; what needs none is bookkeeping."""
        self._stamps.append((phase if phase in self._made else OTHER, self._stamp()))
        self._made.clear()

    def forward(self, plan: ForwardPlan, rows_B: Tensor, forwards_BK: Tensor) -> None:
        """One forward; `rows_B` took part in it."""
        forwards_BK[:, KINDS.index(plan.kind)] += rows_B
        self.forwards[plan.kind.value] += 1
        self._made.add(plan.kind.value)
        self._open.forwards += 1
        self._open.query_rows += plan.tokens_BQ.numel()

    def charge(self, rows: int) -> None:
        """Everything since the last charge was for these `rows` samples, all that are at work."""
        self._per_row = self._per_row.plus(self._close(), 1 / rows)

    def enter(self, numbers: list[int]) -> None:
        """Everything since the last charge was to let these samples in."""
        began = self.whole.total_s
        base = self._per_row.plus(self._close(), -1 / len(numbers))
        self._entry |= dict.fromkeys(numbers, (base, began))

    def leave(self, number: int) -> Bill:
        base, began = self._entry.pop(number)
        return Bill(self._per_row.plus(base, -1), self.whole.total_s - began)

    def _close(self) -> Cost:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        closed, self._open = self._open, Cost()
        for (_, before), (phase, after) in zip(self._stamps, self._stamps[1:], strict=False):
            closed.seconds[phase] += self._between(before, after)
        self._stamps = self._stamps[-1:]
        self.whole = self.whole.plus(closed)
        return closed

    def _stamp(self) -> Any:
        """On a GPU an event in its queue: its phases are told apart without waiting for each."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _between(self, before: Any, after: Any) -> float:
        seconds: float = after - before if self.device.type != "cuda" else before.elapsed_time(after) / 1000
        return seconds
