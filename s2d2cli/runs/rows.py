"""A finished answer as a line of samples.jsonl: what was decoded, what it cost, and how it was judged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from s2d2cli import plugins
from s2d2cli.decode import Generation
from s2d2cli.decode.meter import Bill
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.runs.summary import alarms
from s2d2cli.tasks.base import Sample, Task

VERDICT = ("correct", "extracted", "measures", "detail", "error", "alarms")  # what judging adds to a line
REPEAT_MARK = "#"


@dataclass(frozen=True)
class Attempt:
    """A sample to be decoded for the `repeat`-th time, with random numbers of its own: those of `sample.id`."""

    sample: Sample
    problem: str
    repeat: int

    @property
    def id(self) -> str:
        return self.sample.id


def attempts(samples: Sequence[Sample], repeats: int) -> list[Attempt]:
    """The first repeat keeps the sample's id, so its tokens are those of a run without repeats."""
    again = [
        Attempt(replace(sample, id=f"{sample.id}{REPEAT_MARK}{repeat}"), sample.id, repeat)
        for repeat in range(1, repeats)
        for sample in samples
    ]
    return [*(Attempt(sample, sample.id, 0) for sample in samples), *again]


def prompt_of(model: ModelAdapter, sample: Sample) -> str:
    """What the model reads, word for word."""
    return model.chat_prompt(sample.messages) if sample.raw is None else sample.raw


@dataclass(frozen=True)
class Prompt:
    """An attempt as the model will see it."""

    attempt: Attempt
    text: str
    ids: list[int]


def prompts(model: ModelAdapter, chosen: Sequence[Attempt]) -> Iterator[Prompt]:
    for attempt in chosen:
        text = prompt_of(model, attempt.sample)
        yield Prompt(attempt, text, model.encode(text))


def row_of(prompt: Prompt, generation: Generation, model: ModelAdapter) -> dict[str, Any]:
    """A line, not yet judged."""
    assert prompt.attempt.id == generation.sample_id
    sources = generation.sources
    return {
        "id": generation.sample_id,
        "problem": prompt.attempt.problem,
        "repeat": prompt.attempt.repeat,
        "prompt_sha256": hashlib.sha256(prompt.text.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        "text": model.text(generation.token_ids),
        "prompt_tokens": len(prompt.ids),
        "tokens": len(generation.token_ids),
        "token_ids": list(generation.token_ids),
        "reveal_steps": list(generation.reveal_steps),
        "reveal_order": list(generation.reveal_order),
        "edits": generation.edits,
        "finish": generation.finish,
        "masked": model.mask_id in generation.token_ids,
        "forwards": dict(generation.forwards),
        "accepted": generation.accepted,
        "verified": generation.verified,
        "drafted_steps": generation.drafted_steps,
        "sources": {name: sources.count(name) for name in sorted(set(sources))},
        "cost": cost_of(generation.bill),
    }


def cost_of(bill: Bill) -> dict[str, Any]:
    share = bill.share
    return {
        "seconds": dict(share.seconds),
        "latency_s": bill.latency_s,
        "forwards": share.forwards,
        "query_rows": share.query_rows,
    }


def judged(row: dict[str, Any], task: Task, sample: Sample) -> dict[str, Any]:
    """The row with its score. A scorer that crashes costs this sample its score, not the run its work."""
    try:
        score = task.score(sample, row["text"])
        measures = {name: list(counts) for name, counts in score.measures.items()}
        verdict = {"correct": score.correct, "extracted": score.extracted, "measures": measures, "detail": score.detail}
        error = None
    except Exception as failure:
        verdict = {"correct": False, "extracted": None, "measures": {}, "detail": {}}
        error = plugins.told(failure)
    scored = row | verdict | {"error": error}
    return scored | {"alarms": alarms(scored)}
