"""One run: decode a task's samples, score them, and keep every sample from the moment it is known.

The same command again goes on where the last one stopped: finished samples are read back, not decoded again.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from s2d2cli import plugins
from s2d2cli.config import RunConfig, record, run_id
from s2d2cli.decode import Decoder, Request, StepLog, build_decoder
from s2d2cli.effect import without_effect
from s2d2cli.errors import CheckpointError, TaskDataError
from s2d2cli.models import load_model, pick_device
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.runs import store
from s2d2cli.runs.environment import UNKNOWN, differences, environment, model_files, placed, planned
from s2d2cli.runs.interrupt import stop_signal
from s2d2cli.runs.progress import progress
from s2d2cli.runs.rows import judged, rows_of
from s2d2cli.runs.summary import summarise
from s2d2cli.runs.trace import TraceFile, open_trace
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
    rebuilt: bool = False  # run.json was lost, and is made again from the rows

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
        if self.todo():  # the shortest prompts come first, so no interval says how far off this accuracy is
            self.record["interval"] = None
        self.folder.write(self.record)


@dataclass(frozen=True)
class Outcome:
    record: dict[str, Any]
    folder: Path
    interrupted: bool
    resumed: int = field(default=0)  # samples that were there already
    decoded: int = field(default=0)  # samples decoded by this call


def finished(config: RunConfig) -> bool:
    """Whether the result is on disk already; refused when it came from other weights than there are now."""
    folder = store.folder_of(config)
    earlier = folder.kept()
    if earlier is None or earlier.get("schema") != store.SCHEMA:
        return False
    done: bool = earlier["status"] == "success" and not earlier["alarms"]["errors"]
    if done:
        need_same_weights(folder, earlier, model_files(config.model.source, config.model.revision))
    return done


def need_same_weights(folder: store.RunFolder, earlier: dict[str, Any], files: dict[str, Any] | None) -> None:
    """`files` is None while the checkpoint is not here; runs of older versions did not note theirs."""
    before = earlier.get("model_files")
    if before and files and before != files:
        changed = sorted(name for name in before.keys() | files.keys() if before.get(name) != files.get(name))
        raise CheckpointError(
            f"{folder.path} was begun with other weights or other files beside them than the model has now "
            f"({', '.join(changed)}); move that folder away, or use another --results folder"
        )


def evaluate(
    config: RunConfig, models: Models, allow_code_execution: bool = False, trace: Path | None = None
) -> Outcome:
    """Run, or go on with, this configuration. The task refuses what it must before a model loads.

    With `trace`, every step of the samples decoded now goes to that file, and the time this takes into their seconds.
    """
    source = config.task.prepare(allow_code_execution)
    pick_device(config.device)  # a device that is not there leaves no run behind
    samples = config.task.samples(config.limit)
    folder = store.folder_of(config)
    with folder.locked():
        run = begin(config, folder, samples, source)
        resumed = len(samples) - len(run.todo())
        trace_file = open_trace(trace, config, goes_on=bool(run.rows)) if trace and run.todo() else None
        with recorded(run):
            rescore(run)
            if run.todo():
                decode(run, models, trace_file)
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
        "without_effect": without_effect(config),
        "plugins": [asdict(plugin) for plugin in plugins.LOADED.values()],
        "model_files": model_files(config.model.source, config.model.revision),
        "environment": environment(config.backend),
        "resumed_with": [],
        "data": data,
        "samples": len(samples),
        "first_prompt": None,
        "warm_up": None,
        **summarise([]),
        "error": None,
    }
    earlier, rows = folder.kept(), folder.rows()
    if earlier is None:
        if rows:  # run.json was lost: what only it knew is unknown now
            fresh |= {"environment": planned(config), "first_prompt": UNKNOWN, "warm_up": UNKNOWN}
        store.start(folder, fresh)
        return Run(config, folder, samples, rows, fresh, rebuilt=bool(rows))
    if earlier.get("schema") != store.SCHEMA or earlier["data"]["sha256"] != source.sha256:
        raise TaskDataError(
            f"{folder.path} was begun with other data than {source.origin} holds now, or by another version of s2d2; "
            f"move that folder away, or use another --results folder"
        )
    need_same_weights(folder, earlier, fresh["model_files"])
    return Run(config, folder, samples, rows, earlier)


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


def decode(run: Run, models: Models, trace: TraceFile | None) -> None:
    """Batches of similar length, each written before the next begins; a batch's make-up does not change its tokens."""
    model = models.get(run.config)
    decoder = build_decoder(run.config)
    requests = encode(run, model, decoder)
    by_id = {sample.id: sample for sample in run.samples}
    run.note(warm_up=f"{requests[0].sample_id} decoded once before the clock started", **machine(run, model))
    decoder.generate(model, requests[:1])
    with stop_signal() as stop, progress(len(run.samples), len(run.samples) - len(requests)) as shown:
        for batch in batches(requests, run.config.batch_size):
            log = StepLog() if trace else None
            result = decoder.generate(model, batch, observer=log)
            if trace and log:
                trace.write(batch, log, model)
            for row in rows_of(batch, result, model, log):
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
    if not run.rows or run.rebuilt:
        model_now = run.config.model  # a checkpoint from the hub is here only now
        return {"environment": now, "model_files": model_files(model_now.source, model_now.revision)}
    changed = differences(run.record["environment"], now)
    return {"resumed_with": sorted({*run.record["resumed_with"], *changed})}


def batches(requests: Sequence[Request], size: int) -> Iterator[list[Request]]:
    for start in range(0, len(requests), size):
        yield list(requests[start : start + size])
