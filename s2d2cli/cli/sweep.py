"""`s2d2 sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.evaluate import AllowCode
from s2d2cli.cli.words import Everyday, PrintConfig, Settings, key_of, print_settings, settings, shared

if TYPE_CHECKING:
    from s2d2cli.runs.sweep import Plan, Point, Result, SweepFile

SweepWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [KEY=VALUE,VALUE]...",
        help="A sweep file or the name of a shipped one, and settings with one or several values.",
    ),
]


@shared
def sweep(
    words: SweepWords = None,
    *,
    everyday: Everyday,
    allow_code_execution: AllowCode = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points and leave.")] = False,
    print_config: PrintConfig = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report.", show_default=False)] = None,
) -> None:
    """Run every combination of the given values, skip what is finished, and print the Pareto table."""
    names, chosen, file = understand(everyday, words or [])
    from s2d2cli.runs.sweep import combinations, plan

    planned = plan(combinations(chosen.overrides, file), chosen.texts)
    chosen.warn([point.config for point in planned.points])
    announce(planned)
    if print_config:
        print_settings(*(point.config for point in planned.points))
        return
    if dry_run:
        list_points(planned.points)
        return
    from s2d2cli.runs.store import need_writable

    results = Path(planned.points[0].config.results)
    need_writable(results, "--results")
    out = out or results / "report" / (names[0] if names else "sweep")
    need_writable(out)
    failed, interrupted = run_points(planned.points, allow_code_execution)
    summary(planned, out)
    for result in failed:
        typer.echo(f"failed: {words_of(result.point)}: {result.error}", err=True)
    if interrupted or failed:
        raise typer.Exit(130 if interrupted else 1)


def understand(everyday: Everyday, words: Sequence[str]) -> tuple[list[str], Settings, SweepFile | None]:
    """The sweep file, named or, when nothing typed is an axis, the router's own; and the settings beside it."""
    from s2d2cli.errors import ConfigError
    from s2d2cli.runs.sweep import default_file, find, has_axis

    files = [word for word in words if "=" not in word and not word.startswith("~")]
    if len(files) > 1:
        raise ConfigError(f"one sweep file at a time; got {' and '.join(files)}")
    chosen = settings(everyday, [word for word in words if word not in files])
    if files:
        file = find(files[0])
        return [file.name], chosen, file
    if has_axis(chosen.overrides):
        return [], chosen, None
    routers = [word.partition("=")[2] for word in chosen.overrides if key_of(word) == "router"]
    file = default_file(routers[-1] if routers else None)
    typer.echo(f"No setting has several values, so this runs the grid of sweeps/{file.name}.yaml.", err=True)
    return [file.name], chosen, file


def words_of(point: Point) -> str:
    return " ".join(point.overrides)


def announce(planned: Plan) -> None:
    """How many runs, on what, and what is left out and why."""
    from s2d2cli.runs.evaluate import finished

    done = sum(finished(point.config) for point in planned.points)
    models = ", ".join(dict.fromkeys(point.config.model.name for point in planned.points))
    typer.echo(f"{len(planned.points)} points on {models}, {done} of them finished.", err=True)
    if planned.cleared:
        typer.echo(
            f"decoder=autoregressive is block length 1, so it goes without {' '.join(planned.cleared)}", err=True
        )
    if planned.duplicates:
        typer.echo(f"left out: {planned.duplicates} with the settings of another point", err=True)
    for skipped in planned.skipped:
        typer.echo(f"left out: {' '.join(skipped.overrides)}: {skipped.reason}", err=True)


def list_points(points: Sequence[Point]) -> None:
    from s2d2cli.runs.evaluate import finished

    for number, point in enumerate(points, 1):
        typer.echo(f"{number:3} {'done' if finished(point.config) else 'todo'} {point.run_id} {words_of(point)}")


def run_points(points: Sequence[Point], allow_code_execution: bool) -> tuple[list[Result], bool]:
    """Run them, a line each as it ends; the failed ones and whether the user stopped."""
    from s2d2cli.runs.sweep import prepare, run

    prepare(points, allow_code_execution)
    failed, interrupted = [], False
    for number, result in enumerate(run(points, allow_code_execution), 1):
        failed += [result] if result.status == "failed" else []
        interrupted |= result.status == "interrupted"
        typer.echo(f"[{number}/{len(points)}] {line(result)}", err=True)
    return failed, interrupted


def line(result: Result) -> str:
    """One point in one line: what it was and what came out."""
    words = f"{result.status:4} {words_of(result.point)}"
    if result.outcome is None:
        return f"{words}: {result.error}" if result.error else words
    record = result.outcome.record
    if record["n"] < record["samples"]:
        return f"{words}: {record['n']} of {record['samples']} samples so far"
    speed = record["speed"] or {}
    numbers = f"accuracy {record['accuracy']:.3f}, {speed.get('tokens_per_forward') or 0:.2f} tokens/forward"
    return f"{words}: {numbers}, {speed.get('tokens_per_s') or 0:.0f} tokens/s" if record["n"] else words


def summary(planned: Plan, out: Path) -> None:
    """The report over exactly this sweep's points."""
    from s2d2cli.cli.report import show
    from s2d2cli.runs.store import folder_of

    show([folder_of(point.config) for point in planned.points], out)
