"""What a search ends with: its report, its front with a command for each point, what failed, and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from s2d2cli.runs.metrics import Metric
    from s2d2cli.runs.report import Wish
    from s2d2cli.runs.search_plan import Search
    from s2d2cli.runs.search_study import Proposal, Study
    from s2d2cli.runs.store import RunFolder


def finish(wanted: Search, study: Study, out: Path, as_json: bool) -> list[str]:
    """Write the report and print the front, on the most samples that anything was measured on; the run ids of that
    front."""
    from s2d2cli.cli.answer import tell_search
    from s2d2cli.cli.report import shown, written
    from s2d2cli.runs.search_front import measured

    points = [*study.complete(), *wanted.alone]
    for limit in reversed(wanted.asked.limits):
        frame = measured(wanted, points, limit)
        if not frame.empty:
            front = list(frame.loc[frame["front"], "run_id"])
            if as_json:
                written(folders(frame), out, wish(wanted))
                tell_search(wanted, study, front, out)
            else:
                shown(folders(frame), out, wish(wanted))
                show_front(wanted, frame, limit)
            return front
    if as_json:
        tell_search(wanted, study, [], None)
    return []


def folders(frame: pd.DataFrame) -> list[RunFolder]:
    from s2d2cli.runs.store import RunFolder

    return [RunFolder(Path(folder)) for folder in frame["folder"]]


def wish(wanted: Search) -> Wish:
    """A report with the objectives among its axes."""
    from s2d2cli.runs.metrics import ACCURACY, USUAL
    from s2d2cli.runs.report import Wish

    axes = tuple(dict.fromkeys(metric for metric in (*wanted.objectives, *USUAL) if metric != ACCURACY))
    return Wish(axes=axes)


def show_front(wanted: Search, frame: pd.DataFrame, limit: int | None) -> None:
    """Best first objective first, each point with the command that measures it."""
    first, second = wanted.objectives
    machines = frame["hardware"].unique()
    typer.echo(f"\nThe front of {first.label} and {second.label} on {frame['n'].iloc[0]} samples:")
    for row in frame[frame["front"]].sort_values(first.key, ascending=not first.larger).to_dict("records"):
        numbers = ", ".join(number(row, metric) for metric in wanted.objectives)
        typer.echo(f"{numbers}; there in {100 * row['share']:.0f} % of bootstrap draws")
        typer.echo(f"  {command(wanted, row['words'], limit)}")
    if len(machines) > 1:
        typer.echo(f"warning: measured on {' and '.join(machines)}; seconds of these do not compare", err=True)


def number(row: Mapping[Any, Any], metric: Metric) -> str:
    value, low, high = (f"{row[name]:.{metric.digits}f}" for name in (metric.key, metric.low, metric.high))
    return f"{metric.label} {value} ({low}-{high})"


def command(wanted: Search, words: Sequence[str], limit: int | None) -> str:
    """The command line that measures this point."""
    source, results = wanted.asked.texts.get("model.source"), str(wanted.path.parents[1])
    plugins = [word for one in wanted.asked.plugins if one["sha256"] for word in ("--plugins", one["origin"])]
    model = ["--model", source] if source else []
    left = [word for word in words if not (source and word == "model=custom") and not word.startswith("results=")]
    samples = [] if limit is None else [f"limit={limit}"]
    where = [] if results == "results" else ["--results", results]
    return shlex.join(["s2d2", "eval", *plugins, *model, *left, *samples, *where])


def failures(study: Study) -> list[tuple[Proposal, str]]:
    """The trials that failed, and why."""
    from s2d2cli.runs.store import folder_of

    found = []
    for proposal in study.failed():
        error = (folder_of(proposal.config).record() or {}).get("error") or {}
        told = f"{error['type']}: {error['message']}" if error else "it has not all of the objectives"
        found.append((proposal, told))
    return found


def leave(wanted: Search, study: Study, stopped: bool, found: bool) -> None:
    """What is left or failed, and the exit code."""
    failed = failures(study)
    for proposal, told in failed:
        typer.echo(f"failed: {' '.join(proposal.words)}: {told}", err=True)
    if stopped:
        typer.echo("Interrupted; the same command goes on from here.", err=True)
        raise typer.Exit(130)
    if study.spent() < wanted.asked.trials:
        typer.echo(f"Only {study.spent()} trials: the ranges hold no other settings that are valid.", err=True)
    if not found or study.running():
        typer.echo(f"The workers left before the end; their words are in {wanted.path / 'logs'}.", err=True)
    if failed or not found or study.running():
        raise typer.Exit(1)
