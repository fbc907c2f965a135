"""One run: decode a task's samples, score them, and keep every sample from the moment it is known.

The same command again goes on where the last one stopped: finished samples are read back, not decoded again.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from s2d2cli.config import RunConfig, record, run_id
from s2d2cli.decode import BatchResult, Decoder, Generation, Request, build_decoder
from s2d2cli.errors import TaskDataError
from s2d2cli.models import load_model
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.runs import store
from s2d2cli.runs.environment import differences, environment, placed
from s2d2cli.runs.interrupt import stop_signal
from s2d2cli.runs.progress import progress
from s2d2cli.runs.summary import alarms, summarise
from s2d2cli.tasks.base import DataSource, Sample, Task


def model_key(config: RunConfig) -> str:
    """Runs with equal keys can share a loaded model."""
    return repr((config.model, config.device, config.dtype, config.backend))


@dataclass
class Models:
    """The model loaded last: runs that share it do not load it again."""

    key: str = ""
    loaded: ModelAdapter | None = None

    def get(self, config: RunConfig) -> ModelAdapter:
        key = model_key(config)
        if self.loaded is None or key != self.key:
            self.loaded = None  # free the old one before the new one comes
            self.loaded, self.key = load_model(config), key
        return self.loaded


@dataclass
class Run:
    """A run in hand: its settings, its place on disk and what is known so far."""

    config: RunConfig
    folder: store.RunFolder
    samples: list[Sample]
    rows: dict[str, dict[str, Any]]
    record: dict[str, Any]
    interrupted: bool = False

    @property
    def task(self) -> Task:
        task: Task = self.config.task
        return task

    def todo(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.id not in self.rows]

    def keep(self, row: dict[str, Any]) -> None:
        self.folder.append(row)
        self.rows[row["id"]] = row

    def note(self, **entries: Any) -> None:
        """Bring run.json up to date with the rows and these entries."""
        ours = [self.rows[sample.id] for sample in self.samples if sample.id in self.rows]
        self.record.update(summarise(ours) | entries)
        self.folder.write(self.record)


@dataclass(frozen=True)
class Outcome:
    record: dict[str, Any]
    folder: Path
    interrupted: bool
    resumed: int = field(default=0)  # samples that were there already
    decoded: int = field(default=0)  # samples decoded by this call


def finished(config: RunConfig) -> bool:
    earlier = store.folder_of(config).record()
    return earlier is not None and earlier["status"] == "success" and not earlier["alarms"]["errors"]


def evaluate(config: RunConfig, models: Models, allow_code_execution: bool = False) -> Outcome:
    """Run, or go on with, this configuration. The task refuses what it must before a model loads."""
    source = config.task.prepare(allow_code_execution)
    samples = config.task.samples(config.limit)
    folder = store.folder_of(config)
    with folder.locked():
        run = begin(config, folder, samples, source)
        resumed = len(samples) - len(run.todo())
        with recorded(run):
            rescore(run)
            if run.todo():
                decode(run, models)
            run.note(status="started" if run.todo() else "success", error=None)
        return Outcome(run.record, folder.path, run.interrupted, resumed, len(samples) - len(run.todo()) - resumed)


def begin(config: RunConfig, folder: store.RunFolder, samples: list[Sample], source: DataSource) -> Run:
    """The record on disk from an earlier call, or a new one."""
    data = {"origin": source.origin, "sha256": source.sha256, "rows": source.rows, "task_version": config.task.version}
    fresh = {
        "schema": store.SCHEMA,
        "run_id": run_id(config),
        "status": "started",
        "config": record(config),
        "environment": environment(config.backend),
        "resumed_with": [],
        "data": data,
        "samples": len(samples),
        "first_prompt": None,
        "warm_up": None,
        **summarise([]),
        "error": None,
    }
    earlier = folder.record()
    if earlier is None:
        store.start(folder, fresh)
        return Run(config, folder, samples, folder.rows(), fresh)
    if earlier.get("schema") != store.SCHEMA or earlier["data"]["sha256"] != source.sha256:
        raise TaskDataError(
            f"{folder.path} was begun with other data than {source.origin} holds now, or by another version of s2d2; "
            f"move that folder away, or use another --results folder"
        )
    return Run(config, folder, samples, folder.rows(), earlier)


class recorded:
    """An error that ends a run is in its run.json, with the traceback; then it goes its way."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            text = "".join(traceback.format_exception(kind, error, trace))
            entry = {"type": type(error).__name__, "message": str(error), "traceback": text}
            self.run.note(status="error", error=entry)


def rescore(run: Run) -> None:
    """Judge again what could not be judged, from the text on disk and without a model."""
    for sample in run.samples:
        row = run.rows.get(sample.id)
        if row is not None and row["error"] is not None:
            run.keep(judged(row, run.task, sample))


def decode(run: Run, models: Models) -> None:
    """Batches of similar length, each written before the next begins; a batch's make-up does not change its tokens."""
    model = models.get(run.config)
    decoder = build_decoder(run.config)
    requests = encode(run, model, decoder)
    by_id = {sample.id: sample for sample in run.samples}
    run.note(warm_up=f"{requests[0].sample_id} decoded once before the clock started", **machine(run, model))
    decoder.generate(model, requests[:1])
    with stop_signal() as stop, progress(len(run.samples), len(run.samples) - len(requests)) as shown:
        for batch in batches(requests, run.config.batch_size):
            result = decoder.generate(model, batch)
            for row in rows_of(batch, result, model):
                run.keep(judged(row, run.task, by_id[row["id"]]))
            shown.advance(len(batch))
            if stop.requested:
                run.interrupted = bool(run.todo())
                return


def encode(run: Run, model: ModelAdapter, decoder: Decoder) -> list[Request]:
    """The prompts still to decode, shortest first; the first sample's prompt is kept word for word."""
    run.record["first_prompt"] = model.chat_prompt(run.samples[0].messages)
    requests = [Request(s.id, model.encode(model.chat_prompt(s.messages))) for s in run.todo()]
    decoder.check(model, requests)
    return sorted(requests, key=lambda request: len(request.prompt_ids))


def machine(run: Run, model: ModelAdapter) -> dict[str, Any]:
    """Where this call computes; if that is not where the run began, its speed mixes two machines and says so."""
    now = environment(run.config.backend) | placed(model)
    if not run.rows:
        return {"environment": now}
    changed = differences(run.record["environment"], now)
    return {"resumed_with": sorted({*run.record["resumed_with"], *changed})}


def batches(requests: Sequence[Request], size: int) -> Iterator[list[Request]]:
    for start in range(0, len(requests), size):
        yield list(requests[start : start + size])


def rows_of(batch: Sequence[Request], result: BatchResult, model: ModelAdapter) -> Iterator[dict[str, Any]]:
    shared = {
        "id": uuid4().hex[:8],
        "size": len(batch),
        "seconds": result.seconds,
        "forwards": dict(result.forwards),
        "query_rows": result.query_rows,
    }
    for request, generation in zip(batch, result.generations, strict=True):
        yield row_of(request, generation, model) | {"batch": shared}


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
