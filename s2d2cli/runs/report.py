"""Run folders to one frame, and the frame to comparable tables with their Pareto fronts.

Rows are compared only when all that is not a decoder setting agrees: task and its settings, data, number of samples,
model, machine, number format, backend, batch size. Otherwise they stand in tables of their own, and a sentence says
what differs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from s2d2cli.errors import ConfigError
from s2d2cli.runs.baseline import against, need_baseline
from s2d2cli.runs.compare import Side
from s2d2cli.runs.described import row_of, varied
from s2d2cli.runs.metrics import ACCURACY, SPEEDS, USUAL, Metric
from s2d2cli.runs.pareto import front
from s2d2cli.runs.published import published
from s2d2cli.runs.samples import paired, side_of, with_draws
from s2d2cli.runs.store import SCHEMA, Record, RunFolder, damage
from s2d2cli.runs.summary import FEW_SAMPLES

PROTOCOL = (
    "task",
    "task_settings",
    "data",
    "samples",
    "repeats",
    "model",
    "source",
    "weights",
    "first_prompt",
    "scoring",
    "hardware",
    "devices",
    "dtype",
    "backend",
    "batch_size",
)
TOLD = (
    "data",
    "source",
    "weights",
    "scoring",
    "task_settings",
    "repeats",
    "devices",
    "code",
)  # in a title, where they differ
CODE = "code"  # differs between runs of one table unless they are to be kept apart


@dataclass(frozen=True)
class Wish:
    """What the user asks of a report."""

    measure: str | None = None  # what counts as solved, if not what the task says
    axes: tuple[Metric, ...] = USUAL
    baseline: str | None = None
    strict_code: bool = False
    published: bool = False

    @property
    def apart(self) -> tuple[str, ...]:
        return (*PROTOCOL, CODE) if self.strict_code else PROTOCOL


@dataclass
class Table:
    """Rows that may be compared, best accuracy first."""

    title: str
    rows: pd.DataFrame


@dataclass
class Report:
    tables: list[Table]
    notes: list[str]
    unfinished: list[str]
    records: Mapping[str, Record]  # by folder
    wish: Wish

    def beside(self, table: Table) -> pd.DataFrame:
        """What others published about this table's task, if that was asked for."""
        return published(set(table.rows["task"]) if self.wish.published else ())


def find_runs(folders: Iterable[Path]) -> list[RunFolder]:
    """Run folders: each given one, or those inside it."""
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"no folder {str(folder)!r} with runs; `s2d2 eval` and `s2d2 sweep` write to results/")
        inside = sorted(path.parent for path in folder.glob("*/run.json"))
        found += [folder] if (folder / "run.json").is_file() else inside
    return [RunFolder(path) for path in dict.fromkeys(found)]


def build(folders: Sequence[RunFolder], wish: Wish = Wish()) -> Report:
    """Accuracy is what the task counts as correct, or one of its other measures: `paper`, `instruction_strict`, ..."""
    done, unfinished, records, sides = [], [], {}, {}
    for folder in folders:
        record, name = folder.record(), str(folder.path)
        try:
            if record is None or not is_done(record):
                unfinished.append(unfinished_line(folder, record))
            elif wish.measure is not None and wish.measure not in record["measures"]:
                known = ", ".join(record["measures"]) or "none"
                unfinished.append(f"{folder.path}: has no measure {wish.measure!r}, its measures are: {known}")
            else:
                row, side = row_of(folder, record, wish.measure), side_of(folder, record)
                done.append(row)
                records[name], sides[name] = record, side
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # damaged where no check looked
            unfinished.append(f"{folder.path}: run.json cannot be used ({type(error).__name__}: {error})")
    tables, notes = split(pd.DataFrame(done), sides, wish) if done else ([], [])
    need_baseline([table.rows for table in tables], wish.baseline)
    return Report(tables, notes, unfinished, records, wish)


