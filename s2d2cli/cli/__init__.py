"""The command line: `main` runs it and turns errors into one sentence and an exit code.

0 ok; 1 finished with failed points, a runtime error, or a doctor's problem; 2 usage or settings; 3 a gate failed
(`report --fail-under`); 4 an optional package is missing; 130 interrupted. Results go to stdout, everything said about
them to stderr.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from typing import Annotated, Any

import typer

import s2d2cli
from s2d2cli import plugins
from s2d2cli.cli import (
    again,
    arness,
    bench,
    compare,
    completion,
    doctor,
    evaluate,
    extract,
    generate,
    listing,
    report,
    search,
    status,
    sweep,
)
from s2d2cli.errors import ConfigError, S2D2Error

app = typer.Typer(
    help=f"{s2d2cli.__doc__} Settings are options or KEY=VALUE words, anywhere on the line.",
    add_completion=False,  # `s2d2 completion` completes settings too
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    generate.generate,
    evaluate.eval_,
    sweep.sweep,
    search.search,
    status.status,
    arness.arness,
    report.report,
    compare.compare,
    again.score,
    again.reproduce,
    extract.extract,
    listing.list_,
    bench.bench,
    doctor.doctor,
    completion.completion,
)
for command in COMMANDS:
    app.command(command.__name__.rstrip("_"))(command)
NAMES = [command.name for command in app.registered_commands]


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"s2d2 {s2d2cli.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing but results, and on stderr only what a failure has to say.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what is read and loaded from where.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; so do NO_COLOR=1 and TERM=dumb.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Options that work anywhere on the line, before the command or behind it: `main` takes them off."""


ANYWHERE = {"--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}
ANYWHERE |= {"--no-color": "no color", "--debug": "debug"}


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line `words` (those of the process by default) and leave with its exit code."""
    line = list(sys.argv[1:] if words is None else words)
    options, behind = cut(line, "--")
    wanted = {ANYWHERE[word] for word in options if word in ANYWHERE}
    options = [word for word in options if word not in ANYWHERE]
    set_up(wanted)
    with held_back() if "quiet" in wanted else nullcontext():
        run([*options, *after_dashes(options, behind)], debug="debug" in wanted)


USAGE: type[Exception] = typer.BadParameter.__mro__[1]  # Click's UsageError, or that of the Click inside newer Typers


def run(line: list[str], debug: bool) -> None:
    try:
        sys.exit(app(line or ["--help"], prog_name="s2d2", standalone_mode=False))
    except USAGE as error:
        leave(misused(error, line), ConfigError.exit_code, debug)
    except S2D2Error as error:
        leave(error, error.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort) as error:
        leave(error, 130, debug)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; Python would complain about the flush
        sys.exit(1)
    except Exception as error:
        leave(error, 1, debug)


def misused(error: Any, line: Sequence[str]) -> ConfigError:
    """What Click says of an unknown option, a missing argument and the like, as a sentence of ours."""
    said = " ".join(error.format_message().split()).rstrip(".?").replace(". Did", "; did")
    command = [word for word in line[:1] if word in NAMES]
    return ConfigError(f"{said[:1].lower()}{said[1:]}; `{' '.join(['s2d2', *command])} --help` lists what there is")


def set_up(wanted: set[str]) -> None:
    """Before anything else: rich and the libraries read these when they are imported."""
    if "no color" in wanted:
        os.environ["NO_COLOR"] = "1"
    if "quiet" in wanted:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if "verbose" in wanted:
        logging.basicConfig(format="%(name)s: %(message)s")
        for name in TOLD:
            logging.getLogger(name).setLevel(logging.INFO)


TOLD = ("s2d2cli", "huggingface_hub", "datasets", "transformers")


@contextmanager
def held_back() -> Iterator[None]:
    """Keep what goes to stderr, and show it only when the command fails."""
    held = io.StringIO()
    try:
        with redirect_stderr(held):
            yield
    except SystemExit as leaving:
        if leaving.code and not held.closed:
            sys.stderr.write(held.getvalue())
        raise


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
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        typer.echo("interrupted", err=True)
    else:
        typer.echo(f"error: {plugins.told(error)} (--debug shows the traceback)", err=True)
    sys.exit(code)
