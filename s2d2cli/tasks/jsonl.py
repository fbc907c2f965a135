"""A task of one's own without code: rows of a file, and one of four ways to judge a completion.

number        it arrives at the number of the answer, as exact fractions, as in GSM8K; the answer is a number or a text
exact         it is the answer; white space at the ends does not count, a run of it within counts as one space
code          the program in it passes the answer, Python with asserts or a list of such texts, in the sandbox
instructions  it follows the row's instruction_id_list with the row's kwargs, as in IFEval; there is no answer
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from s2d2cli.config import register
from s2d2cli.errors import ConfigError, SandboxError, TaskDataError
from s2d2cli.tasks.base import DataSource, Sample, Score, user_turn
from s2d2cli.tasks.code import extract_code, wanted_names
from s2d2cli.tasks.data import Row, Rows, check_unique, load_file
from s2d2cli.tasks.gsm8k import score_number
from s2d2cli.tasks.ifeval import IFEval, check_row
from s2d2cli.tasks.ifeval_language import ensure
from s2d2cli.tasks.numbers import find_answer
from s2d2cli.tasks.sandbox import Program, choose_sandbox, run_program

ROLES = ("system", "user", "assistant")
INSTRUCTIONS = {"instruction_id_list": list, "kwargs": list}


@register("task", "jsonl")
@dataclass
class Jsonl:
    """A file of your own, judged by the scorer of your choice."""

    name: ClassVar[str] = "jsonl"
    version: ClassVar[int] = 1

    data: str = ""  # your file: JSON Lines or a JSON array, either perhaps gzipped
    prompt: str = "prompt"  # the column with the prompt: a text, or a list of chat messages
    answer: str = "answer"  # the column with the answer; of no use to task.scorer=instructions
    scorer: str = "exact"  # number, exact, code or instructions
    id: str | None = None  # the column with a name for each row; null: rows are counted from 0
    system: str = ""  # a system turn in front of every prompt
    max_new_tokens: int = 256

    def validate(self) -> None:
        if self.scorer not in SCORERS:
            raise ConfigError(f"task.scorer must be one of {', '.join(SCORERS)}, got {self.scorer!r}")

    def prepare(self, allow_code_execution: bool) -> DataSource:
        if self.scorer == "code" and not allow_code_execution:
            raise SandboxError(
                "task.scorer=code runs programs that the model writes, with your rights on this machine; "
                "add --allow-code-execution if that is what you want"
            )
        source = self._loaded.source
        for place, row in zip(self._loaded.places, self._loaded.rows, strict=True):
            self.turns(row, place)
            self.judge.check(self.expected(row, place), place)
        check_unique([sample.id for sample in self.samples(None)], source, self._loaded.places)
        if self.scorer == "code":
            sandbox()
        return source

    def facts(self) -> dict[str, Any]:
        """The sandbox of programs, the packages that the verdicts on instructions depend on."""
        if self.scorer == "code":
            return {"sandbox": sandbox()}
        rows = self._loaded.rows if self.scorer == "instructions" else []
        return dict(ensure({name for row in rows for name in row["instruction_id_list"]}))

    def samples(self, limit: int | None) -> list[Sample]:
        placed = list(zip(self._loaded.places, self._loaded.rows, strict=True))[:limit]
        return [
            Sample(f"{self.name}/{self.id_of(index, row, place)}", self.turns(row, place), row)
            for index, (place, row) in enumerate(placed)
        ]

    def score(self, sample: Sample, completion: str) -> Score:
        return self.judge.score(self.expected(sample.record, sample.id), completion)

    @property
    def judge(self) -> Scorer:
        return SCORERS[self.scorer]

    def expected(self, row: Row, place: str) -> Any:
        """What a completion is judged by."""
        if self.scorer == "instructions":
            return row
        return column(row, "task.answer", self.answer, place)

    def turns(self, row: Row, place: str) -> list[dict[str, str]]:
        """The conversation that ends with the prompt."""
        prompt = column(row, "task.prompt", self.prompt, place)
        if isinstance(prompt, str) and prompt.strip():
            return user_turn(prompt, self.system)
        turns = checked_turns(prompt, f"{place}: '{self.prompt}'")
        if self.system and any(turn["role"] == "system" for turn in turns):
            raise TaskDataError(f"{place}: '{self.prompt}' has a system message already; leave out task.system or that")
        return [*user_turn("", self.system)[:-1], *turns]

    def id_of(self, index: int, row: Row, place: str) -> str:
        if self.id is None:
            return str(index)
        value = column(row, "task.id", self.id, place)
        if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
            raise TaskDataError(
                f"{place}: '{self.id}' must be a text or a whole number, got {shown(value)}; mend the row"
            )
        return str(value)

    @cached_property
    def _loaded(self) -> Rows:
        if not self.data:
            raise ConfigError("task=jsonl needs a file of yours: task.data=FILE.jsonl")
        read = INSTRUCTIONS if self.scorer == "instructions" else {self.answer: object}
        return load_file(self.data, {self.prompt: object, **read})


@dataclass(frozen=True)
class Scorer:
    """How completions are judged: `check` refuses, before a model loads, what `score` could not judge by."""

    check: Callable[[Any, str], None]
    score: Callable[[Any, str], Score]


def check_number(answer: Any, place: str) -> None:
    plain = isinstance(answer, str | int | float) and not isinstance(answer, bool)
    if not plain or find_answer(str(answer)) is None:
        raise unfit("number", "a number, or a text that holds one", answer, place)


def check_text(answer: Any, place: str) -> None:
    if not isinstance(answer, str) or not answer.strip():
        raise unfit("exact", "a text", answer, place)


def score_text(answer: str, completion: str) -> Score:
    wanted, found = " ".join(answer.split()), " ".join(completion.split())
    equal = wanted == found
    status = "correct" if equal else "wrong" if found else "no_answer"
    measures = {"fixed": (int(equal), 1), "any_case": (int(wanted.casefold() == found.casefold()), 1)}
    return Score(equal, found or None, {"status": status}, measures)


def check_tests(answer: Any, place: str) -> None:
    tests = tests_of(answer)
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) and checks(test) for test in tests):
        raise unfit(
            "code", "Python such as 'assert f(1) == 2', or a list of such texts, each with an assert", answer, place
        )


def tests_of(answer: Any) -> Any:
    return [answer] if isinstance(answer, str) else answer


def checks(text: str) -> bool:
    """Whether this Python can fail: an assert, a raise, a call like np.testing.assert_equal. `f(1) == 2` cannot."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(node, ast.Assert | ast.Raise) for node in nodes) or any(
        name.startswith("assert") for name in calls
    )


