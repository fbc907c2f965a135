"""`s2d2 report`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.screen import screen

if TYPE_CHECKING:
    from s2d2cli.runs.metrics import Metric
    from s2d2cli.runs.report import Report, Wish
    from s2d2cli.runs.store import RunFolder

Folders = Annotated[
    list[Path] | None, typer.Argument(metavar="[FOLDER]...", help="Run folders, or folders of them.  \\[results]")
]
Axes = Annotated[
    str | None,
    typer.Option(
        "--x",
        metavar="METRIC,...",
        help="What accuracy is held against: tokens_per_s, tokens_per_forward, speedup, forwards_per_token, "
        "forwards_per_sample, rows_per_forward, ms_per_forward, seconds_per_sample, latency_p50_s, latency_p90_s, "
        "peak_gib.",
        show_default="tokens_per_s,tokens_per_forward",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="WORDS",
        help="Row that speed-ups are over: a decoder, the start of a run id, or words of its settings; the fastest "
        "that fits.  \\[autoregressive, one forward per token, same sampling]",
        show_default=False,
    ),
]


def report(
    folders: Folders = None,
    out: Annotated[Path, typer.Option("--out", help="Where tables and plots are written.")] = Path("results/report"),
    measure: Annotated[
        str | None,
        typer.Option("--measure", metavar="NAME", help="Count this instead of what the task counts: paper, ..."),
    ] = None,
    x: Axes = None,
    baseline: Baseline = None,
    strict_code: Annotated[
        bool, typer.Option("--strict-code", help="Set runs of different code apart too, not only say so.")
    ] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Lay published figures for the same tasks beside the measured ones.")
    ] = False,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under",
            metavar="METRIC=X",
            help="Leave with 3 unless every run is as good as this; may be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON; write the files as well.")] = False,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Instead of a report, one page on which the decoders of these trace files answer side by side; more "
            "files may follow.",
        ),
    ] = None,
) -> None:
    """Print accuracy against speed with its Pareto fronts; write HTML, Markdown, LaTeX, CSV, PNG and SVG."""
    if trace:
        side_by_side([*trace, *(folders or [])], out)
        return
    from s2d2cli.runs.metrics import axes, gates
    from s2d2cli.runs.report import Wish, find_runs
    from s2d2cli.runs.store import need_writable

    wish, bounds = Wish(measure, axes(x, published), baseline, strict_code, published), gates(fail_under or [])
    found = find_runs(folders or [Path("results")])
    need_writable(out)
    built = printed_as_json(found, out, wish) if as_json else shown(found, out, wish)
    if bounds:
        judge(built, bounds)


def side_by_side(traces: Sequence[Path], out: Path) -> None:
    """Write the timeline of these traces, and say where it is."""
    from s2d2cli.runs.store import need_writable
    from s2d2cli.runs.timeline import MOST, timeline

    need_writable(out)
    made, file = timeline(traces), out / "timeline.html"
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(made.html(), encoding="utf-8")
    if len(made.samples) > MOST:
        typer.echo(f"The page holds the first {MOST} of {len(made.samples)} samples.", err=True)
    typer.echo(file)


def show(folders: Sequence[RunFolder], out: Path, measure: str | None = None) -> None:
    """The report as a sweep ends with it: print the tables of these runs, write the files, and say where they are."""
    from s2d2cli.runs.report import Wish

    shown(folders, out, Wish(measure))


def shown(folders: Sequence[RunFolder], out: Path, wish: Wish) -> Report:
    from rich.text import Text

    from s2d2cli.runs.palette import visible
    from s2d2cli.runs.published import lines as published_lines
    from s2d2cli.runs.remarks import remarks
    from s2d2cli.runs.report import build
    from s2d2cli.runs.report_files import write
    from s2d2cli.runs.report_table import legend, terminal
    from s2d2cli.runs.sketch import sketch

    built, console = build(folders, wish), screen()

    def tell(text: str) -> None:  # broken between words on a terminal, one line in a pipe
        console.print(Text(visible(text)), soft_wrap=not sys.stdout.isatty())

    for table in built.tables:
        console.print(terminal(table, wish.axes, console.width))
        picture = sketch(table, wish.axes[0], console.width)
        tell(f"\n{picture}\n" if picture else "")
        for line in published_lines(built.beside(table)):
            tell(line)
    for remark in [legend(built), *remarks(built)] if built.tables else remarks(built):
        tell(remark)
    if built.tables:
        for file in write(built, out):
            typer.echo(file)
    else:
        typer.echo("No finished run to report on; `s2d2 eval` makes one.")
    return built


def printed_as_json(folders: Sequence[RunFolder], out: Path, wish: Wish) -> Report:
    """Nothing but one object on stdout."""
    import json

    from s2d2cli.runs.report_files import as_json

    built = written(folders, out, wish)
    typer.echo(json.dumps(as_json(built), indent=1, ensure_ascii=False))
    return built


def written(folders: Sequence[RunFolder], out: Path, wish: Wish) -> Report:
    """The files alone; where they are goes to stderr."""
    from s2d2cli.runs.report import build
    from s2d2cli.runs.report_files import write

    built = build(folders, wish)
    for file in write(built, out) if built.tables else []:
        typer.echo(file, err=True)
    return built


def judge(built: Report, bounds: Mapping[Metric, float]) -> None:
    """A gate lets nothing through that was not measured: no run, an unfinished one or an unknown number fails too."""
    from s2d2cli.runs.remarks import failures

    failed = failures(built, bounds)
    for sentence in failed:
        typer.echo(f"failed: {sentence}", err=True)
    if failed:
        raise typer.Exit(3)
