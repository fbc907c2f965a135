"""`s2d2 compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from s2d2cli.runs.compare import Compared

Run = Annotated[Path, typer.Argument(help="A run's folder, as `s2d2 eval` prints it.")]


def compare(
    first: Run,
    second: Run,
    measure: Annotated[
        str, typer.Option("--measure", metavar="NAME", help="What counts as solved: correct, fixed, paper, ...")
    ] = "correct",
    flips: Annotated[bool, typer.Option("--flips", help="List the samples that only one of them solves.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare two runs on the same samples: paired difference, exact McNemar test, speed-up, flipped samples."""
    import json

    from s2d2cli.runs.compare import compare as paired

    found = paired(first, second, measure)
    typer.echo(json.dumps(found.plain(), indent=1) if as_json else told(found, flips))


def told(found: Compared, flips: bool) -> str:
    from s2d2cli.runs.summary import rough

    accuracy = found.accuracy
    low, high = accuracy.interval
    lines = [
        f"first:  {found.first.name}",
        f"second: {found.second.name}",
        f"settings that differ: {'; '.join(found.settings) or 'none'}",
        f"{found.measure}: first - second = {accuracy.difference:+.3f} (95 % interval {low:+.3f} to {high:+.3f}) on "
        f"{accuracy.n} samples{rough(accuracy.n)}; {accuracy.only_a} solved by the first alone, {accuracy.only_b} by "
        f"the second alone; McNemar's exact p = {accuracy.p_value:.2g}",
        speed_line(found, "forwards", "tokens per forward"),
    ]
    if found.incomparable:
        lines.append(f"tokens per second cannot be compared ({'; '.join(found.incomparable)})")
    else:
        lines.append(speed_line(found, "seconds", "tokens per second"))
    if flips:
        lines += [f"{key.replace('_', ' ')}: {', '.join(names) or 'none'}" for key, names in found.flips.items()]
    return "\n".join(lines)


def speed_line(found: Compared, of: str, unit: str) -> str:
    speed = found.speed_up(of)
    return f"{unit}: the first has {speed.ratio:.2f}x (95 % {speed.interval[0]:.2f}-{speed.interval[1]:.2f})"
