"""How far a run is, on stderr: a bar on a terminal, otherwise a line now and then.

Accuracy and tokens per second are of what was decoded by this call, the shortest prompts first: a first impression.
"""

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
class Tally:
    """What the answers of this call come to."""

    began: float = field(default_factory=lambda: time.monotonic())
    answers: int = 0
    judged: int = 0
    correct: int = 0
    tokens: int = 0

    def add(self, tokens: int, correct: bool | None) -> None:
        self.answers, self.tokens = self.answers + 1, self.tokens + tokens
        self.judged, self.correct = self.judged + (correct is not None), self.correct + bool(correct)

    def words(self) -> str:
        seconds = max(time.monotonic() - self.began, 1e-9)
        speed = [f"{self.tokens / seconds:.0f} tokens/s"] if self.tokens else []
        return ", ".join([*([f"accuracy {self.correct / self.judged:.3f}"] if self.judged else []), *speed])


@dataclass
class Lines:
    """For logs: one plain line after the first few samples, which say how long it will take, then every half minute."""

    total: int
    done: int
    tally: Tally = field(default_factory=Tally)
    last: float = field(default_factory=lambda: time.monotonic())

    def advance(self, tokens: int = 0, correct: bool | None = None) -> None:
        self.tally.add(tokens, correct)
        self.done += 1
        now = time.monotonic()
        first = self.tally.answers == FIRST_SAMPLES
        if now - self.last >= QUIET_SECONDS or (first and self.left_s(now) > 2 * QUIET_SECONDS):
            self.last = now
            told = [f"{self.done} of {self.total} samples", f"about {self.left_s(now) / 60:.0f} minutes to go"]
            print(", ".join([*told, self.tally.words()]).rstrip(", "), file=sys.stderr, flush=True)

    def left_s(self, now: float) -> float:
        return (now - self.tally.began) / self.tally.answers * (self.total - self.done)


@dataclass
class Bar:
    """For people at a terminal."""

    progress: Progress
    tally: Tally = field(default_factory=Tally)

    def advance(self, tokens: int = 0, correct: bool | None = None) -> None:
        self.tally.add(tokens, correct)
        self.progress.update(self.progress.task_ids[0], advance=1, so_far=self.tally.words())


@contextmanager
def progress(total: int, done: int) -> Iterator[Lines | Bar]:
    console = Console(stderr=True)
    if not sys.stderr.isatty() or console.is_dumb_terminal:  # a dumb terminal cannot go back to redraw a bar
        yield Lines(total, done)
        return
    columns = (TextColumn("samples"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[so_far]}"), console=console, transient=True) as bar:
        bar.add_task("samples", total=total, completed=done, so_far="")
        yield Bar(bar)