def is_done(record: Record) -> bool:
    return record.get("schema") == SCHEMA and not damage(record) and record["status"] == "success"


def unfinished_line(folder: RunFolder, record: Record | None) -> str:
    if record is None:
        return f"{folder.path}: run.json cannot be read"
    if record.get("schema", SCHEMA) != SCHEMA:
        return f"{folder.path}: run.json is of schema {record.get('schema')}, and this version of s2d2 reads {SCHEMA}"
    if "schema" not in record or damage(record):
        return f"{folder.path}: run.json cannot be used, it {damage(record) or 'names no schema'}"
    there = folder.path / "samples.jsonl"
    written = len(folder.rows()) if there.is_file() else record["n"]  # run.json is stale when the run was killed
    error = f", {record['error']['type']}: {record['error']['message']}" if record["error"] else ""
    return f"{folder.path}: {record['status']}, {written} of {record['samples']} samples{error}"


def split(frame: pd.DataFrame, sides: Mapping[str, Side | None], wish: Wish) -> tuple[list[Table], list[str]]:
    """Comparable rows together, and a sentence for every task and model that needs more than one table."""
    tables, notes, apart = [], [], wish.apart
    for (task, model), rows in frame.groupby(["task", "model"], sort=False):
        groups = [group for _, group in rows.groupby(list(apart), sort=False, dropna=False)]
        differing = [key for key in apart if rows[key].astype(str).nunique() > 1]
        tables += [Table(title(group, rows, differing), completed(group, sides, wish)) for group in groups]
        if differing:
            named = " and ".join(
                "number of samples" if key == "samples" else key.replace("_", " ") for key in differing
            )
            verb = "differs" if len(differing) == 1 else "differ"
            notes.append(f"{task} on {model} stands in {len(groups)} tables, because {named} {verb} between runs.")
    return tables, notes


def title(group: pd.DataFrame, rows: pd.DataFrame, differing: Sequence[str]) -> str:
    """What the rows of this table have in common, and what sets it apart from the others of its task and model."""
    first = group.iloc[0]
    extra = [told(key, first[key], rows[key]) for key in differing if key in TOLD]
    few = f", fewer than {FEW_SAMPLES}: rough" if first["samples"] < FEW_SAMPLES else ""
    size = f"{first['samples']} of {first['data_rows']} samples{few}"
    counted = "" if first["measure"] == "correct" else f" ({first['measure']})"
    machine = f"{first['hardware']}, {first['dtype']}, {first['backend']}, batch {first['batch_size']}"
    return "; ".join([f"{first['task']}{counted} on {first['model']}", size, machine, *filter(None, extra)])


def told(key: str, value: object, of_all: pd.Series) -> str:
    """Of a task's settings those that differ, as they are typed."""
    if key != "task_settings":
        return f"{key.replace('_', ' ')} {value}".strip()
    shared = set.intersection(*(set(shlex.split(one)) for one in of_all))
    return shlex.join(word for word in shlex.split(str(value)) if word not in shared)


def completed(rows: pd.DataFrame, sides: Mapping[str, Side | None], wish: Wish) -> pd.DataFrame:
    """The rows with what they have only in company: settings that vary, speed-ups, fronts and how sure those are."""
    mine = paired({folder: sides[folder] for folder in rows["folder"]})
    measure = wish.measure or "correct"
    rows = against(rows.assign(varied=varied(rows)), mine, measure, wish.baseline)
    for metric in SPEEDS:
        rows[metric.key] = rows[metric.key].astype(float)
        rows = rows.assign(**{name: np.nan for name in (metric.low, metric.high) if name not in rows})
        rows[f"front_{metric.key}"] = front([rows[ACCURACY.key], metric.sign * rows[metric.key]])
    rows = with_draws(rows, mine, measure)
    ranked: pd.DataFrame = rows.sort_values(["accuracy", "tokens_per_forward"], ascending=False, kind="stable")
    ranked.index = pd.RangeIndex(len(ranked))
    return ranked
