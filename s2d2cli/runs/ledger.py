"""What became of each attempt at a point: a line per attempt, in a file per process, on the disk before it counts."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from s2d2cli.runs.manifest import Entry

OK, FAILED, INTERRUPTED = "ok", "failed", "interrupted"
MOST_DEATHS = 5  # a point that has killed so many workers is not given to another one


@dataclass(frozen=True)
class PointRow:
    """One attempt at a point."""

    run_id: str
    status: str  # OK, FAILED or INTERRUPTED
    attempt: int
    began: float
    ended: float
    host: str
    pid: int
    code: str  # the version that ran
    error: str | None = None  # of an interrupted attempt: how its worker died
    folder: str | None = None  # the name of the run folder

    @property
    def died(self) -> bool:
        return self.status == INTERRUPTED and self.error is not None


@dataclass
class Ledger:
    """Reads all rows, each once; writes this process's own file."""

    folder: Path
    rows: dict[str, list[PointRow]] = field(default_factory=lambda: defaultdict(list))
    read_to: dict[str, int] = field(default_factory=dict)  # bytes of each file
    own: Path | None = None

    def append(self, row: PointRow) -> None:
        """One line in one write to a file of this process alone. The row counts once it is read back."""
        if self.own is None:
            name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}.jsonl"
            self.own = self.folder / name
        line = json.dumps(asdict(row), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with self.own.open("ab", buffering=0) as file:
            file.write(line)
            os.fsync(file.fileno())

    def refresh(self) -> list[PointRow]:
        """The rows that have come since, in the order of their ends. A line without its end is not read yet."""
        new = [row for file in sorted(self.folder.glob("*.jsonl")) for row in self.tail(file)]
        for row in new:
            self.rows[row.run_id].append(row)
        return sorted(new, key=lambda row: row.ended)

    def tail(self, file: Path) -> list[PointRow]:
        with file.open("rb") as open_file:
            open_file.seek(self.read_to.get(file.name, 0))
            text = open_file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.read_to[file.name] = self.read_to.get(file.name, 0) + len(whole)
        return [row for row in map(parsed, whole.splitlines()) if row is not None]

    def attempts(self, run_id: str) -> int:
        return max((row.attempt for row in self.rows[run_id]), default=0)

    def counted(self, entry: Entry) -> list[PointRow]:
        """The attempts of this round, oldest first."""
        return sorted((r for r in self.rows[entry.run_id] if r.attempt > entry.after), key=lambda row: row.attempt)

    def verdict(self, entry: Entry) -> PointRow | None:
        """The row that settles this point, if one does: an ok one before a failed one."""
        settled = [row for row in self.counted(entry) if row.status != INTERRUPTED]
        return next((row for row in settled if row.status == OK), settled[-1] if settled else None)

    def deaths(self, entry: Entry) -> int:
        return sum(row.died for row in self.counted(entry))


def parsed(line: bytes) -> PointRow | None:
    """The row of a line; None for a torn one, or one that a later version wrote otherwise."""
    try:
        plain = json.loads(line)
        return PointRow(**{f.name: plain[f.name] for f in fields(PointRow)})
    except (ValueError, LookupError, TypeError):
        return None


def open_entries(entries: Sequence[Entry], ledger: Ledger) -> list[Entry]:
    return [entry for entry in entries if ledger.verdict(entry) is None]
