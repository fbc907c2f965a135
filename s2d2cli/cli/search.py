"""`s2d2 search`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2d2cli.cli.evaluate import AllowCode
from s2d2cli.cli.words import Everyday, key_of, shared, spelled

if TYPE_CHECKING:
    from s2d2cli.runs.search import Told
    from s2d2cli.runs.search_plan import Search
    from s2d2cli.runs.search_study import Study

SearchWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [KEY=VALUES]...",
        help="Settings with the values to choose from: a,b,c or range(1,9,2) or interval(0,1) or "
        "tag(log,interval(0.01,1)); a sweep file, or the name of a shipped one.",
    ),
]


@dataclass
class Goal:
    """What to look for, and how much it may cost."""

    objective: Annotated[
        str, typer.Option("--objective", metavar="METRIC,METRIC", help="The two metrics of the front.")
    ] = "accuracy,tokens_per_forward"
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Settings to try, earlier calls included.")
    ] = 50
    limits: Annotated[
        str | None,
        typer.Option(
            "--limits", metavar="N,N,...", help="Try on so many samples first, and what is near the front on more."
        ),
    ] = None
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Processes at once.")] = 1
    worker: Annotated[
        Path | None,
        typer.Option("--worker", metavar="FOLDER", help="Be a worker of this search; for any scheduler."),
    ] = None


@shared
@spelled(Goal)
def search(
    words: SearchWords = None,
    *,
    everyday: Everyday,
    goal: Goal,
    allow_code_execution: AllowCode = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be searched, and leave.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report.", show_default=False)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what became of each setting as one JSON object; all else to stderr.")
    ] = False,
) -> None:
    """Look for the best trade-offs with a fraction of a grid's runs; the same command again goes on."""
    need_optuna()
    if as_json:
        need_runs(goal, dry_run)
    if goal.worker is not None:
        join(goal.worker, allow_code_execution)
        return
    from s2d2cli.runs.store import need_writable

    wanted = understand(everyday, words or [], goal)
    announce(wanted)
    if dry_run:
        return
    results = wanted.path.parents[1]
    need_writable(results, "--results")
    out = out or results / "report" / wanted.path.name
    need_writable(out)
    run(wanted, goal.workers, allow_code_execution, out, as_json)


def need_runs(goal: Goal, dry_run: bool) -> None:
    from s2d2cli.errors import ConfigError

    other = "--worker" if goal.worker is not None else "--dry-run" if dry_run else None
    if other:
        raise ConfigError(f"--json prints what a search has found, and {other} does not; leave one of them out")


def need_optuna() -> None:
    """Refuse where it is not installed, or too old: its 4.x fails on several objectives with many pruned trials."""
    from s2d2cli.errors import MissingExtraError

    try:
        found = version("optuna")
    except PackageNotFoundError:
        found = ""
    if int(found.partition(".")[0] or 0) < 5:
        there = f"{found} is" if found else "it is not"
        raise MissingExtraError(f"s2d2 search needs optuna 5, and {there} installed: pip install 's2d2[search]'")


def understand(everyday: Everyday, words: Sequence[str], goal: Goal) -> Search:
    from s2d2cli.cli.sweep import file_and_settings
    from s2d2cli.errors import ConfigError
    from s2d2cli.runs.search_plan import Search, asked, folder_for, typed
    from s2d2cli.runs.search_space import grids_of

    file, chosen = file_and_settings(everyday, words)
    if goal.limits is not None and any(key_of(word) == "limit" for word in chosen.overrides):
        raise ConfigError("--limits says how many samples there are, so leave out limit")
    grids = grids_of(chosen.overrides, file)
    request = asked(grids, chosen.texts, goal.objective, (goal.trials, goal.limits))
    results = chosen.texts.get("results") or [*typed(grids, "results="), "results"][0]
    wanted = Search(folder_for(request, file.name if file else "search", results), request)
    if not wanted.spaces:
        raise ConfigError(
            "nothing to choose from: give a setting several values or a range, as in router.tau_on=interval(0,3)"
        )
    for point in wanted.alone:
        wanted.config(point, None)  # a baseline that is wrong is refused now
    return wanted


