"""One run: decode a task's samples, score them, and keep every sample from the moment it is known.

The same command again goes on where the last one stopped: finished samples are read back, not decoded again.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from s2d2cli import plugins
from s2d2cli.config import RunConfig, record, run_id
from s2d2cli.decode import Request, StepLog, build_decoder
from s2d2cli.decode.cost_aware import rows_at_most
from s2d2cli.effect import without_effect
from s2d2cli.errors import CheckpointError, TaskDataError
from s2d2cli.folders import user_folders
from s2d2cli.lossless import lossless
from s2d2cli.models import load_model, pick_device
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.models.cost_curve import CostCurve, measure
from s2d2cli.runs import store
from s2d2cli.runs.environment import (
    UNKNOWN,
    differences,
    environment,
    peak_memory,
    placed,
    planned,
    run_files,
    watch_memory,
)
from s2d2cli.runs.interrupt import stop_signal
from s2d2cli.runs.progress import progress
from s2d2cli.runs.rows import Attempt, Prompt, attempts, judged, prompt_of, prompts, row_of
from s2d2cli.runs.summary import summarise
from s2d2cli.runs.trace import TraceFile, open_trace
from s2d2cli.runs.verification import estimates, near_threshold
from s2d2cli.tasks.base import DataSource, Task

LOG = logging.getLogger(__name__)


def model_key(config: RunConfig) -> str:
    """Runs with equal keys can share a loaded model."""
    beside = config.draft_model and (config.draft_model, config.draft_device)
    return repr((config.model, config.device, config.dtype, config.backend, beside))


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
    attempts: list[Attempt]
    rows: dict[str, dict[str, Any]]
    record: dict[str, Any]
    interrupted: bool = False
    rebuilt: bool = False  # run.json was lost, and is made again from the rows

    @property
    def task(self) -> Task:
        task: Task = self.config.task
        return task

    def todo(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.id not in self.rows]

    def keep(self, row: dict[str, Any]) -> None:
        self.folder.append(row)
        self.rows[row["id"]] = row

    def note(self, **entries: Any) -> None:
        """Bring run.json up to date with the rows and these entries."""
        ours = [self.rows[attempt.id] for attempt in self.attempts if attempt.id in self.rows]
        self.record.update(summarise(ours) | entries)
        if self.todo():  # the shortest prompts come first, so no interval says how far off this accuracy is
            for share in (self.record, *self.record["measures"].values()):
                share["interval"] = None
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
        need_same_weights(folder, earlier, run_files(config))
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
    config: RunConfig,
    models: Models,
    allow_code_execution: bool = False,
    trace: Path | None = None,
    cost_curve: dict[str, Any] | None = None,
) -> Outcome:
    """Run, or go on with, this configuration. The task refuses what it must before a model loads.

    With `trace`, every step of the samples decoded now goes to that file, and the time this takes into their seconds.
    `cost_curve` is that of another run's record, to decide as it did.
    """
    source = config.task.prepare(allow_code_execution)
    pick_device(config.device)  # a device that is not there leaves no run behind
    folder = store.folder_of(config)
    with folder.locked():
        run = begin(config, folder, source)
        run.record["cost_curve"] = run.record.get("cost_curve") or cost_curve
        resumed = len(run.attempts) - len(run.todo())
        trace_file = open_trace(trace, config, goes_on=bool(run.rows)) if trace and run.todo() else None
        with recorded(run):
            rescore(run)
            if run.todo():
                decode(run, models, trace_file)
            run.note(status="started" if run.todo() else "success", error=None)
        decoded = len(run.attempts) - len(run.todo()) - resumed
        return Outcome(run.record, folder.path, run.interrupted, resumed, decoded)


def begin(config: RunConfig, folder: store.RunFolder, source: DataSource) -> Run:
    """The record on disk from an earlier call, or a new one."""
    chosen = attempts(config.task.samples(config.limit), config.repeats)
    fresh = {
        "schema": store.SCHEMA,
        "run_id": run_id(config),
        "status": "started",
        "config": record(config),
        "without_effect": without_effect(config),
        "lossless": lossless(config),
        "plugins": [asdict(plugin) for plugin in plugins.LOADED.values()],
        "config_folders": [str(folder) for folder in user_folders()],
        "model_files": run_files(config),
        "environment": environment(config.backend),
        "resumed_with": [],
        "data": asdict(source) | {"task_version": config.task.version},
        "facts": facts(config.task),
        "samples": len(chosen),
        "first_prompt": None,
        "warm_up": None,
        "memory": None,
        **summarise([]),
        "error": None,
    }
    earlier, rows = folder.kept(), folder.rows()
    LOG.info("%s holds %s of %s samples, data from %s", folder.path, len(rows), len(chosen), source.origin)
    if earlier is None:
        if rows:  # run.json was lost: what only it knew is unknown now
            fresh |= {"environment": planned(config), "first_prompt": UNKNOWN, "warm_up": UNKNOWN}
        store.start(folder, fresh)
        return Run(config, folder, chosen, rows, fresh, rebuilt=bool(rows))
    if earlier.get("schema") != store.SCHEMA or earlier["data"]["sha256"] != source.sha256:
        raise TaskDataError(
            f"{folder.path} was begun with other data than {source.origin} holds now, or by another version of s2d2; "
            f"move that folder away, or use another --results folder"
        )
    if rows:  # nothing decoded is lost by beginning with other weights
        need_same_weights(folder, earlier, fresh["model_files"])
    earlier["resumed_with"] = sorted({*earlier["resumed_with"], *differences(earlier["facts"], fresh["facts"])})
    return Run(config, folder, chosen, rows, earlier)


def facts(task: Task) -> dict[str, Any]:
    """What a task says that its scores depend on besides its settings."""
    found: dict[str, Any] = getattr(task, "facts", dict)()
    return found


@contextmanager
def recorded(run: Run) -> Iterator[None]:
    """An error that ends a run is in its run.json, with the traceback; then it goes its way."""
    try:
        yield
    except Exception as error:
        entry = {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
        run.note(status="error", error=entry)
        raise


def rescore(run: Run) -> None:
    """Judge again what could not be judged, from the text on disk and without a model."""
    for attempt in run.attempts:
        row = run.rows.get(attempt.id)
        if row is not None and row["error"] is not None:
            run.keep(judged(row, run.task, attempt.sample))


def decode(run: Run, models: Models, trace: TraceFile | None) -> None:
    """Decode what is left, shortest prompts first, and keep each answer as soon as it is there."""
    model, decoder, width = models.get(run.config), build_decoder(run.config), run.config.batch_size
    todo = {prompt.attempt.id: prompt for prompt in in_order(run, model)}
    requests = [Request(name, prompt.ids) for name, prompt in todo.items()]
    decoder.check(model, requests)
    warm_up = f"{requests[0].sample_id} decoded once before the clock started"
    run.note(warm_up=warm_up, first_prompt=prompt_of(model, run.attempts[0].sample), **machine(run, model))
    decoder.cost_curve = cost_curve_of(run, model, requests)
    watch_memory(model.device)
    decoder.generate(model, requests[:1])
    log = StepLog() if trace else None
    session = decoder.session(model, requests, width, observer=log)
    with stop_signal() as stop, progress(len(run.attempts), len(run.attempts) - len(todo)) as shown:
        for generation in session.results():
            prompt = todo[generation.sample_id]
            row = row_of(prompt, generation, model)
            if trace and log:
                steps = log.steps.pop(generation.sample_id)
                trace.write(generation, prompt.ids, steps, model)
                row["estimates"] = estimates(steps)
                row["near_threshold"] = near_threshold(steps, getattr(run.config.unmask, "threshold", None))
            scored = judged(row, run.task, prompt.attempt.sample)
            run.keep(scored)
            shown.advance(scored["tokens"], scored["correct"])
            if stop.requested:
                session.admit_no_more()
    run.interrupted = bool(run.todo())
    run.record["memory"] = peak_memory(model.device, run.record["memory"])


def cost_curve_of(run: Run, model: ModelAdapter, requests: list[Request]) -> CostCurve | None:
    """What forwards cost, for a router that asks: measured once, before the clock starts, and kept in run.json, so that
    a run that goes on or is repeated decides by the same numbers."""
    if not getattr(run.config.router, "needs_curve", False):
        return None
    if run.record["cost_curve"] is None:
        assert run.config.decode.max_new_tokens is not None and run.config.decode.block_length is not None
        longest = max(len(request.prompt_ids) for request in requests) + run.config.decode.max_new_tokens
        width = min(run.config.batch_size, len(requests))
        most_rows = rows_at_most(run.config.decode.block_length)
        run.note(cost_curve=asdict(measure(model, width, longest, most_rows)))
    return CostCurve(**run.record["cost_curve"])


def in_order(run: Run, model: ModelAdapter) -> list[Prompt]:
    """Prompts of similar length together, so that rows of a batch need no long padding."""
    return sorted(prompts(model, run.todo()), key=lambda prompt: len(prompt.ids))


def machine(run: Run, model: ModelAdapter) -> dict[str, Any]:
    """Where this call computes; if that is not where the run began, its speed mixes two machines and says so."""
    now = environment(run.config.backend) | placed(model)
    if not run.rows or run.rebuilt:
        return {"environment": now, "model_files": run_files(run.config)}  # from the hub it is here only now
    changed = differences(run.record["environment"], now)
    return {"resumed_with": sorted({*run.record["resumed_with"], *changed})}
