"""What a sweep shows while it runs, on stderr: a line per attempt, and how far all workers are."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from s2d2cli.runs.ledger import FAILED, INTERRUPTED, OK, Ledger, PointRow
from s2d2cli.runs.manifest import Entry, SweepFolder

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_S = 30.0
SHOWN = {OK: "done", FAILED: "failed", INTERRUPTED: "interrupted"}


@dataclass
class Watch:
    """Reads the rows of all workers as they come."""

    sweep: SweepFolder
    entries: Sequence[Entry]
    bar: Progress | None = None
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.sweep.path / "rows")
        self.ledger.refresh()
        self.by_id = {entry.run_id: entry for entry in self.entries}
        self.settled = {entry.run_id for entry in self.entries if self.ledger.verdict(entry)}
        self.before = len(self.settled)

    def update(self) -> None:
        """Tell what has come since."""
        for row in self.ledger.refresh():
            entry = self.by_id.get(row.run_id)
            if entry is not None and row.attempt > entry.after:
                self.settled |= set() if row.status == INTERRUPTED else {row.run_id}
                self.say(f"[{len(self.settled)}/{len(self.entries)}] {told(row, entry, self.sweep)}")

    def say(self, text: str) -> None:
        if self.bar is None:
            typer.echo(text, err=True)
        else:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def progress(self) -> None:
        """How far the workers are: in the bar, or now and then as a line."""
        if self.bar is not None:
            description = f"points, {self.in_hand()}"
            self.bar.update(self.bar.task_ids[0], completed=len(self.settled), description=description)
        elif time.monotonic() - self.last >= QUIET_S:
            self.last = time.monotonic()
            self.say(f"{len(self.settled)} of {len(self.entries)} points, {self.in_hand()}{self.left()}")

    def in_hand(self) -> str:
        from s2d2cli.runs.status import running, samples

        names = [name for name in running(self.sweep) if name in self.by_id and name not in self.settled]
        return f"{len(names)} running ({sum(samples(self.sweep, name) for name in names)} samples)"

    def left(self) -> str:
        done = len(self.settled) - self.before
        if not done:
            return ""
        from s2d2cli.runs.estimate import duration

        seconds = (time.monotonic() - self.began) / done * (len(self.entries) - len(self.settled))
        return f", about {duration(seconds)} to go"

    def failed(self) -> list[tuple[Entry, PointRow]]:
        verdicts = [(entry, self.ledger.verdict(entry)) for entry in self.entries]
        return [(entry, row) for entry, row in verdicts if row is not None and row.status == FAILED]

    def open(self) -> int:
        return len(self.entries) - len(self.settled)


def bar() -> Progress | None:
    """For people at a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def told(row: PointRow, entry: Entry, sweep: SweepFolder) -> str:
    """One attempt in one line: what it was and what came out."""
    words = f"{SHOWN[row.status]} {entry.words}"
    if row.error is not None:
        return f"{words}: {row.error}"
    record = run_of(row, sweep)
    if not record.get("n"):
        return words
    if record["n"] < record["samples"]:
        return f"{words}: {record['n']} of {record['samples']} samples so far"
    speed = record["speed"] or {}
    numbers = f"accuracy {record['accuracy']:.3f}, {speed.get('tokens_per_forward') or 0:.2f} tokens/forward"
    return f"{words}: {numbers}, {speed.get('tokens_per_s') or 0:.0f} tokens/s"


def run_of(row: PointRow, sweep: SweepFolder) -> dict[str, Any]:
    from s2d2cli.runs.store import RunFolder

    return (RunFolder(sweep.results / row.folder).record() if row.folder else None) or {}
