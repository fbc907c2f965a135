"""`s2d2 report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.screen import screen

if TYPE_CHECKING:
    from s2d2cli.runs.store import RunFolder

Folders = Annotated[
    list[Path] | None, typer.Argument(metavar="[FOLDER]...", help="Run folders, or folders of them.  \\[results]")
]


def report(
    folders: Folders = None,
    out: Annotated[Path, typer.Option("--out", help="Where table and plots are written.")] = Path("results/report"),
    measure: Annotated[
        str | None,
        typer.Option("--measure", metavar="NAME", help="Count this instead of what the task counts: paper, ..."),
    ] = None,
) -> None:
    """Print the table of accuracy against speed with its Pareto fronts; write it as CSV, Markdown, PNG and SVG."""
    from s2d2cli.runs.report import find_runs
    from s2d2cli.runs.store import need_writable

    found = find_runs(folders or [Path("results")])
    need_writable(out)
    show(found, out, measure)


def show(folders: Sequence[RunFolder], out: Path, measure: str | None = None) -> None:
    """Print the tables of these runs, write the files, and say where they are."""
    from s2d2cli.runs.report import build
    from s2d2cli.runs.tables import LEGEND, remarks, terminal, write

    built = build(folders, measure)
    console = screen()
    for table in built.tables:
        console.print(terminal(table, console.width))
        console.print()
    for remark in [LEGEND, *remarks(built)] if built.tables else remarks(built):
        typer.echo(remark)
    if not built.tables:
        typer.echo("No finished run to report on; `s2d2 eval` makes one.")
        return
    for file in write(built, out):
        typer.echo(file)
