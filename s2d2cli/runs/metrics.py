"""Every number that a report can put on an axis: its name, unit, direction and digits. Nowhere else are these known.

A metric that is a ratio of sums over samples names the two columns of `samples.COLUMNS` that it divides, so that the
bootstrap can form it anew from any draw; the others have no interval.
"""

from __future__ import annotations

from dataclasses import dataclass

from s2d2cli.errors import ConfigError


@dataclass(frozen=True)
class Metric:
    key: str
    label: str
    short: str
    unit: str
    larger: bool  # whether larger is better
    digits: int
    of: tuple[str, str] | None = None

    @property
    def sign(self) -> int:
        return 1 if self.larger else -1

    @property
    def low(self) -> str:
        return f"{self.key}_low"

    @property
    def high(self) -> str:
        return f"{self.key}_high"


ACCURACY = Metric(
    "accuracy", "accuracy", "accuracy", "share of samples answered correctly, with its 95 % interval", True, 3,
    ("hits", "total"),
)  # fmt: skip
THROUGHPUT = Metric(
    "tokens_per_s", "tokens/s", "tok/s", "new tokens per second of decoding, whole batches; no loading, warm-up or "
    "scoring", True, 1, ("tokens", "seconds"),
)  # fmt: skip
PER_FORWARD = Metric(
    "tokens_per_forward", "tokens/forward", "tok/fwd", "new tokens per forward pass of a row, prefill counted", True, 2,
    ("tokens", "forwards"),
)  # fmt: skip
SPEEDUP = Metric("speedup", "speed-up", "speed-up", "tokens/s over those of the baseline in the same table", True, 2)
SPEEDS = (
    THROUGHPUT,
    PER_FORWARD,
    SPEEDUP,
    Metric(
        "forwards_per_token", "forwards/token", "fwd/tok", "forward passes of a row per new token, prefill counted",
        False, 3, ("forwards", "tokens"),
    ),
    Metric(
        "forwards_per_sample", "forwards/sample", "fwd/sample", "forward passes of a row per sample (NFE), prefill "
        "counted", False, 1, ("forwards", "samples"),
    ),
    Metric(
        "rows_per_forward", "rows/forward", "rows/fwd", "token positions that one forward pass computes, whole batch",
        False, 1, ("query_rows", "model_forwards"),
    ),
    Metric(
        "ms_per_forward", "ms/forward", "ms/fwd", "milliseconds of decoding per forward pass of the whole batch, what "
        "lies between the passes counted", False, 2, ("milliseconds", "model_forwards"),
    ),
    Metric(
        "seconds_per_sample", "seconds/sample", "s/sample", "seconds of decoding per sample: a batch's seconds are "
        "shared out among its samples", False, 3, ("seconds", "samples"),
    ),
    Metric("latency_p50_s", "median latency", "p50 s", "seconds from a sample's start to its end, median", False, 3),
    Metric("latency_p90_s", "90th latency", "p90 s", "the same, 90th percentile", False, 3),
    Metric("peak_gib", "peak memory", "GiB", "GiB in use at most: of the GPU; on a CPU of the "
        "process, which keeps that of its earlier runs", False, 2),
)  # fmt: skip
METRICS = {metric.key: metric for metric in (ACCURACY, *SPEEDS)}
USUAL = (THROUGHPUT, PER_FORWARD)


def axes(names: str | None, published: bool = False) -> tuple[Metric, ...]:
    """The metrics of `--x`, comma-separated; accuracy is always the other axis. Published figures are mostly speed-ups,
    so that axis comes with them unless others were chosen."""
    if names is None:
        return (*USUAL, SPEEDUP) if published else USUAL
    known = {metric.key: metric for metric in SPEEDS}
    chosen = [name.strip() for name in names.split(",")]
    wrong = [name for name in chosen if name not in known]
    if wrong:
        raise ConfigError(f"--x must name some of {', '.join(known)}, got {wrong[0]!r}")
    return tuple(known[name] for name in dict.fromkeys(chosen))


def gates(words: list[str]) -> dict[Metric, float]:
    """The bounds of `--fail-under`, each as METRIC=NUMBER."""
    found = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            found[METRICS[name]] = float(text)
        except (KeyError, ValueError):
            known = ", ".join(METRICS)
            raise ConfigError(f"--fail-under must be METRIC=NUMBER with one of {known}, got {word!r}") from None
    return found
