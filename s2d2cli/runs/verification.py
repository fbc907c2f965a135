"""What a person tunes with: how often a verification happens, what it accepts, and whether the estimator foresees it.

Pure functions of the lines of samples.jsonl, like summary.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TRACED = "the seconds include the log, so this speed compares with no other"

NEAR = 0.01  # of a probability: what the low digits of bfloat16, other kernels or another GPU can shift
Row = Mapping[str, Any]
Pair = Sequence[float]  # expected E[K], and the tokens that were accepted


def rates(rows: Sequence[Row]) -> dict[str, float | None]:
    """Verified steps over steps, accepted tokens over verified steps, accepted tokens over new tokens."""
    steps, verified = (sum(row[key] for row in rows) for key in ("drafted_steps", "verified"))
    kept = sum(row["sources"].get("accepted", 0) for row in rows)
    return {
        "verify_rate": ratio(verified, steps),
        "accepted_per_verification": ratio(sum(row["accepted"] for row in rows), verified),
        "accepted_share": ratio(kept, sum(row["tokens"] for row in rows)),
    }


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def estimates(steps: Sequence[Row]) -> list[list[float]]:
    """Of a sample's logged steps: the estimate and what came of it, for each verified one.

    E[K] is about the first span. A step that verified more spans counts its first span's length at most.
    """
    return [[round(step["expected"], 4), min(step["accepted"], step["span"])] for step in steps if step["verified"]]


def near_threshold(steps: Sequence[Row], threshold: float | None) -> list[int] | None:
    """How many tokens of a sample's logged steps the unmask rule decided with a draft probability so near its threshold
    that other hardware may decide otherwise, and how many it decided; None for a rule without a threshold."""
    if threshold is None:
        return None
    probs = [token["draft_prob"] for step in steps for token in step["tokens"] if token["source"] == "unmasked"]
    return [sum(abs(prob - threshold) <= NEAR for prob in probs), len(probs)]


def margin(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The same over all traced rows."""
    counts = [row["near_threshold"] for row in rows if row.get("near_threshold") is not None]
    if not counts:
        return None
    near, decided = map(sum, zip(*counts, strict=True))
    return {"within": NEAR, "near": near, "decided": decided}


def calibration(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Predicted E[K] against tokens accepted over the verified steps of traced rows, whole and by bin of E[K]."""
    pairs = [pair for row in rows for pair in row.get("estimates", [])]
    if not pairs:
        return None
    bins: dict[int, list[Pair]] = {}
    for pair in pairs:
        bins.setdefault(bin_of(pair[0]), []).append(pair)
    return means(pairs) | {"bins": [bounds(index) | means(bins[index]) for index in sorted(bins)]}


def bin_of(expected: float) -> int:
    """0 for [0, 1), 1 for [1, 2), 2 for [2, 4), 3 for [4, 8), ...: doubling, because errors grow with the length."""
    return int(expected).bit_length()


def bounds(index: int) -> dict[str, int]:
    return {"low": 1 << index >> 1, "high": 1 << index}


def means(pairs: Sequence[Pair]) -> dict[str, Any]:
    predicted, accepted = np.mean(pairs, axis=0).tolist()
    return {"steps": len(pairs), "predicted": predicted, "accepted": accepted}
