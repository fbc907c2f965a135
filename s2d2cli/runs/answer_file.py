"""`generate --output FILE`: answers a line each. The same command again keeps those that are there and goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from s2d2cli.errors import PromptError
from s2d2cli.runs import files
from s2d2cli.runs.prompts import Conversation

OWN = '{"id": '  # how a line of ours begins


def left(path: Path, conversations: Sequence[Conversation]) -> list[Conversation]:
    """Those that the file has no answer to; a file with anything else than answers to these prompts is refused."""
    if not os.path.lexists(path):
        return list(conversations)
    prompts = {one.id: one.prompt for one in conversations}
    done = set()
    try:
        for line in whole_lines(path):
            row = json.loads(line)
            if prompts[row["id"]] != row["prompt"] or not isinstance(row["text"], str):
                raise ValueError
            done.add(row["id"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PromptError(
            f"cannot write a new file {str(path)!r}: File exists, and holds other things than answers to these "
            f"prompts; choose another --output"
        ) from error
    return [one for one in conversations if one.id not in done]


def whole_lines(path: Path) -> list[str]:
    """The lines of a regular file; one of ours that a killed process left without its end does not count."""
    if not path.is_file():
        raise ValueError
    *lines, rest = path.read_bytes().decode("utf-8", "replace").split("\n")
    if not OWN.startswith(rest[: len(OWN)]):
        raise ValueError
    return lines


@contextmanager
def appended(path: Path) -> Iterator[TextIO]:
    """The file, for lines to be added; when nothing came of it, a new one is gone again."""
    new = not os.path.lexists(path)
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise PromptError(
            f"cannot write a new file {str(path)!r}: {error.strerror}; choose another --output"
        ) from error
    try:
        with file:
            files.drop_torn_line(path)
            yield file
    finally:
        if new and not path.stat().st_size:
            path.unlink()
