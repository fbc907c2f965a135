"""What each row of a table is held against: the speed-up, and whether the two accuracies really differ.

Unless the user names another, the baseline is autoregressive decoding with the same sampling in one forward per token,
the fastest such row: a speed-up over a baseline that was made slow is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from s2d2cli.errors import ConfigError
from s2d2cli.lossless import AUTOREGRESSIVE
from s2d2cli.runs.compare import Compared, Side
from s2d2cli.tasks.statistics import holm

LEAST = 4  # characters of a run id that name it


def find(rows: pd.DataFrame, wanted: str | None) -> dict[str, str]:
    """Each row's baseline, both as folders; rows without one are absent."""
    if wanted is not None:
        fitting = rows[[named(row, wanted) for _, row in rows.iterrows()]]
        return {} if fitting.empty else dict.fromkeys(rows["folder"], fastest(fitting))
    honest = rows[(rows["decoder"] == AUTOREGRESSIVE) & rows["settings"].map(spends_one_forward)]
    by_sampling = {sampling: fastest(group) for sampling, group in honest.groupby("sampling")}
    pairs = zip(rows["folder"], rows["sampling"], strict=True)
    return {folder: by_sampling[sampling] for folder, sampling in pairs if sampling in by_sampling}


def spends_one_forward(settings: Mapping[str, Any]) -> bool:
    return settings.get("decode.commit") != "separate"


def fastest(rows: pd.DataFrame) -> str:
    """A row without a time, a traced one, can still be what accuracies are held against."""
    place = int(rows["tokens_per_s"].astype(float).fillna(-1).argmax())
    return str(rows["folder"].iloc[place])


def named(row: pd.Series, wanted: str) -> bool:
    """By its decoder's name, by the start of its run id, or by words of its settings."""
    by_id = len(wanted) >= LEAST and row["run_id"].startswith(wanted)
    return by_id or wanted == row["decoder"] or wanted in f"{row['decoder']} {row['varied']}"


def need_baseline(tables: list[pd.DataFrame], wanted: str | None) -> None:
    """A name that fits no row anywhere is a mistake, not an empty column."""
    if wanted is None or not tables or any(rows["baseline"].notna().any() for rows in tables):
        return
    known = ", ".join(sorted({name for rows in tables for name in rows["decoder"]}))
    raise ConfigError(
        f"--baseline must be a decoder ({known}), the start of a run id or words of a row's settings, got {wanted!r}"
    )


def against(rows: pd.DataFrame, sides: Mapping[str, Side], measure: str, wanted: str | None) -> pd.DataFrame:
    """The rows with their baseline, speed-up and paired p-value, the latter also corrected for the table's tests."""
    rows, base = rows.copy(), find(rows, wanted)
    rows["baseline"] = [base.get(folder) for folder in rows["folder"]]
    speed = dict(zip(rows["folder"], rows["tokens_per_s"], strict=True))
    found = [versus(folder, base.get(folder), sides, speed, measure) for folder in rows["folder"]]
    rows[["speedup", "speedup_low", "speedup_high", "p_value"]] = np.array(found, dtype=float)
    tested = rows["p_value"].notna()
    rows["p_holm"] = np.nan
    rows.loc[tested, "p_holm"] = holm(rows.loc[tested, "p_value"].tolist())
    return rows


def versus(
    mine: str, base: str | None, sides: Mapping[str, Side], speed: Mapping[str, float], measure: str
) -> tuple[float | None, ...]:
    """Speed-up, its interval, p-value: the numbers of `s2d2 compare`. Without samples there is but the speed-up."""
    if base is None:
        return (None,) * 4
    timed = all(pd.notna(speed[name]) and speed[name] > 0 for name in (mine, base))
    plain = speed[mine] / speed[base] if timed else None
    if mine == base or mine not in sides or base not in sides:
        return plain, None, None, None
    pair = Compared(sides[mine], sides[base], measure)
    interval = pair.speed_up("seconds").interval if timed else (None, None)
    return plain, *interval, pair.accuracy.p_value
