"""Format instructions in IFEval's format, judged by programs, strictly and loosely."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from s2d2cli.config import register
from s2d2cli.errors import TaskDataError
from s2d2cli.tasks.base import DataSource, Sample, Score, user_turn
from s2d2cli.tasks.data import Hub, Row, Rows, check_unique, load
from s2d2cli.tasks.ifeval_checks import CHECKS, Check, trial
from s2d2cli.tasks.ifeval_language import ensure
from s2d2cli.tasks.ifeval_repairs import REPAIRED

FIELDS = {"key": int, "prompt": str, "instruction_id_list": list, "kwargs": list}


@register("task", "ifeval")
@dataclass
class IFEval:
    """541 prompts of `google/IFEval`; correct means officially so, that is, all instructions are followed strictly."""

    name: ClassVar[str] = "ifeval"
    version: ClassVar[int] = 1

    data: str = "google/IFEval"  # or a JSONL file with key, prompt, instruction_id_list, kwargs
    chat: bool = True  # false: the prompt as it is, without the chat template, as lm-eval sends it by default
    max_new_tokens: int = 1280

    def prepare(self, allow_code_execution: bool) -> DataSource:
        source, places = self._loaded.source, self._loaded.places
        for row, place in zip(self._loaded.rows, places, strict=True):
            check_row(row, place)
        check_unique([sample.id for sample in self.samples(None)], source, places)
        return source

    def facts(self) -> dict[str, Any]:
        """The packages that the verdicts depend on; none where no row needs them."""
        return ensure({name for row in self._loaded.rows for name in row["instruction_id_list"]})

    def samples(self, limit: int | None) -> list[Sample]:
        return [
            Sample(f"{self.name}/{row['key']}", user_turn(row["prompt"]), row, None if self.chat else row["prompt"])
            for row in self._loaded.rows[:limit]
        ]

    def score(self, sample: Sample, completion: str) -> Score:
        verdicts = [judged(completion, name, arguments) for name, arguments in instructions(sample.record)]
        strict, loose, fixed = ([verdict[kind] for verdict in verdicts] for kind in ("strict", "loose", "fixed"))
        empty = not completion.strip()
        status = "empty" if empty else "followed" if all(strict) else "not_followed"
        detail = {"status": status, "strict": all(strict), "loose": all(loose), "instructions": verdicts}
        measures = {
            "fixed": (int(all(fixed)), 1),
            "paper": (int(all(strict)), 1),
            "prompt_loose": (int(all(loose)), 1),
            "instruction_strict": (sum(strict), len(verdicts)),
            "instruction_loose": (sum(loose), len(verdicts)),
        }
        return Score(all(strict), None if empty else completion, detail, measures)

    @cached_property
    def _loaded(self) -> Rows:
        return load(self.data, FIELDS, Hub(config=None, split="train"))


@register("task", "tiny_instruct")
@dataclass
class TinyInstruct(IFEval):
    """The format instructions that ship with s2d2, held out from the training of the tiny model."""

    name: ClassVar[str] = "tiny_instruct"

    data: str = "package:tiny_instruct.jsonl"
    max_new_tokens: int = 128


def instructions(row: Row) -> list[tuple[str, dict[str, Any]]]:
    """Id and arguments of each instruction; officially null (with which tables fill up), 0 and "" are not arguments."""
    given = ({name: value for name, value in kwargs.items() if value} for kwargs in row["kwargs"])
    return list(zip(row["instruction_id_list"], given, strict=True))


def judged(reply: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The verdicts on one instruction: official strict, official loose, and strict by the repaired check."""
    official = CHECKS[name]
    strict = follows(reply, official, arguments)
    loose = strict or any(follows(variant, official, arguments) for variant in {*variants(reply)} - {reply})
    fixed = follows(reply, REPAIRED[name], arguments) if name in REPAIRED else strict
    return {"id": name, "strict": strict, "loose": loose, "fixed": fixed}


def follows(reply: str, check: Check, arguments: dict[str, Any]) -> bool:
    return bool(reply.strip()) and check(reply, **arguments)


def variants(reply: str) -> list[str]:
    """The official loose readings: without the first line, the last line or both, each also without asterisks."""
    lines = reply.split("\n")
    cuts = [reply, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*cuts, *(cut.replace("*", "") for cut in cuts)]


def check_row(row: Row, place: str) -> None:
    """Refuse a row that could not be scored here."""
    where = f"{place}: key {row['key']}"
    check_form(row, where)
    ensure(set(row["instruction_id_list"]))
    for name, arguments in instructions(row):
        try:
            trial(name, arguments)
        except (TypeError, ValueError, LookupError, AttributeError, re.error) as error:
            raise TaskDataError(
                f"{where}: {name} cannot be checked with {arguments} ({error}); mend the row"
            ) from error


def check_form(row: Row, where: str) -> None:
    """Refuse a row whose instructions are not all known and paired with their arguments."""
    names, kwargs = row["instruction_id_list"], row["kwargs"]
    if not names or len(names) != len(kwargs) or not all(isinstance(each, dict) for each in kwargs):
        raise TaskDataError(
            f"{where} must have one kwargs object per instruction, it has {names} and {kwargs}; mend it"
        )
    for name in names:
        if not isinstance(name, str) or name not in CHECKS:
            raise TaskDataError(
                f"{where} asks for {name}, which s2d2 cannot check; it knows {', '.join(sorted(CHECKS))}"
            )
