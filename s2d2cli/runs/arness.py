"""AR-ness: how close the order in which tokens were revealed is to left-to-right (DiffuCoder, 2506.20639, app. A.2).

Positions are those generated, up to and including the stop token, counted from 0. With p_t the position revealed at
time t and M the positions not yet revealed:

    local@k   share of times t >= k at which {p_{t-1}, ..., p_{t-k}} equals {p_t - 1, ..., p_t - k}
    global@k  share of times at which p_t is among the k smallest of M

The first k times have no k predecessors and do not count for local@k, so left-to-right scores 1 on both. Tokens that
one step decided together have no order among them: `optimistic` reads them left to right, `expected` is the mean over
seeded shuffles within each step.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from s2d2cli.config import RunConfig
from s2d2cli.decode import Generation, Request, build_decoder
from s2d2cli.models import load_model
from s2d2cli.runs.progress import progress
from s2d2cli.runs.rows import prompt_of

KS = (1, 2, 3, 4)
SHUFFLES = 32


@dataclass(frozen=True)
class ArNess:
    """One order's scores; local is None when there are not more than k tokens."""

    local: float | None
    global_: float


def ar_ness(reveal_steps: Sequence[int], k: int, shuffles: int = 0, seed: int = 0) -> ArNess:
    """AR-ness@k of a generation whose i-th token was decided in step reveal_steps[i]; 0 shuffles is optimistic."""
    rng = random.Random(seed)
    orders = [shuffled(reveal_steps, rng) for _ in range(shuffles)] or [left_to_right(reveal_steps)]
    scores = [of_order(order, k) for order in orders]
    local = None if scores[0].local is None else statistics.fmean(score.local or 0.0 for score in scores)
    return ArNess(local, statistics.fmean(score.global_ for score in scores))


def of_order(order: Sequence[int], k: int) -> ArNess:
    """The definitions above, for one order without ties."""
    hits = [set(order[t - k : t]) == {order[t] - j for j in range(1, k + 1)} for t in range(k, len(order))]
    return ArNess(statistics.fmean(hits) if hits else None, statistics.fmean(ranks_below(order, k)))


def ranks_below(order: Sequence[int], k: int) -> list[bool]:
    """For each time, whether the position is among the k smallest that remain."""
    remaining = sorted(order)
    found = []
    for position in order:
        found.append(position in remaining[:k])
        remaining.remove(position)
    return found


def left_to_right(reveal_steps: Sequence[int]) -> list[int]:
    return sorted(range(len(reveal_steps)), key=lambda position: (reveal_steps[position], position))


def shuffled(reveal_steps: Sequence[int], rng: random.Random) -> list[int]:
    keys = [(step, rng.random()) for step in reveal_steps]
    return sorted(range(len(keys)), key=keys.__getitem__)


@dataclass(frozen=True)
class Level:
    """Means over the samples that have the score, for one k."""

    k: int
    local_optimistic: float | None
    local_expected: float | None
    local_chance: float | None
    local_n: int
    global_optimistic: float
    global_expected: float
    global_chance: float


@dataclass(frozen=True)
class Measured:
    n: int
    tokens: int
    tokens_per_step: float
    block_length: int
    router: str
    levels: list[Level]

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"remarks": self.remarks}

    @property
    def remarks(self) -> list[str]:
        """What the numbers do not say by themselves."""
        ties = "so `optimistic` and `expected` are the same" if self.tokens_per_step == 1 else "see the two columns"
        found = [f"{self.tokens_per_step:.2f} tokens per step, {ties}. chance: random order inside each block."]
        if self.router != "never":
            found.append("Verified tokens come left to right by construction: this measures the router, not the model.")
        short = [str(level.k) for level in self.levels if level.local_n < self.n]
        if short:
            found.append(
                f"k={', '.join(short)}: samples of no more than k tokens have no local@k and are left out of it."
            )
        return found


def of_run(config: RunConfig) -> Measured:
    """Decode the first `limit` samples of the task and measure their reveal order; nothing is scored or kept."""
    config.task.prepare(True)  # nothing that the model writes is run here
    samples = config.task.samples(config.limit)
    model, decoder = load_model(config), build_decoder(config)
    requests = [Request(sample.id, model.encode(prompt_of(model, sample))) for sample in samples]
    found: dict[str, Generation] = {}
    with progress(len(requests), 0) as shown:
        for generation in decoder.session(model, requests, config.batch_size).results():
            found[generation.sample_id] = generation
            shown.advance(1)
    assert config.decode.block_length is not None
    generations = [found[request.sample_id] for request in requests]
    return measure(requests, generations, config.decode.block_length, config.router.kind)


def measure(
    requests: Sequence[Request], generations: Sequence[Generation], block_length: int, router: str = "never"
) -> Measured:
    """Score every generation that has tokens, and the chance level of random order inside the same blocks."""
    pairs = [(r, g) for r, g in zip(requests, generations, strict=True) if g.token_ids]
    steps = [g.reveal_steps for _, g in pairs]
    blocks = [blocks_of(len(r.prompt_ids), len(g.token_ids), block_length) for r, g in pairs]
    tokens = sum(len(s) for s in steps)
    levels = [level(steps, blocks, k) for k in KS] if steps else []
    per_step = tokens / max(1, sum(len(set(s)) for s in steps))
    return Measured(len(steps), tokens, per_step, block_length, router, levels)


def blocks_of(prompt_length: int, tokens: int, block_length: int) -> list[int]:
    """The block of each new token; a prompt that ends inside a block leaves a shorter first one."""
    return [(prompt_length + i) // block_length for i in range(tokens)]


def level(steps: Sequence[Sequence[int]], blocks: Sequence[Sequence[int]], k: int) -> Level:
    optimistic = [ar_ness(s, k) for s in steps]
    expected = [ar_ness(s, k, SHUFFLES, seed) for seed, s in enumerate(steps)]
    chance = [ar_ness(b, k, SHUFFLES, seed) for seed, b in enumerate(blocks)]  # random order = one tie per block
    return Level(
        k=k,
        local_optimistic=mean_local(optimistic),
        local_expected=mean_local(expected),
        local_chance=mean_local(chance),
        local_n=sum(score.local is not None for score in optimistic),
        global_optimistic=mean_global(optimistic),
        global_expected=mean_global(expected),
        global_chance=mean_global(chance),
    )


def mean_global(scores: Sequence[ArNess]) -> float:
    return statistics.fmean(score.global_ for score in scores)


def mean_local(scores: Sequence[ArNess]) -> float | None:
    values = [score.local for score in scores if score.local is not None]
    return statistics.fmean(values) if values else None


def table(measured: Measured) -> Table:
    """For the terminal: a row per k."""
    title = f"AR-ness@k, mean of {measured.n} samples, block length {measured.block_length}"
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    kinds = [f"{scope}\n{kind}" for scope in ("local", "global") for kind in ("optimistic", "expected", "chance")]
    for name in ("k", *kinds, "n for\nlocal"):
        grid.add_column(name, justify="right")
    for one in measured.levels:
        local = (one.local_optimistic, one.local_expected, one.local_chance)
        whole = (one.global_optimistic, one.global_expected, one.global_chance)
        cells = ["-" if value is None else f"{value:.3f}" for value in (*local, *whole)]
        grid.add_row(str(one.k), *cells, str(one.local_n))
    return grid
