"""The command line: `main` runs it and turns errors into one sentence and an exit code.

0 ok; 1 finished with failed points, or a runtime error; 2 usage or settings; 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

import s2d2cli
from s2d2cli.cli import again, arness, compare, evaluate, generate, report, sweep
from s2d2cli.errors import S2D2Error

app = typer.Typer(
    help=f"{s2d2cli.__doc__} Settings are options or KEY=VALUE words, anywhere on the line.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    generate.generate,
    evaluate.eval_,
    sweep.sweep,
    arness.arness,
    report.report,
    compare.compare,
    again.score,
    again.reproduce,
)
for command in COMMANDS:
    app.command(command.__name__.rstrip("_"))(command)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"s2d2 {s2d2cli.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; works anywhere on the line.")] = False,
) -> None:
    """The options before the command. `main` has taken --debug off the line already."""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line `words` (those of the process by default) and leave with its exit code."""
    line = list(sys.argv[1:] if words is None else words)
    options, behind = cut(line, "--")
    debug = "--debug" in options
    options = [word for word in options if word != "--debug"]
    try:
        app(options + after_dashes(options, behind), prog_name="s2d2")
    except S2D2Error as error:
        leave(error, 2, debug)
    except KeyboardInterrupt as error:
        leave(error, 130, debug)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; Python would complain about the flush
        sys.exit(1)
    except Exception as error:
        leave(error, 1, debug)


def cut(line: list[str], at: str) -> tuple[list[str], list[str]]:
    place = line.index(at) if at in line else len(line)
    return line[:place], line[place:]


def after_dashes(options: list[str], behind: list[str]) -> list[str]:
    """What stands behind `--` is a prompt for generate, whatever it looks like."""
    if options[:1] == ["generate"]:
        return [f"--prompt={word}" for word in behind[1:]]
    return behind


def leave(error: BaseException, code: int, debug: bool) -> None:
    """The error in plain words on stderr; never through rich, which eats square brackets."""
    if debug:
        traceback.print_exception(error)
    elif isinstance(error, S2D2Error):
        typer.echo(f"error: {error}", err=True)
    elif isinstance(error, KeyboardInterrupt):
        typer.echo("interrupted", err=True)
    else:
        typer.echo(f"error: {type(error).__name__}: {error} (--debug shows the traceback)", err=True)
    sys.exit(code)
