"""Format instructions in IFEval's format, judged by programs, strictly and loosely."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from s2d2cli.config import register
from s2d2cli.errors import TaskDataError
from s2d2cli.tasks.base import DataSource, Sample, Score, user_turn
from s2d2cli.tasks.data import Row, Rows, check_unique, load_file
from s2d2cli.tasks.ifeval_checks import CHECKS, trial

FIELDS = {"key": int, "prompt": str, "instruction_id_list": list, "kwargs": list}


@dataclass
class IFEval:
    """The row's prompt as one user turn; correct means that all its instructions are followed strictly."""

    name: ClassVar[str] = "ifeval"
    version: ClassVar[int] = 1

    data: str = ""  # a JSONL file with key, prompt, instruction_id_list, kwargs
    max_new_tokens: int = 1280

    def prepare(self, allow_code_execution: bool) -> DataSource:
        source = self._loaded.source
        for row in self._loaded.rows:
            check_row(row, source.origin)
        check_unique([sample.id for sample in self.samples(None)], source)
        return source

    def samples(self, limit: int | None) -> list[Sample]:
        rows = self._loaded.rows[:limit]
        return [Sample(f"{self.name}/{row['key']}", user_turn(row["prompt"]), row) for row in rows]

    def score(self, sample: Sample, completion: str) -> Score:
        asked = instructions(sample.record)
        strict = [follows(completion, *instruction) for instruction in asked]
        loose = [any(follows(variant, *instruction) for variant in variants(completion)) for instruction in asked]
        verdicts = [
            {"id": name, "strict": is_strict, "loose": is_loose}
            for (name, _), is_strict, is_loose in zip(asked, strict, loose, strict=True)
        ]
        empty = not completion.strip()
        status = "empty" if empty else "followed" if all(strict) else "not_followed"
        detail = {"status": status, "strict": all(strict), "loose": all(loose), "instructions": verdicts}
        return Score(all(strict), None if empty else completion, detail)

    @cached_property
    def _loaded(self) -> Rows:
        return load_file(self.data, FIELDS)


@register("task", "tiny_instruct")
@dataclass
class TinyInstruct(IFEval):
    """The format instructions that ship with s2d2, held out from the training of the tiny model."""

    name: ClassVar[str] = "tiny_instruct"

    data: str = "package:tiny_instruct.jsonl"
    max_new_tokens: int = 128


def instructions(row: Row) -> list[tuple[str, dict[str, Any]]]:
    """Id and arguments of each instruction; table formats fill up missing arguments with null, which is no argument."""
    given = ({name: value for name, value in kwargs.items() if value is not None} for kwargs in row["kwargs"])
    return list(zip(row["instruction_id_list"], given, strict=True))


def follows(reply: str, instruction_id: str, arguments: dict[str, Any]) -> bool:
    return bool(reply.strip()) and CHECKS[instruction_id](reply, **arguments)


def variants(reply: str) -> list[str]:
    """The official loose readings: without the first line, the last line or both, each also without asterisks."""
    lines = reply.split("\n")
    cuts = [reply, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*cuts, *(cut.replace("*", "") for cut in cuts)]


def check_row(row: Row, origin: str) -> None:
    """Refuse a row that could not be scored."""
    names, kwargs = row["instruction_id_list"], row["kwargs"]
    where = f"{origin}: key {row['key']}"
    if not names or len(names) != len(kwargs) or not all(isinstance(each, dict) for each in kwargs):
        raise TaskDataError(
            f"{where} must have one kwargs object per instruction, it has {names} and {kwargs}; mend it"
        )
    for name, arguments in instructions(row):
        if name not in CHECKS:
            raise TaskDataError(
                f"{where} asks for {name}, which s2d2 cannot check; it knows {', '.join(sorted(CHECKS))}"
            )
        try:
            trial(name, arguments)
        except (TypeError, ValueError, LookupError, AttributeError, re.error) as error:
            raise TaskDataError(
                f"{where}: {name} cannot be checked with {arguments} ({error}); mend the row"
            ) from error
