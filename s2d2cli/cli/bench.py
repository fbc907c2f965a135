"""`s2d2 bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.screen import screen
from s2d2cli.cli.words import Everyday, Overrides, settings, shared

if TYPE_CHECKING:
    from rich.table import Table

    from s2d2cli.models.cost_curve import CostCurve

CHEAP = 1.1  # rows are nearly free while a forward takes at most so many times what one row takes


@shared
def bench(
    words: Overrides = None,
    *,
    everyday: Everyday,
    context: Annotated[int, typer.Option("--context", metavar="N", help="Longest context and rows together.")] = 1024,
    rows: Annotated[int, typer.Option("--rows", metavar="N", help="Most token rows of a sample's forward.")] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how long a forward of the model takes here, against its token rows and its context.

    Model, device, dtype and batch_size count. router=cost_aware measures this by itself; the last line fixes it.
    """
    from s2d2cli.models import load_model
    from s2d2cli.models.cost_curve import measure, need_room, rising

    # a decoder that any family has; which one it is does not count here
    config = settings(everyday, words or [], first=["decoder=dynamic"]).compose()
    model = load_model(config)
    need_room(model, context, rows)
    curve = measure(model, config.batch_size, context, rows)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"model": model.name, "device": str(model.device), **asdict(curve)}))
        return
    screen().print(table(curve, f"{model.name} on {model.device}, {curve.width} samples at once"))
    last = rising(curve.ms[-1])
    cheap = max(count for count, ms in zip(curve.rows, last, strict=True) if ms <= CHEAP * last[0])
    typer.echo(
        f"Up to {cheap} row{'s' if cheap > 1 else ''} a forward takes at most {CHEAP} times as long as with one."
    )
    numbers = ",".join(map(str, curve.rows)), ",".join(f"{ms:g}" for ms in last)
    typer.echo(f"router=cost_aware 'router.rows=[{numbers[0]}]' 'router.ms=[{numbers[1]}]'")


def table(curve: CostCurve, title: str) -> Table:
    from rich.table import Table

    found = Table(title=title)
    found.add_column("rows", justify="right")
    for context in curve.contexts:
        found.add_column(f"ms, context {context}", justify="right")
    for place, count in enumerate(curve.rows):
        found.add_row(str(count), *(f"{line[place]:.2f}" for line in curve.ms))
    return found
