"""A batch's result as the lines of samples.jsonl: what was decoded, what it cost, and how it was judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from s2d2cli.decode import BatchResult, Generation, Request, StepLog
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.runs.summary import alarms
from s2d2cli.runs.verification import estimates
from s2d2cli.tasks.base import Sample, Task


def rows_of(
    batch: Sequence[Request], result: BatchResult, model: ModelAdapter, log: StepLog | None
) -> Iterator[dict[str, Any]]:
    """A line per sample, unjudged; a traced one also has what its verifications were expected to accept and did."""
    shared = {
        "id": uuid4().hex[:8],
        "size": len(batch),
        "seconds": result.seconds,
        "forwards": dict(result.forwards),
        "query_rows": result.query_rows,
    }
    for request, generation in zip(batch, result.generations, strict=True):
        traced = {} if log is None else {"estimates": estimates(log.steps[request.sample_id])}
        yield row_of(request, generation, model) | traced | {"batch": shared}


def row_of(request: Request, generation: Generation, model: ModelAdapter) -> dict[str, Any]:
    assert request.sample_id == generation.sample_id
    sources = generation.sources
    return {
        "id": generation.sample_id,
        "text": model.text(generation.token_ids),
        "prompt_tokens": len(request.prompt_ids),
        "tokens": len(generation.token_ids),
        "token_ids": list(generation.token_ids),
        "finish": generation.finish,
        "masked": model.mask_id in generation.token_ids,
        "forwards": dict(generation.forwards),
        "accepted": generation.accepted,
        "verified": generation.verified,
        "drafted_steps": generation.drafted_steps,
        "sources": {name: sources.count(name) for name in sorted(set(sources))},
    }


def judged(row: dict[str, Any], task: Task, sample: Sample) -> dict[str, Any]:
    """The row with its score. A scorer that crashes costs this sample its score, not the run its work."""
    try:
        score = task.score(sample, row["text"])
        verdict = {"correct": score.correct, "extracted": score.extracted, "detail": score.detail, "error": None}
    except Exception as error:
        crash = f"{type(error).__name__}: {error}"
        verdict = {"correct": False, "extracted": None, "detail": {}, "error": crash}
    scored = row | verdict
    return scored | {"alarms": alarms(scored)}
