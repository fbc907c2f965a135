"""How sure a measured share or ratio is, and whether two decoders differ on the same problems."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt

import numpy as np

DRAWS = 2000


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a share, as fractions: right near 0 and 1 too, unlike share +- z standard errors."""
    if n == 0:
        return 0.0, 1.0
    share, z2 = successes / n, z * z
    center = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, min(share, center - half)), min(1.0, max(share, center + half))


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of sum(numerators) / sum(denominators) when items are drawn anew, pairs intact.

    A mean of per-item ratios would be another number: tokens per second is all tokens over all seconds.
    """
    if len(numerators) != len(denominators) or not sum(denominators) > 0:
        raise ValueError(
            f"a ratio needs as many denominators as numerators and a sum above 0, "
            f"got {len(numerators)} numerators and {len(denominators)} denominators with sum {sum(denominators)}"
        )
    pairs_N2 = np.column_stack([numerators, denominators]).astype(np.float64)
    num_items = len(pairs_N2)
    counts_DN = np.random.default_rng(seed).multinomial(num_items, np.full(num_items, 1 / num_items), size=DRAWS)
    sums_D2 = counts_DN @ pairs_N2
    sums_D2 = sums_D2[sums_D2[:, 1] > 0]  # a draw of nothing but empty items has no ratio
    ratios_D = sums_D2[:, 0] / sums_D2[:, 1]
    low, high = np.quantile(ratios_D, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided p-value that A and B are equally good, from the items that exactly one of them solves."""
    n = only_a + only_b
    tail = sum(comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / (1 << n))
