"""From the lines of samples.jsonl to the numbers of run.json. Pure, so a resumed run counts all of its samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from s2d2cli.decode.meter import PHASES
from s2d2cli.runs.verification import calibration, margin, rates
from s2d2cli.tasks.statistics import mean_and_deviation, mean_pass_at_k, ratio_interval, wilson

Row = Mapping[str, Any]
ALARMS = ("empty", "no_answer", "truncated", "mask_token", "timeout", "errors")
FEW_SAMPLES = 200  # below this an accuracy is a rough one, and said to be
LENGTH_BINS = (16, 32, 64, 128, 256, 512, 1024)  # upper ends, in new tokens


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Accuracy with its interval, alarms, lengths and speed over all rows."""
    tokens = [row["tokens"] for row in rows]
    return {
        "n": len(rows),
        **share_of([(row["correct"], 1) for row in rows], [row["problem"] for row in rows]),
        "measures": measures(rows),
        "alarms": {alarm: sum(alarm in row["alarms"] for row in rows) for alarm in ALARMS},
        "mean_tokens": float(np.mean(tokens)) if rows else None,
        "repeated": repeated(rows),
        "speed": speed(rows) if rows else None,
        "verification": rates(rows),
        "traced": any("estimates" in row for row in rows),
        "calibration": calibration(rows),
        "margin": margin(rows),
    }


def share_of(counts: Sequence[tuple[int, int]], problems: Sequence[str]) -> dict[str, Any]:
    """Hits over their total. Where each problem counts once the interval is Wilson's; otherwise problems are drawn anew
    (cluster bootstrap), because the parts of one problem are not independent."""
    hits, totals = ([pair[column] for pair in counts] for column in (0, 1))
    right, n = int(sum(hits)), sum(totals)
    clusters = len(set(problems))
    if n == len(counts) == clusters:
        interval = list(wilson(right, n)) if n else None
    elif n and right in (0, n):  # where all agree, no draw of problems would differ: as sure as so many problems are
        interval = list(wilson(clusters if right else 0, clusters))
    else:
        interval = list(ratio_interval(hits, totals, clusters=problems)) if n else None
    return {"correct": right, "accuracy": right / n if n else None, "interval": interval}


def measures(rows: Sequence[Row]) -> dict[str, Any]:
    """Each measure of the task over the rows that have it."""
    names = dict.fromkeys(name for row in rows for name in row["measures"])
    return {name: measure([row for row in rows if name in row["measures"]], name) for name in names}


def measure(rows: Sequence[Row], name: str) -> dict[str, Any]:
    counts = [(hits, total) for hits, total in (row["measures"][name] for row in rows)]
    return {"of": sum(total for _, total in counts), **share_of(counts, [row["problem"] for row in rows])}


def repeated(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Of problems decoded several times: the accuracy of each repeat, their spread, and pass@k."""
    by_problem: dict[str, list[bool]] = {}
    by_repeat: dict[int, list[bool]] = {}
    for row in rows:
        by_problem.setdefault(row["problem"], []).append(row["correct"])
        by_repeat.setdefault(row["repeat"], []).append(row["correct"])
    if len(by_repeat) < 2:
        return None
    accuracies = [float(np.mean(by_repeat[repeat])) for repeat in sorted(by_repeat)]
    mean, deviation = mean_and_deviation(accuracies)
    fewest = min(map(len, by_problem.values()))
    counts = [(len(verdicts), sum(verdicts)) for verdicts in by_problem.values()]
    passed = {str(k): mean_pass_at_k(counts, k) for k in range(1, fewest + 1)}
    return {"accuracies": accuracies, "mean": mean, "deviation": deviation, "pass_at_k": passed}


def rough(n: int) -> str:
    """What stands behind a count of samples that are too few for more than a rough figure."""
    return f" (fewer than {FEW_SAMPLES}: rough)" if n < FEW_SAMPLES else ""


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
    seconds = [sum(row["cost"]["seconds"].values()) for row in rows]
    problems = [row["problem"] for row in rows]
    p50, p90, p99 = np.percentile([row["cost"]["latency_s"] for row in rows], [50, 90, 99])
    return {
        "tokens": sum(tokens),
        "seconds": sum(seconds),
        "seconds_by_phase": {phase: sum(row["cost"]["seconds"].get(phase, 0.0) for row in rows) for phase in PHASES},
        "tokens_per_s": sum(tokens) / sum(seconds) if sum(seconds) > 0 else None,
        "tokens_per_s_interval": list(ratio_interval(tokens, seconds, clusters=problems)) if sum(seconds) > 0 else None,
        "forwards": total(row["forwards"] for row in rows),
        "tokens_per_forward": sum(tokens) / sum(forwards) if sum(forwards) else None,
        "tokens_per_forward_interval": list(ratio_interval(tokens, forwards, clusters=problems))
        if sum(forwards)
        else None,
        "model_forwards": sum(row["cost"]["forwards"] for row in rows),
        "query_rows": sum(row["cost"]["query_rows"] for row in rows),
        "latency_p50_s": float(p50),
        "latency_p90_s": float(p90),
        "latency_p99_s": float(p99),
        "by_length": by_length(tokens, seconds),
        "accepted": sum(row["accepted"] for row in rows),
        "verified": sum(row["verified"] for row in rows),
        "drafted_steps": sum(row["drafted_steps"] for row in rows),
    }


def by_length(tokens: Sequence[int], seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Speed by length of the answer: short ones pay for their prompt and their last block."""
    found = []
    for low, high in zip((0, *LENGTH_BINS), (*LENGTH_BINS, float("inf")), strict=True):
        inside = [i for i, count in enumerate(tokens) if low < count <= high]
        spent = sum(seconds[i] for i in inside)
        if inside and spent > 0:
            most = int(high) if high in LENGTH_BINS else None
            speed_here = sum(tokens[i] for i in inside) / spent
            found.append({"above": low, "up_to": most, "n": len(inside), "tokens_per_s": speed_here})
    return found


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
        "timeout": row["detail"].get("status") == "timeout",
        "errors": row["error"] is not None,
    }
    return [name for name, rings in signs.items() if rings]
