"""Small Python functions in MBPP's format, judged by running their tests in the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from s2d2cli.config import register
from s2d2cli.errors import ConfigError, SandboxError, TaskDataError
from s2d2cli.tasks.base import DataSource, Sample, Score, user_turn
from s2d2cli.tasks.code import extract_code, wanted_names
from s2d2cli.tasks.data import Rows, check_unique, load_file
from s2d2cli.tasks.sandbox import Limits, Program, ensure_sandbox, run_program

FIELDS = {"task_id": int, "text": str, "test_list": list}


@dataclass
class MBPP:
    """One user turn with the task and its tests; correct means that all tests of the row ran and held."""

    name: ClassVar[str] = "mbpp"
    version: ClassVar[int] = 1

    data: str = ""  # a JSONL file with task_id, text, test_list and, if needed, test_setup_code
    system: str = ""  # a system turn in front
    max_new_tokens: int = 512
    cpu_limit_s: int = 10  # for one program; the clock may run three times as long, since the machine may be busy

    def validate(self) -> None:
        if self.cpu_limit_s < 1:
            raise ConfigError(f"task.cpu_limit_s must be at least 1 second, got {self.cpu_limit_s}")

    def prepare(self, allow_code_execution: bool) -> DataSource:
        if not allow_code_execution:
            raise SandboxError(
                f"task {self.name} runs programs that the model writes, with your rights on this machine; "
                f"add --allow-code-execution if that is what you want"
            )
        source = self._loaded.source
        for row in self._loaded.rows:
            check_tests(row, source.origin)
        check_unique([sample.id for sample in self.samples(None)], source)
        ensure_sandbox()
        return source

    def samples(self, limit: int | None) -> list[Sample]:
        return [
            Sample(f"{self.name}/{row['task_id']}", user_turn(prompt(row), self.system), row)
            for row in self._loaded.rows[:limit]
        ]

    def score(self, sample: Sample, completion: str) -> Score:
        tests, setup = sample.record["test_list"], sample.record.get("test_setup_code") or ""
        code = extract_code(completion, wanted_names(tests, setup))
        if code is None:
            return Score(False, None, {"status": "no_code", "message": ""})
        limits = Limits(cpu_s=self.cpu_limit_s, wall_s=3 * self.cpu_limit_s)
        outcome = run_program(Program(code, tests, setup, limits))
        return Score(outcome.status == "pass", code, {"status": outcome.status, "message": outcome.message})

    @cached_property
    def _loaded(self) -> Rows:
        return load_file(self.data, FIELDS)


@register("task", "tiny_code")
@dataclass
class TinyCode(MBPP):
    """The small functions that ship with s2d2, held out from the training of the tiny model."""

    name: ClassVar[str] = "tiny_code"

    data: str = "package:tiny_code.jsonl"
    max_new_tokens: int = 128


def prompt(row: dict[str, Any]) -> str:
    return "\n".join([row["text"], "Your code should pass these tests:", *row["test_list"]])


def check_tests(row: dict[str, Any], origin: str) -> None:
    tests = row["test_list"]
    if not tests or not all(isinstance(test, str) and test.strip() for test in tests):
        raise TaskDataError(
            f"{origin}: task_id {row['task_id']} must have a test_list of statements, it has {tests}; "
            f"a program without tests would always pass"
        )
