"""HumanEval: the rest of a Python function is written from its head and docstring, and judged by hidden tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from s2d2cli.config import register
from s2d2cli.errors import TaskDataError
from s2d2cli.tasks.base import Sample, user_turn
from s2d2cli.tasks.code import before_definition, extract_code
from s2d2cli.tasks.code_task import CodeTask, check_choice
from s2d2cli.tasks.data import Hub, Row, Rows, load
from s2d2cli.tasks.published_code import humaneval_script
from s2d2cli.tasks.sandbox import Program

FIELDS = {"task_id": str, "prompt": str, "entry_point": str, "test": str}
SYSTEM = "You are an expert Python programmer. Write a correct implementation. Return only Python code."
STOP = re.compile("\n(?:class|def|#|if|print)")  # lm-eval's stop strings: where a completion has left its function


@register("task", "humaneval")
@dataclass
class HumanEval(CodeTask):
    """164 functions of `openai/openai_humaneval`, asked for in a chat or left to be continued.

    style=instruct is the published prompt for SDAR, through the chat template. style=completion is lm-eval's: the bare
    prompt, and what a model writes after the function is cut off.
    """

    name: ClassVar[str] = "humaneval"
    version: ClassVar[int] = 1

    data: str = "openai/openai_humaneval"  # a hub id, optionally with @revision, or a file in its format
    style: str = "instruct"  # or completion

    def validate(self) -> None:
        super().validate()
        check_choice("style", self.style, ("instruct", "completion"))

    def sample(self, row: Row) -> Sample:
        if self.style == "completion":
            return Sample(row["task_id"], user_turn(row["prompt"]), row, raw=row["prompt"])
        turns = user_turn("Complete the following Python function:\n" + row["prompt"], SYSTEM)
        return Sample(row["task_id"], turns, row)

    def check_row(self, row: Row, origin: str) -> None:
        name = row["entry_point"]
        if before_definition(row["prompt"], {name}) == row["prompt"]:
            raise TaskDataError(
                f"{origin}: the prompt of {row['task_id']} must hold the head of {name}, its entry_point; mend the row"
            )
        if "def check(" not in row["test"] or "assert" not in row["test"]:
            raise TaskDataError(
                f"{origin}: the test of {row['task_id']} must define check() with asserts; "
                f"a program without tests would always pass"
            )

    def program(self, row: Row, completion: str) -> Program | None:
        prompt = row["prompt"] if row["prompt"][-1:].isspace() else row["prompt"] + "\n"
        code = extract_code(self._reply(completion), {row["entry_point"]}, prompt)
        return Program(code, [f"check({row['entry_point']})"], row["test"]) if code is not None else None

    def published(self, row: Row, completion: str) -> Program | str:
        if self.style == "completion":
            whole = row["prompt"] + self._reply(completion)
            return Program(whole, [f"check({row['entry_point']})"], row["test"])
        return humaneval_script(row, completion)

    def _reply(self, completion: str) -> str:
        """A chat reply is read as it is; a completion ends where lm-eval would have stopped the model."""
        return STOP.split(completion, maxsplit=1)[0] if self.style == "completion" else completion

    @cached_property
    def _loaded(self) -> Rows:
        return load(self.data, FIELDS, Hub(None))
