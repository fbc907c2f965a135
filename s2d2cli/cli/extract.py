"""`s2d2 extract`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def extract(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A reply; standard input by default.")] = None,
    kind: Annotated[str, typer.Option("--kind", metavar="code|number", help="What to look for.")] = "code",
    defines: Annotated[
        list[str] | None, typer.Option("--defines", metavar="NAME", help="A name that the program must define.")
    ] = None,
) -> None:
    """Print what a scorer would judge in a reply: its program, or the number it arrives at; exit code 1 if nothing."""
    found = look(read(file), kind, set(defines or ()))
    if found is None:
        typer.echo(f"no {kind} in this reply", err=True)
        raise typer.Exit(1)
    typer.echo(found)


def look(reply: str, kind: str, names: set[str]) -> str | None:
    from s2d2cli.errors import ConfigError
    from s2d2cli.tasks.code import extract_code
    from s2d2cli.tasks.numbers import find_answer

    if kind == "code":
        return extract_code(reply, names)
    if kind == "number":
        answer = find_answer(reply)
        return answer.text if answer else None
    raise ConfigError(f"--kind must be code or number, got {kind!r}")


def read(file: Path | None) -> str:
    from s2d2cli.errors import PromptError

    try:
        content = file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as error:
        raise PromptError(f"cannot read the reply {str(file)!r}: {error.strerror}") from error
    return content.decode("utf-8", "replace")