def score_program(answer: Any, completion: str) -> Score:
    tests = tests_of(answer)
    code = extract_code(completion, wanted_names(tests))
    if code is None:
        return Score(False, None, {"status": "no_code", "message": ""}, {"fixed": (0, 1)})
    outcome = run_program(Program(code, tests, sandbox=sandbox()))
    passed = outcome.status == "pass"
    return Score(passed, code, {"status": outcome.status, "message": outcome.message}, {"fixed": (int(passed), 1)})


@lru_cache(1)
def sandbox() -> str:
    """The one in use here; the trial costs a moment."""
    return choose_sandbox("auto")


SCORERS = {
    "number": Scorer(check_number, lambda answer, completion: score_number(str(answer), completion)),
    "exact": Scorer(check_text, score_text),
    "code": Scorer(check_tests, score_program),
    "instructions": Scorer(
        lambda row, place: check_row({**row, "key": "of this row"}, place),
        lambda row, completion: IFEval().score(Sample("", [], row), completion),
    ),
}


def column(row: Row, setting: str, name: str, place: str) -> Any:
    if name not in row:
        raise TaskDataError(
            f"{place}: the row must have the column '{name}' ({setting}), it has {', '.join(row) or 'none'}; "
            f"name the right one with {setting}=COLUMN"
        )
    return row[name]


def checked_turns(value: Any, what: str) -> list[dict[str, str]]:
    """The messages of a conversation that a model can answer."""
    if not isinstance(value, list) or not value:
        raise TaskDataError(f"{what} must be a text, or a list of chat messages, got {shown(value)}; mend the row")
    for turn in value:
        fits = isinstance(turn, dict) and turn.keys() == {"role", "content"} and turn["role"] in ROLES
        if not fits or not isinstance(turn["content"], str):
            raise TaskDataError(
                f"{what}: a message must have a role ({', '.join(ROLES)}) and a text as content, "
                f"got {shown(turn)}; mend the row"
            )
    if value[-1]["role"] != "user":
        raise TaskDataError(f"{what} must end with a message of the user, got {shown(value[-1])}; mend the row")
    return value


def unfit(scorer: str, form: str, answer: Any, place: str) -> TaskDataError:
    return TaskDataError(
        f"{place}: for task.scorer={scorer} the answer must be {form}, got {shown(answer)}; "
        f"mend the row, or name another column with task.answer=COLUMN"
    )


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
