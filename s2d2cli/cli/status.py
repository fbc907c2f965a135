"""`s2d2 status`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from s2d2cli.runs.status import Standing


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Of a sweep, under results/sweeps/; `s2d2 sweep` names it.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one object.")] = False,
) -> None:
    """Say which points of a sweep are done, failed, running (and where) and still to do."""
    from s2d2cli.runs.manifest import SweepFolder
    from s2d2cli.runs.status import standings

    found = standings(SweepFolder(folder))
    counts = Counter(standing.state for standing in found)
    if as_json:
        typer.echo(json.dumps({"counts": counts, "points": [plain(standing) for standing in found]}, indent=1))
        return
    for number, standing in enumerate(found, 1):
        typer.echo(f"{number:3} {standing.state:7} {standing.entry.run_id} {standing.entry.words}{remark(standing)}")
    typer.echo(", ".join(f"{counts[state]} {state}" for state in ("done", "failed", "running", "todo")))


def remark(standing: Standing) -> str:
    if standing.state == "failed" and standing.row is not None:
        return f": {standing.row.error}"
    count = f": {standing.samples} samples so far" if standing.samples else ""
    if standing.state == "running" and standing.holder is not None:
        return f"{count or ':'} by process {standing.holder.pid} on {standing.holder.host}"
    return count


def plain(standing: Standing) -> dict[str, object]:
    row, holder = standing.row, standing.holder if standing.state == "running" else None
    return {
        "run_id": standing.entry.run_id,
        "overrides": standing.entry.overrides,
        "state": standing.state,
        "samples": standing.samples,
        "row": asdict(row) if row else None,
        "holder": asdict(holder) if holder else None,
    }
