"""Small Python functions in MBPP's format, judged by running their tests in the sandbox."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from s2d2cli.config import register
from s2d2cli.errors import ConfigError, TaskDataError
from s2d2cli.tasks.base import Sample, user_turn
from s2d2cli.tasks.code import extract_code, wanted_names
from s2d2cli.tasks.code_task import CodeTask, check_choice
from s2d2cli.tasks.data import Hub, Row, Rows, checked, load, load_file
from s2d2cli.tasks.published_code import mbpp_script
from s2d2cli.tasks.sandbox import Program

FIELDS = {"task_id": int, "text": str, "test_list": list}
SYSTEM = "You are an expert Python programmer. Write only the function code, no explanations."

# The splits by task_id. The published test set is the second, and the worked examples are three rows of the first.
PROMPT, TEST, VALIDATION, TRAIN = range(1, 11), range(11, 511), range(511, 601), range(601, 975)
SHOTS = (2, 3, 4)


class FunctionTask(CodeTask):
    """Functions that are asked for in a sentence, with the tests they must pass."""

    text_field: ClassVar[str] = "text"

    def check_row(self, row: Row, origin: str) -> None:
        tests = row["test_list"]
        if not tests or not all(isinstance(test, str) and test.strip() for test in tests):
            raise TaskDataError(
                f"{origin}: task_id {row['task_id']} must have a test_list of statements, it has {tests}; "
                f"a program without tests would always pass"
            )

    def program(self, row: Row, completion: str) -> Program | None:
        """The set-up follows the code, since it may build objects of the code's classes."""
        tests, setup = row["test_list"], set_up(row)
        code = extract_code(completion, wanted_names(tests, setup))
        return Program(code, tests, setup) if code is not None else None

    def published(self, row: Row, completion: str) -> Program | str:
        return mbpp_script(row["test_list"], set_up(row), completion)

    def question(self, row: Row) -> str:
        return "\n".join([row[self.text_field], "Your code should pass these tests:", *row["test_list"]])


@register("task", "mbpp")
@dataclass
class MBPP(FunctionTask):
    """The 500 test problems of `google-research-datasets/mbpp`, asked for in a chat or left to be continued.

    style=instruct is the published prompt for SDAR and LLaDA2.1, through the chat template, with no or three examples.
    style=completion is lm-eval's: a bare prompt with three examples, without which no model could know its [DONE].
    A file that has rows of all four splits and no others is the whole of MBPP, of which the test split is taken unless
    split=all. Any other file is taken whole.
    """

    name: ClassVar[str] = "mbpp"
    version: ClassVar[int] = 1
    config: ClassVar[str] = "full"

    data: str = "google-research-datasets/mbpp"  # a hub id, optionally with @revision, or a file in its format
    split: str = "test"  # or all
    style: str = "instruct"  # or completion
    shots: int = 0  # or 3

    def validate(self) -> None:
        super().validate()
        check_choice("split", self.split, ("test", "all"))
        check_choice("style", self.style, ("instruct", "completion"))
        allowed = (0, 3) if self.style == "instruct" else (3,)
        if self.shots not in allowed:
            raise ConfigError(
                f"task.shots must be {' or '.join(map(str, allowed))} with task.style={self.style}, got {self.shots}; "
                f"the published prompts are instruct with 0 or 3 examples and completion with 3"
            )

    def sample(self, row: Row) -> Sample:
        name = f"{self.name}/{row['task_id']}"
        if self.style == "completion":
            raw = "".join(f"{self.opening(shot)}{shot['code']}\n[DONE]\n\n" for shot in self._examples)
            return Sample(name, user_turn(raw + self.opening(row)), row, raw=raw + self.opening(row))
        turns = [turn for shot in self._examples for turn in self.turns(shot, shot["code"])]
        return Sample(name, [{"role": "system", "content": SYSTEM}, *turns, *self.turns(row)], row)

    def opening(self, row: Row) -> str:
        """lm-eval's prompt for one problem."""
        tests = "\n".join(row["test_list"])
        task = f"You are an expert Python programmer, and here is your task: {row[self.text_field]}"
        return f"{task} Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"

    def turns(self, row: Row, answer: str | None = None) -> list[dict[str, str]]:
        asked = user_turn(self.question(row))
        return asked if answer is None else [*asked, {"role": "assistant", "content": f"```python\n{answer}\n```"}]

    def program(self, row: Row, completion: str) -> Program | None:
        return super().program(row, self._reply(completion))

    def published(self, row: Row, completion: str) -> Program | str:
        if self.style == "completion":  # lm-eval leaves the set-up out
            code = self._reply(completion).replace("\r\n", "\n")
            return Program(code, row["test_list"], "\n".join(imports(row)))
        return super().published(row, completion)

    def _reply(self, completion: str) -> str:
        """A chat reply is read as it is; a completion ends at lm-eval's stop string."""
        return completion.partition("[DONE]")[0] if self.style == "completion" else completion

    @cached_property
    def _fields(self) -> dict[str, type]:
        return {"task_id": int, self.text_field: str, "test_list": list}

    @cached_property
    def _loaded(self) -> Rows:
        part = "test" if self.split == "test" else "prompt+test+validation+train"
        rows = load(self.data, self._fields, Hub(self.config, part))
        whole = is_whole([row["task_id"] for row in rows.rows])
        return test_split(rows, self._fields) if whole and self.split == "test" else rows

    @cached_property
    def _examples(self) -> list[Row]:
        if not self.shots:
            return []
        pool = load(self.data, self._fields | {"code": str}, Hub(self.config, "prompt"))
        found = {row["task_id"]: row for row in pool.rows}
        if not found.keys() >= set(SHOTS):
            raise TaskDataError(
                f"task.shots=3 needs the rows with task_id 2, 3 and 4, which {pool.source.origin} does not have; "
                f"give the whole of MBPP as task.data, or leave task.shots at 0"
            )
        return [found[number] for number in SHOTS]


@register("task", "mbpp_sanitized")
@dataclass
class MBPPSanitized(MBPP):
    """The problems of MBPP that were checked by hand: 257 in the test split, 427 with split=all."""

    name: ClassVar[str] = "mbpp_sanitized"
    config: ClassVar[str] = "sanitized"
    text_field: ClassVar[str] = "prompt"


@register("task", "tiny_code")
@dataclass
class TinyCode(FunctionTask):
    """The small functions that ship with s2d2, held out from the training of the tiny model."""

    name: ClassVar[str] = "tiny_code"
    version: ClassVar[int] = 1

    data: str = "package:tiny_code.jsonl"
    system: str = ""  # a system turn in front
    max_new_tokens: int = 128

    def sample(self, row: Row) -> Sample:
        return Sample(f"{self.name}/{row['task_id']}", user_turn(self.question(row), self.system), row)

    @cached_property
    def _loaded(self) -> Rows:
        return load_file(self.data, FIELDS)


def imports(row: Row) -> list[str]:
    """What the tests of the sanitized set need; other rows have no such field."""
    return list(row.get("test_imports") or [])


def set_up(row: Row) -> str:
    return "\n".join([*imports(row), row.get("test_setup_code") or ""]).strip()


def is_whole(ids: list[int]) -> bool:
    parts = (PROMPT, TEST, VALIDATION, TRAIN)
    return all(any(number in part for number in ids) for part in parts) and set(ids) <= set(range(1, 975))


def test_split(rows: Rows, fields: dict[str, type]) -> Rows:
    placed = [(place, row) for place, row in zip(rows.places, rows.rows, strict=True) if row["task_id"] in TEST]
    return checked(placed, fields, replace(rows.source, rows=len(placed)))
