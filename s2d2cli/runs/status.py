"""How a sweep stands, read from its folder alone: by anybody, at any time, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from s2d2cli.runs import claims
from s2d2cli.runs.claims import Holder
from s2d2cli.runs.ledger import FAILED, Ledger, PointRow
from s2d2cli.runs.manifest import Entry, SweepFolder


@dataclass(frozen=True)
class Standing:
    """A point: how it ended, or who has it in hand and how many samples are written."""

    entry: Entry
    row: PointRow | None
    holder: Holder | None
    samples: int

    @property
    def state(self) -> str:
        if self.row is not None:
            return "failed" if self.row.status == FAILED else "done"
        return "todo" if self.holder is None or self.holder.dead else "running"


def standings(sweep: SweepFolder) -> list[Standing]:
    manifest, ledger = sweep.read(), Ledger(sweep.path / "rows")
    ledger.refresh()
    held = claims.holders(sweep.path / "claims")
    found = []
    for entry in manifest.entries:
        row = ledger.verdict(entry)
        found.append(Standing(entry, row, held.get(entry.run_id), 0 if row else samples(sweep, entry.run_id)))
    return found


def running(sweep: SweepFolder) -> list[str]:
    """The points that a process holds which is not known to be dead."""
    return [name for name, holder in claims.holders(sweep.path / "claims").items() if not holder.dead]


def samples(sweep: SweepFolder, run_id: str) -> int:
    """The lines written so far."""
    files = sweep.results.glob(f"*-{run_id}/samples.jsonl")
    return sum(file.read_bytes().count(b"\n") for file in files)
