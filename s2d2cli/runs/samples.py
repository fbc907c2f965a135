"""What the samples of the runs of one table say together: how sure a front is.

Runs of a table share their samples, so each bootstrap draw takes the same problems for all of them: what makes a
problem hard or long for every decoder does not blur their order.
Legend: D draws, R runs, N problems, K columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from s2d2cli.runs.compare import CORRECT, Side
from s2d2cli.runs.metrics import ACCURACY, SPEEDS, SPEEDUP, THROUGHPUT, Metric
from s2d2cli.runs.pareto import front_share
from s2d2cli.runs.store import Record, RunFolder
from s2d2cli.tasks.statistics import by_cluster, percentiles

COLUMNS = ("hits", "total", "tokens", "seconds", "milliseconds", "forwards", "query_rows", "model_forwards", "samples")
KEPT = ("problem", "prompt_sha256", "correct", "measures", "tokens", "forwards", "cost")  # the texts are long
DRAWS = 2000
ROBUST = 0.95  # the share of draws from which on a point is said to stand on the front
Floats = NDArray[np.float64]


def percent(share: float) -> int:
    """Rounded down: what is not robust must not read as 95 %."""
    return int(100 * share + 1e-9)


def side_of(folder: RunFolder, record: Record) -> Side | None:
    """The run with its samples; None when samples.jsonl does not hold what run.json counted."""
    rows = {name: {key: row[key] for key in KEPT} for name, row in folder.rows().items()}
    return Side(record, rows) if rows and len(rows) == record["n"] else None


def paired(sides: Mapping[str, Side | None]) -> dict[str, Side]:
    """Those of them that saw the same prompts as the first one that has samples."""
    there = {name: side for name, side in sides.items() if side is not None}
    prompts = {name: {key: row["prompt_sha256"] for key, row in side.rows.items()} for name, side in there.items()}
    return {name: side for name, side in there.items() if prompts[name] == next(iter(prompts.values()))}


def with_draws(rows: pd.DataFrame, sides: Mapping[str, Side], measure: str) -> pd.DataFrame:
    """The rows with the intervals that run.json does not have, and for each front the share of draws it holds in."""
    rows = rows.copy()
    for metric in SPEEDS:
        rows[f"share_{metric.key}"] = np.nan
    mine = rows[rows["folder"].isin(sides.keys())]
    if mine.empty:
        return rows
    sums_DRK = drawn([values(sides[name], measure, ids_of(sides)) for name in mine["folder"]])
    accuracy_DR = formed(sums_DRK, ACCURACY, mine)
    for metric in SPEEDS:
        speed_DR = formed(sums_DRK, metric, mine)
        rows.loc[mine.index, f"share_{metric.key}"] = front_share(accuracy_DR, metric.sign * speed_DR)
        if metric.of:
            drawn_R = pd.DataFrame(
                [percentiles(one, 0.95) for one in speed_DR.T], mine.index, [metric.low, metric.high]
            )
            rows = rows.fillna(drawn_R)  # what run.json has stays
    return rows


def ids_of(sides: Mapping[str, Side]) -> list[str]:
    return sorted(next(iter(sides.values())).rows)


def values(side: Side, measure: str, ids: Sequence[str]) -> Floats:
    """(N, K): the sums of each problem, over its repeats."""
    rows = [side.rows[name] for name in ids]
    lines = [[*counted(row, measure), *costs(row)] for row in rows]
    return by_cluster(np.asarray(lines, dtype=np.float64), [row["problem"] for row in rows])


def counted(row: Mapping[str, Any], measure: str) -> Sequence[float]:
    if measure == CORRECT:
        return float(row["correct"]), 1.0
    found: Sequence[float] = row["measures"].get(measure, (0, 0))
    return found


def costs(row: Mapping[str, Any]) -> Sequence[float]:
    cost = row["cost"]
    seconds, forwards = sum(cost["seconds"].values()), sum(row["forwards"].values())
    return row["tokens"], seconds, 1000 * seconds, forwards, cost["query_rows"], cost["forwards"], 1.0


def drawn(runs: Sequence[Floats]) -> Floats:
    """(D, R, K): column sums of N problems drawn with replacement, the same ones for every run."""
    values_RNK = np.stack(runs)
    num_problems = values_RNK.shape[1]
    rng = np.random.default_rng(0)
    times_DN = rng.multinomial(num_problems, np.full(num_problems, 1 / num_problems), size=DRAWS)
    sums_DRK: Floats = np.tensordot(times_DN.astype(np.float64), values_RNK, axes=([1], [1]))
    return sums_DRK


def formed(sums_DRK: Floats, metric: Metric, rows: pd.DataFrame) -> Floats:
    """(D, R): the metric in each draw. One that is no ratio of sums stays what was measured, and NaN stays NaN."""
    measured_R = rows[metric.key].to_numpy(dtype=np.float64)
    if metric == SPEEDUP:
        above, below = formed(sums_DRK, THROUGHPUT, rows), over_baseline(sums_DRK, rows)
    elif metric.of is None:
        return np.broadcast_to(measured_R, sums_DRK.shape[:2])
    else:
        above, below = (sums_DRK[:, :, COLUMNS.index(name)] for name in metric.of)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.isnan(measured_R), np.nan, above / below)


def over_baseline(sums_DRK: Floats, rows: pd.DataFrame) -> Floats:
    """(D, R): each row's baseline's tokens per second; NaN for a row that has none with samples."""
    speed_DR = formed(sums_DRK, THROUGHPUT, rows)
    place = {folder: index for index, folder in enumerate(rows["folder"])}
    columns = [place.get(folder) for folder in rows["baseline"]]
    gap_D = np.full(len(speed_DR), np.nan)
    return np.column_stack([gap_D if column is None else speed_DR[:, column] for column in columns])
