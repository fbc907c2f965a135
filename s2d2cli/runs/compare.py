"""Two runs on the same samples: which is better, by how much, and on which samples they differ.

Only paired numbers: two accuracies with overlapping intervals can differ for certain when it is the same samples that
both solve, and the other way round.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from s2d2cli.errors import ConfigError
from s2d2cli.runs import described
from s2d2cli.runs.again import find
from s2d2cli.runs.approximate import approximations
from s2d2cli.runs.environment import target_files
from s2d2cli.runs.store import Record, decoder_name
from s2d2cli.tasks.statistics import PairedDifference, paired_difference, paired_ratio_interval

CORRECT = "correct"
SAME = ("hardware", "dtype", "batch_size")  # what must agree for a speed-up to mean something


@dataclass(frozen=True)
class Side:
    """One of the two runs: its record, and its samples by id."""

    record: Record
    rows: dict[str, Record]

    @property
    def name(self) -> str:
        config = self.record["config"]
        decoder = decoder_name(config["decoder"], config["router"]["kind"])
        told = approximations(described.settings(self.record)).items()
        words = "".join(f", {key.removesuffix('.kind')}={value} (approximate)" for key, value in told)
        lossless = described.lossless_text(self.record)
        words += f", lossless against {lossless}" if lossless not in ("", "no") else ""
        return f"{decoder} at block length {config['decode']['block_length']}{words} ({self.record['run_id']})"

    @property
    def company(self) -> dict[str, str]:
        found = described.company(self.record)
        return {key: str(found[key]) for key in SAME}

    def solved(self, name: str, measure: str) -> bool:
        row = self.rows[name]
        if measure == CORRECT:
            return bool(row["correct"])
        hits, total = row["measures"][measure]
        return bool(hits == total)


@dataclass(frozen=True)
class SpeedUp:
    """The first run's ratio over the second's, with its paired bootstrap interval."""

    ratio: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Compared:
    first: Side
    second: Side
    measure: str

    @cached_property
    def ids(self) -> list[str]:
        return list(self.first.rows)

    @cached_property
    def accuracy(self) -> PairedDifference:
        a, b = ([side.solved(name, self.measure) for name in self.ids] for side in (self.first, self.second))
        return paired_difference(a, b)

    @cached_property
    def flips(self) -> dict[str, list[str]]:
        """Samples that exactly one of the two solves."""
        verdicts = {name: [side.solved(name, self.measure) for side in (self.first, self.second)] for name in self.ids}
        return {
            "only_first": [name for name, (a, b) in verdicts.items() if a and not b],
            "only_second": [name for name, (a, b) in verdicts.items() if b and not a],
        }

    @cached_property
    def incomparable(self) -> list[str]:
        """Why their seconds cannot be compared; empty when they can."""
        a, b = self.first.company, self.second.company
        found = [f"{key.replace('_', ' ')}: {a[key]} and {b[key]}" for key in SAME if a[key] != b[key]]
        sides = (self.first, self.second)
        return found + ["traced" for side in sides if side.record.get("traced")][:1]

    @cached_property
    def settings(self) -> list[str]:
        """In which settings that have an effect for both the two differ, and what each has."""
        a, b = (described.settings(side.record) for side in (self.first, self.second))
        return [
            f"{key} {described.plain(a[key])} and {described.plain(b[key])}"
            for key in a
            if key in b and a[key] != b[key]
        ]

    def speed_up(self, of: str) -> SpeedUp:
        """`of` is "seconds" or "forwards": new tokens per each of them."""
        ours, theirs = self._per(self.first, of), self._per(self.second, of)
        ratio = sum(ours[0]) / sum(ours[1]) / (sum(theirs[0]) / sum(theirs[1]))
        clusters = [self.first.rows[name]["problem"] for name in self.ids]
        return SpeedUp(ratio, paired_ratio_interval(ours, theirs, clusters=clusters))

    def _per(self, side: Side, of: str) -> tuple[list[float], list[float]]:
        rows = [side.rows[name] for name in self.ids]
        spent = [sum((row["cost"]["seconds"] if of == "seconds" else row["forwards"]).values()) for row in rows]
        return [row["tokens"] for row in rows], spent

    def plain(self) -> dict[str, Any]:
        timed = None if self.incomparable else asdict(self.speed_up("seconds"))
        return {
            "first": self.first.name,
            "second": self.second.name,
            "measure": self.measure,
            "settings": self.settings,
            **asdict(self.accuracy),
            **self.flips,
            "tokens_per_forward": asdict(self.speed_up("forwards")),
            "tokens_per_s": timed,
            "incomparable": self.incomparable,
        }


def compare(first: Path, second: Path, measure: str = CORRECT) -> Compared:
    """Refused with a sentence unless both runs are finished and saw the same prompts."""
    a, b = (side_of(path) for path in (first, second))
    if a.rows.keys() != b.rows.keys():
        shared = len(a.rows.keys() & b.rows.keys())
        raise ConfigError(
            f"a comparison needs the same samples in both runs, got {len(a.rows)} and {len(b.rows)} of which {shared} "
            f"are shared; run both with the same task, limit and repeats"
        )
    other = [name for name, row in a.rows.items() if row["prompt_sha256"] != b.rows[name]["prompt_sha256"]]
    if other:
        raise ConfigError(
            f"a comparison needs the same prompts in both runs, and {len(other)} of {len(a.rows)} differ "
            f"({other[0]} is the first); compare runs of one model and one prompt style"
        )
    if target_files(a.record.get("model_files")) != target_files(b.record.get("model_files")):
        raise ConfigError(
            f"a comparison of decoders needs the same weights in both runs, and those of {first} and {second} differ; "
            f"compare runs of one checkpoint"
        )
    known = set.intersection(*({CORRECT, *row["measures"]} for side in (a, b) for row in side.rows.values()))
    if measure not in known:
        raise ConfigError(f"measure must be one of {', '.join(sorted(known))}, got {measure!r}")
    return Compared(a, b, measure)


def side_of(path: Path) -> Side:
    folder, record = find(path)
    if record["status"] != "success":
        raise ConfigError(f"{path} must be a finished run, its status is {record['status']}; run its command again")
    return Side(record, folder.rows())
