"""A call of `s2d2 sweep`: what is still to do goes into the manifest, and what is done already into the rows."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from s2d2cli import plugins
from s2d2cli.config import record
from s2d2cli.runs import claims, code
from s2d2cli.runs.evaluate import finished, model_key
from s2d2cli.runs.ledger import FAILED, OK, Ledger, PointRow
from s2d2cli.runs.manifest import Entry, Manifest, SweepFolder
from s2d2cli.runs.store import folder_of
from s2d2cli.runs.sweep import Point


@dataclass(frozen=True)
class Rules:
    """What a call may do with what earlier ones left."""

    retry_failed: bool = True
    max_attempts: int | None = None  # failed ones of a point, over all calls
    fail_fast: bool = False
    strict_code: bool = False
    break_claims: bool = False


def sweep_folder(name: str, points: Sequence[Point]) -> SweepFolder:
    """The same points are the same sweep, in whatever order and by whichever words."""
    digest = hashlib.sha256(",".join(sorted(point.run_id for point in points)).encode()).hexdigest()[:8]
    return SweepFolder(Path(points[0].config.results) / "sweeps" / f"{name}-{digest}")


def begin(sweep: SweepFolder, points: Sequence[Point], rules: Rules) -> Manifest:
    """Write the manifest of this call; a point that is finished on disk gets its row without a worker."""
    (sweep.path / "rows").mkdir(parents=True, exist_ok=True)
    ledger = Ledger(sweep.path / "rows")
    ledger.refresh()
    if rules.strict_code:
        for point, _ in of_other_code(points):
            set_aside(point, sweep)
    entries = [entry_of(point, ledger, rules) for point in points]
    used = [asdict(plugin) for plugin in plugins.LOADED.values()]
    manifest = Manifest(entries, os.getcwd(), used, rules.fail_fast)
    sweep.write(manifest)
    sweep.stop.unlink(missing_ok=True)
    if rules.break_claims:
        claims.break_all(sweep.path / "claims")
    return manifest


def entry_of(point: Point, ledger: Ledger, rules: Rules) -> Entry:
    """The point with the attempts that do not count any more: none when it is done, all when it is to run again."""
    entry = Entry(point.run_id, point.overrides, record(point.config), model_key(point.config))
    if finished(point.config):
        if not any(row.status == OK for row in ledger.rows[point.run_id]):
            ledger.append(kept(point, ledger.attempts(point.run_id) + 1))
        return entry
    failed = [row.attempt for row in ledger.rows[point.run_id] if row.status == FAILED]
    enough = rules.max_attempts is not None and len(failed) >= rules.max_attempts
    if failed and (enough or not rules.retry_failed):
        return replace(entry, after=max(failed) - 1)
    return replace(entry, after=ledger.attempts(point.run_id))


def kept(point: Point, attempt: int) -> PointRow:
    """The row of a point that another sweep or an `s2d2 eval` finished."""
    now, folder = time.time(), folder_of(point.config)
    noted = (folder.record() or {}).get("environment", {})
    version = code.described(noted.get("s2d2"), noted.get("revision"))
    return PointRow(
        point.run_id, OK, attempt, now, now, socket.gethostname(), os.getpid(), version, folder=folder.path.name
    )


def of_other_code(points: Sequence[Point]) -> list[tuple[Point, str]]:
    """The points that were begun or finished by another version of the code than runs now, and by which."""
    found = []
    for point in points:
        noted = (folder_of(point.config).record() or {}).get("environment")
        version = code.described(noted.get("s2d2"), noted.get("revision")) if noted else code.version()
        found += [(point, version)] if version != code.version() else []
    return found


def set_aside(point: Point, sweep: SweepFolder) -> None:
    """Move a run out of the way of a new one; nothing is deleted."""
    folder = folder_of(point.config)
    aside = sweep.path / "replaced"
    aside.mkdir(parents=True, exist_ok=True)
    with folder.locked():
        number = len(list(aside.glob(f"{folder.path.name}*")))
        folder.path.rename(aside / (folder.path.name + (f".{number}" if number else "")))
