"""What a search has found: its trials on some number of samples, how sure their front is, and which of them go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from s2d2cli.runs.compare import CORRECT
from s2d2cli.runs.described import row_of
from s2d2cli.runs.metrics import Metric
from s2d2cli.runs.pareto import front, front_share
from s2d2cli.runs.report import is_done
from s2d2cli.runs.samples import drawn, formed, ids_of, paired, side_of, values
from s2d2cli.runs.search_plan import Search
from s2d2cli.runs.store import Record, RunFolder, folder_of
from s2d2cli.tasks.statistics import percentiles

NEAR = 0.05  # survives: on the front in at least this share of the draws of the samples
MOST_SURVIVE = 0.5  # but at most this share of the trials goes on to the next limit


def values_of(record: Record, objectives: Sequence[Metric]) -> list[float] | None:
    """The objectives of a run; None unless it is finished and has them all."""
    if not is_done(record):
        return None
    row = row_of(RunFolder(Path()), record)
    found = [float(row[metric.key]) for metric in objectives if row.get(metric.key) is not None]
    return found if len(found) == len(objectives) else None


def measured(search: Search, points: Sequence[Sequence[str]], limit: int | None) -> pd.DataFrame:
    """A row for each of these that is finished on so many samples: its words, the objectives with their intervals, and
    in which share of the draws of the samples it is on their front."""
    rows, sides = [], {}
    for words in points:
        folder = folder_of(search.config(words, limit))
        record = folder.record()
        if record is not None and values_of(record, search.objectives) is not None:
            rows.append({**row_of(folder, record), "words": list(words)})
            sides[str(folder.path)] = side_of(folder, record)
    alike = paired(sides)
    frame: pd.DataFrame = pd.DataFrame([row for row in rows if row["folder"] in alike])
    if frame.empty:
        return frame
    sums_DRK = drawn([values(alike[name], CORRECT, ids_of(alike)) for name in frame["folder"]])
    draws = [formed(sums_DRK, metric, frame) for metric in search.objectives]
    signed = [metric.sign * one_DR for metric, one_DR in zip(search.objectives, draws, strict=True)]
    frame["share"] = front_share(signed[0], signed[1])
    frame["front"] = front([metric.sign * frame[metric.key].to_numpy() for metric in search.objectives])
    for metric, one_DR in zip(search.objectives, draws, strict=True):
        if metric.low not in frame:
            frame[[metric.low, metric.high]] = [percentiles(one_D, 0.95) for one_D in one_DR.T]
    return frame


def survivors(search: Search, points: Sequence[Sequence[str]], limit: int | None) -> list[list[str]]:
    """The settings that may be on the front, as far as these samples tell: in one of twenty draws of them they are.

    At most half of the trials go on, the likeliest first. All workers come to the same answer, because it depends on
    nothing but finished runs.
    """
    frame = measured(search, points, limit)
    if frame.empty:
        return []
    near = frame[frame["share"] >= NEAR]
    most = max(1, int(len(frame) * MOST_SURVIVE))
    best = np.argsort(-near["share"].to_numpy(), kind="stable")[:most]
    return [near["words"].iloc[index] for index in sorted(best)]
