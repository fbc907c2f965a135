"""A worker: takes open points of a sweep one after the other, until none is left that it could take.

Every sweep runs through this, whether in one process or on many machines. What evaluates a point is passed in, so this
file knows neither torch nor models.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from s2d2cli import plugins
from s2d2cli.errors import BusyError, ConfigError
from s2d2cli.runs import claims, code
from s2d2cli.runs.interrupt import stop_signal
from s2d2cli.runs.ledger import FAILED, INTERRUPTED, MOST_DEATHS, OK, Ledger, PointRow, open_entries
from s2d2cli.runs.manifest import Entry, SweepFolder


@dataclass(frozen=True)
class Finish:
    """What an evaluation came to."""

    folder: Path
    interrupted: bool


Evaluate = Callable[[Entry, SweepFolder], Finish]


@dataclass
class Worker:
    sweep: SweepFolder
    evaluate: Evaluate
    shard: tuple[int, int] = (1, 1)  # (i, N): only the i-th of N parts, cut by run id
    model: str = ""  # what is loaded
    busy: set[str] = field(default_factory=set)  # points that a process outside this sweep is writing
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.manifest = self.sweep.read()
        self.ledger = Ledger(self.sweep.path / "rows")
        part, parts = self.shard
        self.entries = [e for e in self.manifest.entries if int(e.run_id, 16) % parts == part - 1]

    def run(self) -> Iterator[PointRow]:
        """A row for each attempt. The first Ctrl-C or SIGTERM ends it after the samples in hand."""
        with stop_signal() as stop:
            while not stop.requested:
                held = self.take()
                if held is None:
                    return
                entry, claim = held
                with claim.kept():
                    row = self.attempt(entry)
                if row is not None:
                    yield row
            self.interrupted = True

    def take(self) -> tuple[Entry, claims.Claim] | None:
        """An open point that nobody holds; the loaded model's come first, those that have killed a worker last."""
        self.ledger.refresh()
        if self.called_off():
            return None
        for entry in sorted(open_entries(self.entries, self.ledger), key=self.turn):
            claim = claims.take(self.sweep.path / "claims", entry.run_id) if entry.run_id not in self.busy else None
            if claim is not None and self.still_open(entry, claim):
                return entry, claim
        return None

    def called_off(self) -> bool:
        """Whether no further point is to begin: the driver said so, or a point failed and one was to be enough."""
        failed = self.manifest.fail_fast and any(self.failed(entry) for entry in self.manifest.entries)
        return failed or self.sweep.stop.exists()

    def turn(self, entry: Entry) -> tuple[int, bool]:
        return self.ledger.deaths(entry), entry.model != self.model

    def failed(self, entry: Entry) -> bool:
        verdict = self.ledger.verdict(entry)
        return verdict is not None and verdict.status == FAILED

    def still_open(self, entry: Entry, claim: claims.Claim) -> bool:
        """Whether the point is open now that we hold it: it may have ended while we looked. A holder that died is noted
        first, and may have been one too many."""
        self.ledger.refresh()
        if claim.died is not None and self.ledger.verdict(entry) is None:
            self.note_death(entry, claim.died)
        if self.ledger.verdict(entry) is None:
            return True
        claim.release()
        return False

    def note_death(self, entry: Entry, holder: claims.Holder) -> None:
        """Unless the dead one had written its row already."""
        last = self.ledger.counted(entry)[-1:]
        if any((row.host, row.pid) == (holder.host, holder.pid) and row.began >= holder.since for row in last):
            return
        before = self.ledger.deaths(entry)
        error = f"its worker died (process {holder.pid} on {holder.host})"
        if before + 1 < MOST_DEATHS:
            self.write(entry, INTERRUPTED, holder.since, None, error)
        else:
            self.write(entry, FAILED, holder.since, None, f"{error}, as did {before} before it")
        self.ledger.refresh()

    def attempt(self, entry: Entry) -> PointRow | None:
        """Evaluate the point; the row is on disk before the claim goes. An error is a row, and the next point comes."""
        began = time.time()
        self.model = entry.model
        try:
            finish = self.evaluate(entry, self.sweep)
        except BusyError:
            self.busy.add(entry.run_id)
            return None
        except Exception as error:  # with its traceback in the run.json of the point
            return self.write(entry, FAILED, began, None, plugins.told(error))
        except BaseException:
            self.write(entry, INTERRUPTED, began, None, None)
            raise
        return self.write(entry, INTERRUPTED if finish.interrupted else OK, began, finish.folder, None)

    def write(self, entry: Entry, status: str, began: float, folder: Path | None, error: str | None) -> PointRow:
        number = self.ledger.attempts(entry.run_id) + 1
        where = (socket.gethostname(), os.getpid(), code.version())
        row = PointRow(entry.run_id, status, number, began, time.time(), *where, error, folder.name if folder else None)
        self.ledger.append(row)
        return row


def parse_shard(text: str) -> tuple[int, int]:
    """`2/8` is the second of eight parts."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ConfigError(f"--shard must be I/N with I from 1 to N, as in 2/8; got {text!r}")
    return int(part), int(parts)
