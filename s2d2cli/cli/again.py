"""`s2d2 score` and `s2d2 reproduce`: a run once more, from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.evaluate import AllowCode
from s2d2cli.cli.screen import screen
from s2d2cli.errors import ConfigError, S2D2Error

if TYPE_CHECKING:
    from s2d2cli.runs.again import Reproduced

SHOWN = 10


def score(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, as `s2d2 eval` prints them.")],
    allow_code_execution: AllowCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print run.json instead of a table.")] = False,
) -> None:
    """Judge the saved answers of runs again, without a model; nothing is decoded."""
    failed = []
    for run in runs:
        try:
            score_one(run, allow_code_execution, as_json)
        except S2D2Error as error:
            if len(runs) == 1:
                raise
            typer.echo(f"error: {error}", err=True)
            failed.append(str(run))
    if failed:
        raise ConfigError(f"{len(failed)} of {len(runs)} runs could not be scored ({', '.join(failed)}); see above")


def score_one(run: Path, allow_code_execution: bool, as_json: bool) -> None:
    import json

    from s2d2cli.runs.again import score as judge
    from s2d2cli.runs.tables import outcome_table

    scored = judge(run, allow_code_execution)
    if as_json:
        typer.echo(json.dumps(scored.outcome.record, indent=1, ensure_ascii=False))
        return
    screen().print(outcome_table(scored.outcome.record))
    changed = f"{len(scored.changed)} verdicts changed: {few(scored.changed)}" if scored.changed else ""
    typer.echo(f"{changed or 'no verdict changed'}; accuracy before: {number(scored.before)}")


def reproduce(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, as `s2d2 eval` prints it.")],
    results: Annotated[Path, typer.Option("--results", "-o", metavar="FOLDER", help="Where the new run is kept.")] = (
        Path("results/reproduced")
    ),
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Only the first N samples.", min=1, show_default=False)
    ] = None,
    allow_code_execution: AllowCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Run a record again from nothing but the record, and compare token by token; exit code 1 when they differ."""
    import json

    from s2d2cli.runs.again import reproduce as again

    found = again(run, results, limit, allow_code_execution)
    if found.outcome.interrupted:
        typer.echo("Interrupted; the same command goes on from here.", err=True)
        raise typer.Exit(130)
    typer.echo(json.dumps(found.plain(), indent=1) if as_json else told(found))
    if not found.same:
        raise typer.Exit(1)


def told(found: Reproduced) -> str:
    """The comparison in a few lines."""
    if not found.compared:
        lines = ["nothing to compare: the record has none of the samples that were decoded now"]
    elif found.same:
        lines = [f"reproduced: {found.compared} of {found.compared} samples have the same tokens"]
    else:
        of = f"{len(found.differing)} of {found.compared}"
        lines = [f"not reproduced: {of} samples have other tokens ({few(found.differing)})"]
    now, before = found.outcome.record, found.recorded
    if found.compared:
        lines.append(f"solved: {found.solved[0]} of {found.compared} now, {found.solved[1]} in the record")
    if found.environment:
        both = (f"{key} {before['environment'][key]} -> {now['environment'][key]}" for key in found.environment)
        lines.append(f"what differs between the two: {', '.join(both)}")
    return "\n".join([*lines, str(found.outcome.folder)])


def few(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")


def number(accuracy: float | None) -> str:
    return "unknown" if accuracy is None else f"{accuracy:.3f}"
