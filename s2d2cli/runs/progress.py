"""How far a run is, on stderr: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

QUIET_SECONDS = 30.0
FIRST_SAMPLES = 3


@dataclass
class Lines:
    """For logs: one plain line after the first few samples, which say how long it will take, then every half minute."""

    total: int
    done: int
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    new: int = 0  # samples of this call

    def advance(self, count: int) -> None:
        first = self.new < FIRST_SAMPLES <= self.new + count
        self.done, self.new = self.done + count, self.new + count
        now = time.monotonic()
        if now - self.last >= QUIET_SECONDS or (first and self.left_s(now) > 2 * QUIET_SECONDS):
            self.last = now
            left = f"about {self.left_s(now) / 60:.0f} minutes to go"
            print(f"{self.done} of {self.total} samples, {left}", file=sys.stderr, flush=True)

    def left_s(self, now: float) -> float:
        return (now - self.began) / self.new * (self.total - self.done)


@dataclass
class Bar:
    """For people at a terminal."""

    progress: Progress

    def advance(self, count: int) -> None:
        self.progress.advance(self.progress.task_ids[0], count)


@contextmanager
def progress(total: int, done: int) -> Iterator[Lines | Bar]:
    if not sys.stderr.isatty():
        yield Lines(total, done)
        return
    columns = (TextColumn("samples"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task("samples", total=total, completed=done)
        yield Bar(bar)
