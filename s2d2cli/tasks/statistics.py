"""How sure a measured share or ratio is, and whether two decoders differ on the same problems.

Pure functions; the formulas are standard, and each docstring names where its own comes from.
Legend: D draws, C draws of one chunk, N items or clusters, K columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, prod, sqrt

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
CHUNK = 2_000_000  # items drawn at a time: 10,000 draws of all of GSM8K at once would take 100 MB

Pairs = tuple[Sequence[float], Sequence[float]]  # numerators and denominators, one each per item
Floats = NDArray[np.float64]


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval (1927) for a share: right near 0 and 1 too, unlike share +- z standard errors.

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), as fractions.
    """
    if n == 0:
        return 0.0, 1.0
    share, z2 = successes / n, z * z
    center = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, min(share, center - half)), min(1.0, max(share, center + half))


def ratio_interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    confidence: float = 0.95,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> tuple[float, float]:
    """Percentile bootstrap interval (Efron) of sum(numerators) / sum(denominators), items drawn anew with pairs intact.

    A mean of per-item ratios would be another number: tokens per second is all tokens over all seconds. Where items are
    not independent (the instructions of a prompt, the repeats of a problem), `clusters` names what each belongs to, and
    whole clusters are drawn.
    """
    pairs_NK = by_cluster(columns((numerators, denominators)), clusters)
    sums_DK = resampled_sums(pairs_NK, seed)
    kept_DK = sums_DK[sums_DK[:, 1] > 0]  # a draw of nothing but empty items has no ratio
    return percentiles(kept_DK[:, 0] / kept_DK[:, 1], confidence)


def paired_ratio_interval(
    ours: Pairs,
    theirs: Pairs,
    confidence: float = 0.95,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> tuple[float, float]:
    """Percentile bootstrap interval of one ratio of sums over another on the same items: a speed-up.

    Both runs of an item are drawn together, so what makes an item slow for both does not widen the interval.
    """
    values_NK = columns((*ours, *theirs))
    if not values_NK[:, 2].sum() > 0:
        raise ValueError("a ratio of ratios needs a baseline above 0, its numerators sum to 0 or less")
    sums_DK = resampled_sums(by_cluster(values_NK, clusters), seed)
    kept_DK = sums_DK[(sums_DK[:, 1:] > 0).all(axis=1)]
    return percentiles(kept_DK[:, 0] / kept_DK[:, 1] / (kept_DK[:, 2] / kept_DK[:, 3]), confidence)


def columns(values: Sequence[Sequence[float]]) -> Floats:
    """Numerators and denominators in turn as columns, with a row per item."""
    lengths = {len(column) for column in values}
    if len(lengths) > 1 or not all(sum(column) > 0 for column in values[1::2]):
        raise ValueError(
            f"a ratio needs as many denominators as numerators and a sum above 0, got {[*map(len, values)]} items "
            f"and sums {[*map(sum, values)]}"
        )
    return np.column_stack(values).astype(np.float64)


def by_cluster(values_NK: Floats, clusters: Sequence[Hashable] | None) -> Floats:
    """One row per cluster, the sum of its items, in the order in which clusters first occur."""
    if clusters is None:
        return values_NK
    if len(clusters) != len(values_NK):
        raise ValueError(f"every item needs a cluster, got {len(clusters)} for {len(values_NK)} items")
    row_of = {name: row for row, name in enumerate(dict.fromkeys(clusters))}
    sums_NK = np.zeros((len(row_of), values_NK.shape[1]))
    np.add.at(sums_NK, [row_of[name] for name in clusters], values_NK)
    return sums_NK


def resampled_sums(values_NK: Floats, seed: int) -> Floats:
    """Column sums of N rows drawn with replacement, DRAWS times."""
    rng, num_rows = np.random.default_rng(seed), len(values_NK)
    sums_DK = np.empty((DRAWS, values_NK.shape[1]))
    step = max(1, CHUNK // num_rows)
    for start in range(0, DRAWS, step):
        drawn_CN = rng.integers(num_rows, size=(min(step, DRAWS - start), num_rows), dtype=np.int32)
        for column in range(values_NK.shape[1]):
            sums_DK[start : start + step, column] = values_NK[:, column][drawn_CN].sum(axis=1)
    return sums_DK


def percentiles(values_D: Floats, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values_D, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class PairedDifference:
    """Run A against run B on the same items; differences are of shares, A minus B."""

    n: int
    only_a: int  # items that only A solves
    only_b: int
    difference: float
    interval: tuple[float, float]  # Tango's, of 95 %
    p_value: float  # exact McNemar


def paired_difference(a: Sequence[bool], b: Sequence[bool]) -> PairedDifference:
    """The difference of two accuracies from paired verdicts."""
    n = len(a)
    if n == 0 or n != len(b):
        raise ValueError(f"a paired comparison needs the same items twice and at least one, got {n} and {len(b)}")
    only_a = sum(bool(x) and not y for x, y in zip(a, b, strict=True))
    only_b = sum(bool(y) and not x for x, y in zip(a, b, strict=True))
    interval = paired_interval(only_a, only_b, n)
    return PairedDifference(n, only_a, only_b, (only_a - only_b) / n, interval, mcnemar_exact(only_a, only_b))


def paired_interval(only_a: int, only_b: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Tango's score interval (Statistics in Medicine 17, 1998, 891-908) for the difference of two paired shares.

    All differences d that (b - c - n d)^2 <= z^2 n (2 q + d (1 - d)) holds for, where q is the likeliest share of items
    that only B solves, were d true. Unlike a difference +- z standard errors it has a width when no item differs.
    """
    observed = (only_a - only_b) / n

    def fits(d: float) -> bool:
        half = (2 * n - only_a + only_b) * d - only_a - only_b
        q = (sqrt(half * half + 8 * n * only_b * d * (1 - d)) - half) / (4 * n)
        return (n * (observed - d)) ** 2 <= z * z * n * (2 * q + d * (1 - d))

    return last_that_fits(fits, observed, -1.0), last_that_fits(fits, observed, 1.0)


def last_that_fits(fits: Callable[[float], bool], inside: float, end: float) -> float:
    """On the way from `inside`, which fits, to `end`: where it ceases to fit, found by halving."""
    if fits(end):
        return end
    outside = end
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)
    return inside


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided p-value that A and B are equally good, from the items that exactly one of them solves.

    Twice the lower tail of a fair binomial at min(b, c) of b + c, at most 1: McNemar's test, exact.
    """
    n = only_a + only_b
    tail = sum(comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / (1 << n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction (1979) for several comparisons: adjusted p-values in the order given.

    The i-th smallest of m is multiplied by m - i + 1, and none may fall below one before it.
    """
    adjusted, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted


def pass_at_k(n: int, right: int, k: int) -> float:
    """How likely at least one of k samples is right, unbiased, from n samples of which some are (Chen et al. 2021).

    1 - C(n - right, k) / C(n, k), as a product so that no large number occurs.
    """
    if not 1 <= k <= n or not 0 <= right <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= right <= n, got k={k}, n={n}, right={right}")
    if n - right < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(n - right + 1, n + 1))


def mean_pass_at_k(problems: Iterable[tuple[int, int]], k: int) -> float:
    """The mean of `pass_at_k` over problems, each given as (samples, right ones)."""
    values = [pass_at_k(n, right, k) for n, right in problems]
    if not values:
        raise ValueError("pass@k needs at least one problem, got none")
    return sum(values) / len(values)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1 below) of one number per seed; one seed says nothing of the spread."""
    if not values:
        raise ValueError("a mean needs at least one value, got none")
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
