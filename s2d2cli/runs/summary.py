"""From the lines of samples.jsonl to the numbers of run.json. Pure, so a resumed run counts all of its samples.

A row carries its batch (id, size, seconds, forwards, query rows). When a killed process wrote only a part of a batch,
that part is charged its share of the batch's seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from s2d2cli.runs.verification import calibration, rates
from s2d2cli.tasks.statistics import ratio_interval, wilson

Row = Mapping[str, Any]
ALARMS = ("empty", "no_answer", "truncated", "mask_token", "errors")
FEW_SAMPLES = 200  # below this an accuracy is a rough one, and said to be


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Accuracy with its interval, alarms, lengths and speed over all rows."""
    correct = sum(bool(row["correct"]) for row in rows)
    tokens = [row["tokens"] for row in rows]
    return {
        "n": len(rows),
        "correct": correct,
        "accuracy": correct / len(rows) if rows else None,
        "interval": list(wilson(correct, len(rows))) if rows else None,
        "alarms": {alarm: sum(alarm in row["alarms"] for row in rows) for alarm in ALARMS},
        "mean_tokens": float(np.mean(tokens)) if rows else None,
        "speed": speed(rows) if rows else None,
        "verification": rates(rows),
        "traced": any("estimates" in row for row in rows),
        "calibration": calibration(rows),
    }


def accuracy_text(record: Row) -> str:
    """The accuracy in words: with its interval, or as what it is while samples are missing."""
    if not record["n"]:
        return "none yet"
    share = f"{record['accuracy']:.3f}"
    if record["n"] < record["samples"] or record["interval"] is None:
        return f"{share} on {record['n']} of {record['samples']} so far, the shortest prompts first: not comparable"
    low, high = record["interval"]
    return f"{share}, 95 % interval {low:.3f}-{high:.3f}"


def speed(rows: Sequence[Row]) -> dict[str, Any]:
    """Tokens up to and including the stop token; seconds of decoding only: no loading, warm-up or scoring."""
    tokens, forwards = [row["tokens"] for row in rows], [sum(row["forwards"].values()) for row in rows]
    batches = {row["batch"]["id"]: row["batch"] for row in rows}
    present = Counter(row["batch"]["id"] for row in rows)
    share = {name: present[name] / batch["size"] for name, batch in batches.items()}
    seconds = sum(share[name] * batch["seconds"] for name, batch in batches.items())
    p50, p90 = np.percentile([batch["seconds"] for batch in batches.values()], [50, 90])
    return {
        "tokens": sum(tokens),
        "seconds": seconds,
        "tokens_per_s": sum(tokens) / seconds if seconds > 0 else None,
        "forwards": total(row["forwards"] for row in rows),
        "tokens_per_forward": sum(tokens) / sum(forwards) if sum(forwards) else None,
        "tokens_per_forward_interval": list(ratio_interval(tokens, forwards)) if sum(forwards) else None,
        "batches": len(batches),
        "batch_forwards": total(batch["forwards"] for batch in batches.values()),
        "query_rows": sum(batch["query_rows"] for batch in batches.values()),
        "batch_latency_p50_s": float(p50),
        "batch_latency_p90_s": float(p90),
        "accepted": sum(row["accepted"] for row in rows),
        "verified": sum(row["verified"] for row in rows),
        "drafted_steps": sum(row["drafted_steps"] for row in rows),
    }


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    summed: Counter[str] = Counter()
    for count in counts:
        summed.update(count)
    return dict(sorted(summed.items()))


def alarms(row: Row) -> list[str]:
    """What looks wrong with one sample, whether or not it was judged correct."""
    signs = {
        "empty": not row["text"].strip(),
        "no_answer": row["extracted"] is None and row["error"] is None,
        "truncated": row["finish"] == "length",
        "mask_token": row["masked"],
        "errors": row["error"] is not None,
    }
    return [name for name, rings in signs.items() if rings]
