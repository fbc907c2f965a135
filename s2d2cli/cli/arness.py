"""`s2d2 arness`."""

from __future__ import annotations

from typing import Annotated

import typer

from s2d2cli.cli.screen import screen
from s2d2cli.cli.words import Everyday, Overrides, settings, shared

DEFAULTS = ("decoder=static", "limit=50")  # one token a step: what both papers measured


@shared
def arness(
    words: Overrides = None,
    *,
    everyday: Everyday,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how close to left-to-right tokens are revealed: local and global AR-ness@k, k = 1 to 4."""
    config = settings(everyday, words or [], first=DEFAULTS).compose()
    from s2d2cli.runs.arness import of_run, table

    report = of_run(config)
    if as_json:
        import json

        typer.echo(json.dumps(report.plain(), indent=1))
        return
    screen().print(table(report))
    for remark in report.remarks:
        typer.echo(remark)
