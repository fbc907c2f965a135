"""`s2d2 sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.answer import tell_sweep
from s2d2cli.cli.crew import How, Start, check_launcher, follow, join, leave
from s2d2cli.cli.evaluate import AllowCode
from s2d2cli.cli.words import Everyday, PrintConfig, Settings, key_of, print_settings, settings, shared, spelled

if TYPE_CHECKING:
    from s2d2cli.runs.grid import SweepFile
    from s2d2cli.runs.sweep import Plan, Point

SweepWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [KEY=VALUE,VALUE]...",
        help="A sweep file or the name of a shipped one, and settings with one or several values.",
    ),
]


@shared
@spelled(How)
def sweep(
    words: SweepWords = None,
    *,
    everyday: Everyday,
    how: How,
    allow_code_execution: AllowCode = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points and leave.")] = False,
    print_config: PrintConfig = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report.", show_default=False)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what became of each point as one JSON object; all else to stderr.")
    ] = False,
) -> None:
    """Run every combination of the given values, skip what is finished, and print the Pareto table."""
    if as_json:
        need_points(how, print_config)
    if how.worker is not None:
        join(how.worker, how.shard, allow_code_execution)
        return
    launcher_words = check_launcher(how, words or [])
    names, chosen, file = understand(everyday, [word for word in words or [] if word not in launcher_words])
    from s2d2cli.runs.grid import combinations
    from s2d2cli.runs.sweep import plan

    planned = plan(combinations(chosen.overrides, file, how.max_points), chosen.texts)
    chosen.warn([point.config for point in planned.points])
    announce(planned, how)
    if print_config:
        print_settings(*(point.config for point in planned.points))
        return
    if dry_run:
        if as_json:
            tell_sweep(planned, {}, None, None)
        else:
            list_points(planned.points)
        return
    out = ready(planned, out, names)
    run_points(planned, names, how, Start(allow_code_execution, launcher_words, as_json), out)


def need_points(how: How, print_config: bool) -> None:
    """Refuse to promise an answer about points where none is given."""
    from s2d2cli.errors import ConfigError

    other = "--worker" if how.worker is not None else "--print-config" if print_config else None
    if other:
        raise ConfigError(f"--json prints what became of a sweep's points, and {other} does not; leave one of them out")


def understand(everyday: Everyday, words: Sequence[str]) -> tuple[list[str], Settings, SweepFile | None]:
    """The sweep file, named or, when nothing typed is an axis, the router's own; and the settings beside it."""
    from s2d2cli.runs.grid import default_file, has_axis

    file, chosen = file_and_settings(everyday, words)
    if file is not None:
        return [file.name], chosen, file
    if has_axis(chosen.overrides):
        return [], chosen, None
    routers = [word.partition("=")[2] for word in chosen.overrides if key_of(word) == "router"]
    file = default_file(routers[-1] if routers else None)
    typer.echo(f"No setting has several values, so this runs the grid of sweeps/{file.name}.yaml.", err=True)
    return [file.name], chosen, file


def file_and_settings(everyday: Everyday, words: Sequence[str]) -> tuple[SweepFile | None, Settings]:
    """A word that is no setting names a sweep file."""
    from s2d2cli.errors import ConfigError
    from s2d2cli.runs.grid import find

    files = [word for word in words if "=" not in word and not word.startswith("~")]
    if len(files) > 1:
        raise ConfigError(f"one sweep file at a time; got {' and '.join(files)}")
    chosen = settings(everyday, [word for word in words if word not in files])
    return find(files[0]) if files else None, chosen


def words_of(point: Point) -> str:
    return " ".join(point.overrides)


def announce(planned: Plan, how: How) -> None:
    """How many runs, on what, how long, and what is left out and why."""
    from s2d2cli.runs.estimate import Measured, total
    from s2d2cli.runs.evaluate import finished
    from s2d2cli.runs.rounds import of_other_code

    todo = [point.config for point in planned.points if not finished(point.config)]
    models = ", ".join(dict.fromkeys(point.config.model.name for point in planned.points))
    done = len(planned.points) - len(todo)
    typer.echo(f"{len(planned.points)} points on {models}, {done} of them finished.", err=True)
    if todo:
        measured = Measured.of(Path(todo[0].results))
        typer.echo(f"to do: {total([measured.estimate(config) for config in todo], how.workers)}", err=True)
    other = of_other_code(planned.points)
    if other and not how.strict_code:
        typer.echo(
            f"warning: {len(other)} of these points were measured by another version of the code "
            f"({', '.join(sorted({version for _, version in other}))}); --strict-code measures them anew",
            err=True,
        )
    tell_left_out(planned)


def tell_left_out(planned: Plan) -> None:
    if planned.cleared:
        typer.echo(
            f"decoder=autoregressive is block length 1, so it goes without {' '.join(planned.cleared)}", err=True
        )
    if planned.duplicates:
        typer.echo(f"left out: {planned.duplicates} with the settings of another point", err=True)
    for skipped in planned.skipped:
        typer.echo(f"left out: {' '.join(skipped.overrides)}: {skipped.reason}", err=True)


def list_points(points: Sequence[Point]) -> None:
    """Numbered, with what each has before it."""
    from s2d2cli.runs.estimate import Measured
    from s2d2cli.runs.evaluate import finished

    measured = Measured.of(Path(points[0].config.results))
    for number, point in enumerate(points, 1):
        done = finished(point.config)
        behind = "" if done else f" ({measured.estimate(point.config)})"
        typer.echo(f"{number:3} {'done' if done else 'todo'} {point.run_id} {words_of(point)}{behind}")


def ready(planned: Plan, out: Path | None, names: Sequence[str]) -> Path:
    """The folder of the report; refused before any work when it or the results cannot be written."""
    from s2d2cli.runs.store import need_writable

    results = Path(planned.points[0].config.results)
    need_writable(results, "--results")
    out = out or results / "report" / (names[0] if names else "sweep")
    need_writable(out)
    return out


def run_points(planned: Plan, names: Sequence[str], how: How, start: Start, out: Path) -> None:
    """Run what is open, a line each as it ends; then the report over exactly this sweep's points, and what failed."""
    from s2d2cli.cli.report import show, written
    from s2d2cli.cli.watch import Watch
    from s2d2cli.runs.report import Wish
    from s2d2cli.runs.rounds import begin, sweep_folder
    from s2d2cli.runs.store import folder_of
    from s2d2cli.runs.sweep import prepare

    prepare(planned.points, start.allow_code_execution)
    folder = sweep_folder(names[0] if names else "sweep", planned.points)
    manifest = begin(folder, planned.points, how.rules())
    watch = Watch(folder, manifest.entries)
    typer.echo(f"sweep folder: {folder.path}", err=True)
    if how.workers == 0:
        typer.echo(f"start workers, as many as you like: s2d2 sweep --worker {folder.path}", err=True)
        if start.as_json:
            tell_sweep(planned, {}, folder.path, None)
        return
    interrupted = follow(watch, how, start) and watch.open() > 0
    runs = [folder_of(point.config) for point in planned.points]
    if start.as_json:
        written(runs, out, Wish())
        tell_sweep(planned, {entry.run_id: row.error for entry, row in watch.failed()}, folder.path, out)
    else:
        show(runs, out)
    leave(watch, interrupted)
