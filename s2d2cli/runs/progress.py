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


@dataclass
class Lines:
    """For logs: one plain line every half minute."""

    total: int
    done: int
    last: float = field(default_factory=time.monotonic)

    def advance(self, count: int) -> None:
        self.done += count
        if time.monotonic() - self.last >= QUIET_SECONDS:
            self.last = time.monotonic()
            print(f"{self.done} of {self.total} samples", file=sys.stderr, flush=True)


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
