"""What others published, to be laid beside what was measured here; never on a front, and no part of a speed-up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

import s2d2cli
from s2d2cli.runs.metrics import METRICS

FOLDER = Path(s2d2cli.__file__).parent / "assets" / "published"
CAVEAT = "published, not measured here; quoted from secondary descriptions of the source"
COLUMNS = ("method", "model", "setting", "task", "accuracy", "speedup", "tokens_per_s", "tokens_per_forward")
WORDS = (*COLUMNS[:4], "note", "source")


def published(tasks: Iterable[str]) -> pd.DataFrame:
    """The rows about these tasks, in the units of the metrics."""
    rows = pd.concat([own_paper(), neighbours()], ignore_index=True)
    rows = rows.reindex(columns=[*COLUMNS, "note", "source"])
    found: pd.DataFrame = rows[rows["task"].isin(set(tasks))]
    found.index = pd.RangeIndex(1, len(found) + 1, name="no.")  # figures name them by it
    return found


def read(name: str) -> pd.DataFrame:
    rows: pd.DataFrame = pd.read_csv(FOLDER / name, dtype={"block_length": str}).fillna({"note": ""})
    return rows


def own_paper() -> pd.DataFrame:
    rows = read("s2d2.csv").fillna({"config": "", "block_length": ""})
    blocks = [f"block={length}" if length else "" for length in rows["block_length"]]
    settings = [" ".join(filter(None, pair)) for pair in zip(rows["config"], blocks, strict=True)]
    named = rows.rename(columns={"decoder": "method", "speedup_vs_ar": "speedup"})
    found: pd.DataFrame = named.assign(setting=settings, accuracy=rows["accuracy_pct"] / 100)
    return found


def neighbours() -> pd.DataFrame:
    """A metric per row there, a column per metric here."""
    rows = read("neighbours.csv").fillna({"setting": "", "task": ""})
    found: pd.DataFrame = rows.assign(
        **{key: rows["value"].where(rows["metric"] == key) for key in COLUMNS if key in METRICS}
    )
    return found


def as_text(rows: pd.DataFrame) -> pd.DataFrame:
    """Every cell as a table shows it; what is not known is empty."""
    shown = rows[list(WORDS[:4])].copy()
    shown.insert(0, "no.", [str(number) for number in rows.index])
    for metric in (METRICS[key] for key in COLUMNS if key in METRICS):
        shown[metric.short] = ["" if pd.isna(value) else f"{value:.{metric.digits}f}" for value in rows[metric.key]]
    found: pd.DataFrame = shown.assign(note=rows["note"], source=rows["source"])
    return found


def named(model: str, method: str, setting: str) -> str:
    return " ".join(filter(None, (model, method, setting)))


def lines(rows: pd.DataFrame) -> list[str]:
    """A sentence for each, for a terminal."""
    found = [f"{CAVEAT[0].upper()}{CAVEAT[1:]}:"] if len(rows) else []
    for one in as_text(rows).to_dict("records"):
        numbers = [f"{name} {one[name]}" for name in one if name not in (*WORDS, "no.") and one[name]]
        told = ", ".join(filter(None, [*numbers, one["note"]]))
        name = named(one["model"], one["method"], one["setting"])
        found.append(f"  {one['no.']} {name}: {told} [{one['source']}]")
    return found
