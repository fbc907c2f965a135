"""`s2d2 eval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.screen import screen
from s2d2cli.cli.words import ConfigFile, Everyday, Overrides, PrintConfig, print_settings, settings, shared

if TYPE_CHECKING:
    from s2d2cli.runs.evaluate import Outcome
    from s2d2cli.runs.verifier_check import Check

AllowCode = Annotated[
    bool, typer.Option("--allow-code-execution", help="Let tasks run generated programs, each in a limited process.")
]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", help="JSONL for every step of every sample.", metavar="FILE", show_default=False),
]


@shared
def eval_(
    words: Overrides = None,
    *,
    everyday: Everyday,
    allow_code_execution: AllowCode = False,
    config_file: ConfigFile = None,
    print_config: PrintConfig = False,
    trace: Trace = None,
    check_verifier: Annotated[
        bool, typer.Option("--check-verifier", help="Measure the same without verification and autoregressively too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print run.json instead of a table.")] = False,
) -> None:
    """Measure accuracy and speed on a task; the same command again goes on where it stopped."""
    config = settings(everyday, words or [], base=config_file).compose()
    if print_config:
        print_settings(config)
        return
    from s2d2cli.runs.evaluate import Models, evaluate
    from s2d2cli.runs.verifier_check import check, counterparts

    models, others = Models(), counterparts(config) if check_verifier else []
    outcome = evaluate(config, models, allow_code_execution, trace)
    checked = check(outcome, others, models, allow_code_execution) if others and not outcome.interrupted else None
    if trace and not outcome.decoded:
        typer.echo(f"Nothing was left to decode, so nothing was added to {trace}.", err=True)
    if as_json:
        import json

        typer.echo(json.dumps(outcome.record, indent=1, ensure_ascii=False))
    else:
        show(outcome, checked)
    if others and checked is None and not outcome.interrupted:
        typer.echo("Interrupted in the verifier check; the same command goes on from here.", err=True)
    if outcome.interrupted or (others and checked is None):
        raise typer.Exit(130)


def show(outcome: Outcome, checked: Check | None) -> None:
    """A small table, the verifier check if there was one, and what to do about an unfinished run."""
    from s2d2cli.runs.tables import outcome_table, warnings

    screen().print(outcome_table(outcome.record))
    for sentence in warnings(outcome.record):
        typer.echo(f"warning: {sentence}", err=True)
    if outcome.resumed:
        typer.echo(f"{outcome.resumed} samples were there already, {outcome.decoded} decoded now.")
    if outcome.interrupted:
        left = outcome.record["samples"] - outcome.record["n"]
        typer.echo(f"Interrupted with {left} samples to go; the same command goes on from here.", err=True)
    if checked is not None:
        from s2d2cli.runs.verifier_check import table

        screen().print(table(checked))
        typer.echo(checked.verdict)
    typer.echo(outcome.folder)
