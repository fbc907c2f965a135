"""Who runs the points of a sweep: this process, workers that it starts, or a worker that somebody else started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.words import key_of

if TYPE_CHECKING:
    from s2d2cli.cli.watch import Watch
    from s2d2cli.runs.manifest import SweepFolder
    from s2d2cli.runs.rounds import Rules

LAUNCHERS = ("local", "joblib", "submitit_local", "slurm", "ray")
LAUNCHER_KEY = "hydra.launcher."


@dataclass
class How:
    """Who runs the points, and what becomes of those that failed."""

    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=0, help="Processes at once; 0 only writes the folder.")
    ] = 1
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="|".join(LAUNCHERS), help="What starts the workers.")
    ] = "local"
    worker: Annotated[
        Path | None,
        typer.Option(
            "--worker", metavar="FOLDER", help="Be a worker of this sweep; for any scheduler.", show_default=False
        ),
    ] = None
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="With --worker: only the I-th of N parts.", show_default=False)
    ] = "1/1"
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed/--no-retry-failed", help="Try points that failed earlier once more.")
    ] = True
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", min=1, help="But not those that failed N times.")
    ] = None
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Begin no further point once one failed.")] = False
    strict_code: Annotated[
        bool, typer.Option("--strict-code", help="Measure anew what another version of the code measured.")
    ] = False
    break_claims: Annotated[
        bool, typer.Option("--break-claims", help="Take over the points of all other workers of this sweep.")
    ] = False
    max_points: Annotated[
        int, typer.Option("--max-points", metavar="N", min=1, help="Refuse a sweep of more points.")
    ] = 1000

    def rules(self) -> Rules:
        from s2d2cli.runs.rounds import Rules

        return Rules(self.retry_failed, self.max_attempts, self.fail_fast, self.strict_code, self.break_claims)


def check_launcher(how: How, words: Sequence[str]) -> list[str]:
    """The words that are for the launcher; refused where there is none, as is a launcher that is not installed."""
    from s2d2cli.errors import ConfigError

    own = [word for word in words if key_of(word).startswith(LAUNCHER_KEY)]
    if how.launcher not in LAUNCHERS:
        raise ConfigError(f"--launcher must be one of {', '.join(LAUNCHERS)}, got {how.launcher!r}")
    if how.launcher != "local":
        from s2d2cli.launchers import need

        need(how.launcher)
    elif own:
        raise ConfigError(
            f"{own[0]} sets up a launcher, and --launcher names none; add one of {', '.join(LAUNCHERS[1:])}"
        )
    return own


@dataclass(frozen=True)
class Start:
    """What workers are told besides their folder, and how this process tells what became of it."""

    allow_code_execution: bool
    launcher_words: list[str]
    as_json: bool = False


def follow(watch: Watch, how: How, start: Start) -> bool:
    """Look on until the workers have left; whether the user stopped them."""
    from s2d2cli.cli.watch import bar
    from s2d2cli.runs.interrupt import stop_signal

    count = min(how.workers, watch.open())
    alone = how.launcher == "local" and how.workers == 1
    watch.bar = bar() if not alone else None  # alone, the run shows its own
    with stop_signal() as stop, watch.bar or nullcontext():
        if watch.bar is not None:
            watch.bar.add_task("points", total=len(watch.entries))
        if count:
            for _ in in_this_process(watch.sweep, start) if alone else elsewhere(watch.sweep, count, how, start):
                watch.update()
                watch.progress()
        watch.update()
        return stop.requested


def in_this_process(folder: SweepFolder, start: Start) -> Iterator[object]:
    from s2d2cli.runs.point import Evaluator
    from s2d2cli.runs.workers import Worker

    return Worker(folder, Evaluator(start.allow_code_execution)).run()


def elsewhere(folder: SweepFolder, count: int, how: How, start: Start) -> Iterator[object]:
    from s2d2cli.runs.launch import Crew, jobs, visible_gpus

    gpus = visible_gpus()
    if how.launcher in ("local", "joblib", "submitit_local"):
        warn_of_sharing(count, gpus)
    if how.launcher != "local":
        return jobs(folder, how.launcher, count, start.allow_code_execution, start.launcher_words)
    allowed = ["--allow-code-execution"] if start.allow_code_execution else []
    return Crew(folder.path, count, ["sweep", "--worker", str(folder.path), *allowed], gpus).run()


def warn_of_sharing(count: int, gpus: Sequence[str]) -> None:
    if count > max(1, len(gpus)):
        typer.echo(
            f"warning: {count} workers share {f'{len(gpus)} GPUs' if gpus else 'this CPU'}, so each is slower than "
            f"alone; accuracy and forwards are not affected, tokens per second are",
            err=True,
        )


def leave(watch: Watch, interrupted: bool) -> None:
    """Name what failed and what is left, and choose the exit code."""
    failed = watch.failed()
    for entry, row in failed:
        typer.echo(f"failed: {entry.words}: {row.error}", err=True)
    if watch.open():
        typer.echo(
            f"still to do: {watch.open()} of {len(watch.entries)} points; the same command goes on from here "
            f"(s2d2 status {watch.sweep.path}; workers' own words in {watch.sweep.path / 'logs'})",
            err=True,
        )
    if interrupted or failed or watch.open():
        raise typer.Exit(130 if interrupted else 1)


def join(path: Path, shard: str, allow_code_execution: bool) -> None:
    """Work on a sweep that somebody else began, until nothing is left to take."""
    from s2d2cli.cli.watch import told
    from s2d2cli.runs.launch import go_to
    from s2d2cli.runs.ledger import FAILED
    from s2d2cli.runs.manifest import SweepFolder
    from s2d2cli.runs.point import Evaluator
    from s2d2cli.runs.workers import Worker, parse_shard

    part = parse_shard(shard)
    manifest = SweepFolder(path).read()
    folder = SweepFolder(go_to(manifest.cwd, path))
    worker = Worker(folder, Evaluator(allow_code_execution, manifest.plugins), part)
    entries, failed = {entry.run_id: entry for entry in manifest.entries}, False
    for row in worker.run():
        failed |= row.status == FAILED
        typer.echo(told(row, entries[row.run_id], folder), err=True)
    if worker.interrupted or failed:
        raise typer.Exit(130 if worker.interrupted else 1)
