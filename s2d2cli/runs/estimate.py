"""How much a sweep has before it, from what finished points took; without those, a bound on its forwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from s2d2cli.config import RunConfig, record
from s2d2cli.errors import S2D2Error
from s2d2cli.runs.report import is_done
from s2d2cli.runs.store import Record, RunFolder


@dataclass(frozen=True)
class Estimate:
    """Of one point: going by finished points if it has seconds, else a bound; None where nothing is known."""

    forwards: float | None
    seconds: float | None = None
    foreign: bool = False  # none of the finished points decodes in the same way: may be far off

    def __str__(self) -> str:
        if self.forwards is None:
            return "no estimate yet"
        if self.seconds is None:
            return f"at most {self.forwards:,.0f} forwards"
        if self.foreign:
            return f"perhaps {self.forwards:,.0f} forwards, {duration(self.seconds)}, going by other decoders"
        return f"about {self.forwards:,.0f} forwards, {duration(self.seconds)}"


def duration(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@dataclass
class Measured:
    """The finished runs of a results folder."""

    records: list[Record]
    sizes: dict[str, int | None] = field(default_factory=dict)  # of each task's data

    @classmethod
    def of(cls, results: Path) -> Measured:
        found = [RunFolder(path.parent).record() for path in sorted(results.glob("*/run.json"))]
        return cls([r for r in found if r is not None and is_done(r) and r["n"] and r["speed"]])

    def estimate(self, config: RunConfig) -> Estimate:
        plain = json.loads(json.dumps(record(config)))
        similar = [r for r in self.records if alike(r["config"], plain)]
        bounds = [bound for bound in (config.limit, self.size(config)) if bound is not None]
        if not bounds:
            return Estimate(None)
        attempts = min(bounds) * config.repeats
        if not similar:
            return Estimate(attempts * most_forwards(config))
        same = [r for r in similar if decodes(r["config"]) == decodes(plain)]
        used = same or similar
        forwards = median(sum(r["speed"]["forwards"].values()) / r["n"] for r in used)
        seconds = median(r["speed"]["seconds"] / r["n"] for r in used)
        return Estimate(attempts * forwards, attempts * seconds, foreign=not same)

    def size(self, config: RunConfig) -> int | None:
        """The samples of the task without a limit; None where it does not let us see them (the run itself says why)."""
        key = repr(config.task)
        if key not in self.sizes:
            try:
                self.sizes[key] = config.task.prepare(False).rows
            except S2D2Error:
                self.sizes[key] = None
        return self.sizes[key]


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one.get(key) == other[key] for key in ("model", "draft_model", "task"))


def decodes(config: dict[str, Any]) -> tuple[Any, ...]:
    """What a point must share with another to take about as long for a sample; thresholds matter less."""
    kinds = (config[group]["kind"] for group in ("router", "unmask", "verifier"))
    machine = (config[key] for key in ("device", "dtype", "batch_size"))
    return (*kinds, *machine, config["decode"]["block_length"], config["decode"]["denoising_steps"])


def most_forwards(config: RunConfig) -> int:
    """Of one sample: the prompt, and for each token at most a draft and, with a router that verifies, a verification;
    for each block one more where the cache is written apart. A draft model reads the prompt too, and drafts step by
    step."""
    tokens, length = config.decode.max_new_tokens or 0, config.decode.block_length or 1
    blocks = -(-tokens // length)
    steps = blocks * length
    drafts = 1 if config.draft_model is None else config.decode.denoising_steps or 1
    prompts = 1 + (config.draft_model is not None)
    verifications = steps * getattr(config.router, "verifies", True)
    return prompts + steps * drafts + verifications + blocks * (config.decode.commit == "separate")


def total(estimates: Sequence[Estimate], workers: int) -> str:
    """All that is to do, in a sentence."""
    if any(e.forwards is None for e in estimates):
        return "no estimate yet: it comes with the first finished point of each task and model"
    forwards = f"{sum(e.forwards or 0 for e in estimates):,.0f} forwards"
    if any(e.seconds is None for e in estimates):
        return f"at most {forwards}; no estimate of the time yet"
    seconds = sum(e.seconds or 0 for e in estimates) / max(1, min(workers, len(estimates)))
    on = f" on {workers} workers" if workers > 1 else ""
    foreign = sum(e.foreign for e in estimates)
    others = f"; for {foreign} of {len(estimates)} by those of other decoders, maybe far off" if foreign else ""
    return f"about {forwards}, {duration(seconds)}{on}, going by finished points{others}"
