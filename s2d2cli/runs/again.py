"""A run once more, from nothing but its folder: scored anew without a model, or decoded anew and compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import s2d2cli
from s2d2cli.config import record as plain_record
from s2d2cli.errors import ConfigError, TaskDataError
from s2d2cli.restore import restore, same_code
from s2d2cli.runs.environment import differences, run_files
from s2d2cli.runs.evaluate import Models, Outcome, Run, evaluate, facts, need_same_weights
from s2d2cli.runs.rows import VERDICT, attempts, judged
from s2d2cli.runs.store import SCHEMA, Record, RunFolder
from s2d2cli.tasks.base import DataSource


def find(path: Path) -> tuple[RunFolder, Record]:
    """A run folder that can be read; refused with a sentence otherwise."""
    folder = RunFolder(path)
    record = folder.kept()
    if record is None or record.get("schema") != SCHEMA:
        found = "its run.json is of another version" if record else "it holds no run.json that can be read"
        raise ConfigError(f"{path} must be the folder of a run, as `s2d2 eval` makes one; {found}")
    return folder, record


@dataclass(frozen=True)
class Rescored:
    """`changed` are the samples whose verdict is another one now."""

    outcome: Outcome
    before: float | None
    changed: list[str]


def score(path: Path, allow_code_execution: bool) -> Rescored:
    """Judge every answer of the run with today's scorer. What was decoded stays as it is."""
    folder, record = find(path)
    config = restore(record)
    need_same_data(path, record, config.task.prepare(allow_code_execution))
    readable = len(folder.rows())
    if readable < record["n"]:
        raise TaskDataError(
            f"{path} must have the {record['n']} samples that its run.json counts, and only {readable} can be read "
            f"from samples.jsonl; bring that file back, or have the rest decoded again by the run's own command"
        )
    with folder.locked():
        run = Run(config, folder, attempts(config.task.samples(config.limit), config.repeats), folder.rows(), record)
        before, changed = record["accuracy"], judge_again(run)
        record["data"]["task_version"], record["facts"] = config.task.version, facts(config.task)
        record["config"]["task"]["version"] = config.task.version
        done = "started" if run.todo() else "success"
        run.note(scored={"s2d2": s2d2cli.__version__, "changed": len(changed)}, error=None, status=done)
    return Rescored(Outcome(run.record, folder.path, interrupted=False), before, changed)


def need_same_data(path: Path, record: Record, source: DataSource) -> None:
    if source.sha256 != record["data"]["sha256"]:
        raise TaskDataError(
            f"{path} was decoded from other data ({record['data']['origin']}) than {source.origin} holds now; "
            f"bring that data back"
        )


def judge_again(run: Run) -> list[str]:
    """Only a verdict that differs is written, so that scoring twice adds nothing."""
    changed = []
    for attempt in run.attempts:
        row = run.rows.get(attempt.id)
        if row is not None:
            decoded = {key: value for key, value in row.items() if key not in VERDICT}
            fresh = judged(decoded, run.task, attempt.sample)
            if fresh != row:
                changed.append(attempt.id)
                run.keep(fresh)
    return changed


@dataclass(frozen=True)
class Reproduced:
    """Two runs of one record, sample by sample: are the tokens the same?"""

    outcome: Outcome
    recorded: Record
    compared: int
    solved: tuple[int, int]  # of those compared: now, and in the record
    differing: list[str]
    environment: list[str]  # in what the machine and the versions differ

    @property
    def same(self) -> bool:
        return self.compared > 0 and not self.differing

    def plain(self) -> dict[str, Any]:
        return {
            "same": self.same,
            "compared": self.compared,
            "differing": self.differing,
            "solved": self.solved[0],
            "recorded_solved": self.solved[1],
            "environment": self.environment,
            "folder": str(self.outcome.folder),
        }


def reproduce(path: Path, results: Path, limit: int | None, allow_code_execution: bool) -> Reproduced:
    """Decode the run's samples again, the first `limit` of them, into another folder. Its weights must be the same."""
    folder, record = find(path)
    config = restore(record)
    same_code(record["config"], plain_record(config), path)
    if path.resolve().parent == results.resolve():
        raise ConfigError(f"--results must be another folder than that of the run, got {str(results)!r} for both")
    need_same_data(path, record, config.task.prepare(allow_code_execution))
    need_same_weights(folder, record, run_files(config))
    config = replace(config, results=str(results), limit=limit or config.limit)
    outcome = evaluate(config, Models(), allow_code_execution, cost_curve=record.get("cost_curve"))
    before, after = folder.rows(), RunFolder(outcome.folder).rows()
    shared = before.keys() & after.keys()
    differing = sorted(name for name in shared if before[name]["token_ids"] != after[name]["token_ids"])
    changed = differences(record["environment"], outcome.record["environment"])
    now, then = (sum(rows[name]["correct"] for name in shared) for rows in (after, before))
    return Reproduced(outcome, record, len(shared), (now, then), differing, changed)