def announce(wanted: Search) -> None:
    """The ranges and the budget."""
    sizes = [space.size for space in wanted.spaces]
    size = "any number of" if float("inf") in sizes else f"{sum(sizes):.0f}"
    goals = " and ".join(f"{metric.label} ({'up' if metric.larger else 'down'})" for metric in wanted.objectives)
    asked = wanted.asked
    samples = " then ".join("all" if limit is None else str(limit) for limit in asked.limits)
    typer.echo(f"{asked.trials} trials among {size} combinations for {goals}, on {samples} samples.", err=True)
    for space in wanted.spaces:
        typer.echo(f"  {'; '.join(str(one) for one in space.ranges if not one.fixed)}", err=True)
    typer.echo(f"search folder: {wanted.path}", err=True)


def run(wanted: Search, workers: int, allow_code_execution: bool, out: Path, as_json: bool) -> None:
    from s2d2cli.cli.found import finish, leave
    from s2d2cli.runs.interrupt import stop_signal
    from s2d2cli.runs.search import reuse
    from s2d2cli.runs.search_study import Study

    wanted.write()
    study = Study(wanted)
    count = reuse(wanted, study)
    if count:
        typer.echo(f"{count} finished runs lie in this space: the search knows them from the start.", err=True)
    with stop_signal() as stop:
        alone = (
            work(wanted, study, allow_code_execution)
            if workers == 1
            else elsewhere(wanted, workers, allow_code_execution)
        )
        for line in alone:
            typer.echo(line, err=True)
        stopped = stop.requested
    front = finish(wanted, study, out, as_json)
    leave(wanted, study, stopped, found=bool(front))


def work(wanted: Search, study: Study, allow_code_execution: bool) -> Iterator[str]:
    """Be a worker; a line for each run as it ends, but for those that others have done."""
    from s2d2cli.runs.search import KEPT, Worker

    for told in Worker(wanted, study, allow_code_execution).run():
        if told.status == KEPT:
            continue
        place = f"[{study.spent()}/{wanted.asked.trials}]" if told.limit == wanted.asked.limits[0] else "[further]"
        yield f"{place} {line(told)}"


def line(told: Told) -> str:
    """One run in one line: what it was and what came out."""
    limit = [] if told.limit is None else [f"limit={told.limit}"]
    words = f"{told.status} {' '.join([*told.words, *limit])}"
    if told.record is None:
        return f"{words}: {told.error}" if told.error else words
    speed: dict[str, Any] = told.record["speed"] or {}
    numbers = f"accuracy {told.record['accuracy']:.3f}, {speed.get('tokens_per_forward') or 0:.2f} tokens/forward"
    return f"{words}: {numbers}, {speed.get('tokens_per_s') or 0:.0f} tokens/s"


def elsewhere(wanted: Search, workers: int, allow_code_execution: bool) -> Iterator[str]:
    """Start the workers, and say what they say."""
    from s2d2cli.cli.crew import warn_of_sharing
    from s2d2cli.runs.launch import Crew, visible_gpus

    gpus = visible_gpus()
    warn_of_sharing(workers, gpus)
    allowed = ["--allow-code-execution"] if allow_code_execution else []
    words = ["search", "--worker", str(wanted.path), *allowed]
    heard = Logs(wanted.path / "logs")
    for _ in Crew(wanted.path, workers, words, gpus).run():
        yield from heard.new()
    yield from heard.new()


class Logs:
    """The whole lines that come to the logs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read = {file: file.stat().st_size for file in folder.glob("worker-*.log")}

    def new(self) -> Iterator[str]:
        for file in sorted(self.folder.glob("worker-*.log")):
            with file.open("rb") as opened:
                opened.seek(self.read.get(file, 0))
                lines = opened.read().rpartition(b"\n")[0]
            if lines:
                self.read[file] = self.read.get(file, 0) + len(lines) + 1
                yield from lines.decode(errors="replace").split("\n")


def join(path: Path, allow_code_execution: bool) -> None:
    """Work on a search that somebody else began, until nothing is left to do."""
    from s2d2cli.runs.interrupt import stop_signal
    from s2d2cli.runs.search_plan import read
    from s2d2cli.runs.search_study import Study

    wanted = read(path)
    with stop_signal() as stop:
        for told in work(wanted, Study(wanted), allow_code_execution):
            typer.echo(told, err=True)
        stopped = stop.requested
    if stopped:
        raise typer.Exit(130)
