"""AR-ness: how close the order in which tokens were revealed is to left-to-right (DiffuCoder, 2506.20639, app. A.2).

Positions are those generated, up to and including the stop token, counted from 0. With p_t the position revealed at
time t and M the positions not yet revealed:

    local@k   share of times t >= k at which {p_{t-1}, ..., p_{t-k}} equals {p_t - 1, ..., p_t - k}
    global@k  share of times at which p_t is among the k smallest of M

The first k times have no k predecessors and do not count for local@k, so left-to-right scores 1 on both. Tokens that
one step decided together have no order among them, unless the decoder knows one (SSD does): `optimistic` reads them
left to right, `expected` is the mean over all orders within each step, worked out and not sampled. A token that was
edited later counts by the step that first decided its position; edits are counted beside. `chance` is the expected
score of random order inside each block: as if one step had decided the whole block.
"""

from __future__ import annotations

import statistics
from bisect import bisect, insort
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

from s2d2cli.runs.labels import labels
from s2d2cli.runs.orders import Decoded, Order

KS = (1, 2, 3, 4)

DEFINITIONS = {
    "local@k": "share of tokens whose k left neighbours were decided in the k times just before them, in any order; "
    "the first k tokens do not count",
    "global@k": "share of tokens that were among the k leftmost undecided ones when they were decided",
    "optimistic": "tokens of one step are read from left to right",
    "expected": "exact mean over all orders of the tokens within each step",
    "chance": "expected score of random order inside each block",
}


def expected_global(steps: Sequence[int], k: int) -> float:
    """global@k of tokens that were decided in these steps, the mean over all orders within a step.

    A token with `earlier` undecided ones of later steps before it, and `own` of its own step, is among the k smallest
    when fewer than k - earlier of the latter come after it; how many do is uniform on 0..own.
    """
    later: list[int] = []
    total = 0.0
    for group in reversed(groups(steps)):
        for own, position in enumerate(group):
            total += min(max(k - bisect(later, position), 0), own + 1) / (own + 1)
        for position in group:
            insort(later, position)
    return total / len(steps)


def expected_local(steps: Sequence[int], k: int) -> float | None:
    """local@k likewise; None when there are no more than k tokens."""
    if len(steps) <= k:
        return None
    found = groups(steps)
    number = {position: index for index, group in enumerate(found) for position in group}
    hits = (chance_of_neighbours(position, k, found, number) for position in range(k, len(steps)))
    return sum(hits) / (len(steps) - k)


def chance_of_neighbours(position: int, k: int, found: Sequence[Sequence[int]], number: dict[int, int]) -> float:
    """How likely the k left neighbours take the k times before `position` when each step's tokens come in any order."""
    index = number[position]
    needed = [number[position - j] for j in range(1, k + 1)]
    if max(needed) > index:
        return 0.0
    size, own = len(found[index]), needed.count(index)
    left = k - own
    # all of them in the step itself: anywhere in it, one behind the other; else they and the token open the step
    likely = 1 / comb(size, k) if left == 0 else 1 / (size * comb(size - 1, own))
    while left:
        index -= 1
        size, own = len(found[index]), needed.count(index)
        if own < min(left, size):
            return 0.0
        likely /= comb(size, own)
        left -= own
    return likely


def groups(steps: Sequence[int]) -> list[list[int]]:
    """The positions of each step, in the order of steps; each from left to right."""
    found: dict[int, list[int]] = {}
    for position, step in enumerate(steps):
        found.setdefault(step, []).append(position)
    return [found[step] for step in sorted(found)]


def left_to_right(steps: Sequence[int]) -> list[int]:
    """The times at which positions are revealed when the tokens of each step are read from the left."""
    times = [0] * len(steps)
    for time, position in enumerate(position for group in groups(steps) for position in group):
        times[position] = time
    return times


@dataclass(frozen=True)
class Level:
    """Means over the samples that have the score, for one k."""

    k: int
    local_optimistic: float | None
    local_expected: float | None
    local_chance: float | None
    local_n: int
    global_optimistic: float | None
    global_expected: float | None
    global_chance: float | None


@dataclass(frozen=True)
class Measured:
    """One decoder on one task."""

    task: str
    model: str
    decoder: str
    block_length: int
    router: str
    verifier: str | None  # None where nobody verifies
    origin: str
    n: int
    tokens: int
    edits: int
    tokens_per_step: float | None
    levels: list[Level]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def measure(sources: Sequence[Decoded], ks: Sequence[int] = KS) -> list[Measured]:
    """Score everything that was decoded; empty answers have no order and do not count."""
    named = labels([source.config for source in sources])
    return [one(source, name, ks) for source, name in zip(sources, named, strict=True)]


def one(source: Decoded, label: str, ks: Sequence[int]) -> Measured:
    orders = [order for order in source.orders if order.steps]
    tokens, steps = sum(len(order.steps) for order in orders), sum(len(set(order.steps)) for order in orders)
    config = source.config
    return Measured(
        task=config["task"]["kind"],
        model=config["model"]["name"],
        decoder=label,
        block_length=config["decode"]["block_length"],
        router=config["router"]["kind"],
        verifier=config.get("verifier", {}).get("kind"),
        origin=source.origin,
        n=len(orders),
        tokens=tokens,
        edits=sum(order.edits for order in orders),
        tokens_per_step=tokens / steps if steps else None,
        levels=[level(orders, k) for k in ks],
    )


def level(orders: Sequence[Order], k: int) -> Level:
    read = [left_to_right(order.times) for order in orders]
    return Level(
        k=k,
        local_optimistic=mean(expected_local(times, k) for times in read),
        local_expected=mean(expected_local(order.times, k) for order in orders),
        local_chance=mean(expected_local(order.blocks, k) for order in orders),
        local_n=sum(len(order.steps) > k for order in orders),
        global_optimistic=mean(expected_global(times, k) for times in read),
        global_expected=mean(expected_global(order.times, k) for order in orders),
        global_chance=mean(expected_global(order.blocks, k) for order in orders),
    )


def mean(scores: Iterable[float | None]) -> float | None:
    values = [score for score in scores if score is not None]
    return statistics.fmean(values) if values else None
