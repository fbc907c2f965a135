"""Grade-school word problems in GSM8K's format, judged by the number that a worked answer arrives at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from s2d2cli.config import register
from s2d2cli.errors import ConfigError, TaskDataError
from s2d2cli.tasks.base import DataSource, Sample, Score, user_turn
from s2d2cli.tasks.data import Hub, Rows, load
from s2d2cli.tasks.numbers import Answer, as_text, find_answer

FIELDS = {"question": str, "answer": str}
BOXED_PROMPT = (
    "Solve the following math problem concisely and clearly and put your final answer within \\boxed{}.\n\n"
    "Question: {question}"
)


@register("task", "gsm8k")
@dataclass
class GSM8K:
    """1319 test problems of `openai/gsm8k`, one user turn each; correct means equal as exact fractions."""

    name: ClassVar[str] = "gsm8k"
    version: ClassVar[int] = 1

    data: str = "openai/gsm8k"  # a hub id, optionally with @revision, or a JSONL file with question and answer
    prompt: str = BOXED_PROMPT
    max_new_tokens: int = 256

    def validate(self) -> None:
        if "{question}" not in self.prompt:
            raise ConfigError(f"task.prompt must contain {{question}}, where the problem goes; got {self.prompt!r}")

    def prepare(self, allow_code_execution: bool) -> DataSource:
        source = self._loaded.source
        for index, row in enumerate(self._loaded.rows):
            if find_answer(row["answer"]) is None:
                raise TaskDataError(
                    f"{source.origin}, row {index}: the answer must end in a number as in '#### 18', "
                    f"it ends in {row['answer'][-40:]!r}; mend or remove the row"
                )
        return source

    def samples(self, limit: int | None) -> list[Sample]:
        return [
            Sample(f"{self.name}/{index}", user_turn(self.prompt.replace("{question}", row["question"])), row)
            for index, row in enumerate(self._loaded.rows[:limit])
        ]

    def score(self, sample: Sample, completion: str) -> Score:
        gold, found = find_answer(sample.record["answer"]), find_answer(completion)
        assert gold is not None  # prepare() saw to it
        detail = {"status": status(gold, found), "gold": as_text(gold.value), "source": found.source if found else None}
        return Score(detail["status"] == "correct", found.text if found else None, detail)

    @cached_property
    def _loaded(self) -> Rows:
        return load(self.data, FIELDS, Hub("main"))


@register("task", "tiny_math")
@dataclass
class TinyMath(GSM8K):
    """The word problems that ship with s2d2, held out from the training of the tiny model."""

    name: ClassVar[str] = "tiny_math"

    data: str = "package:tiny_math.jsonl"
    prompt: str = "{question}"
    max_new_tokens: int = 128


def status(gold: Answer, found: Answer | None) -> str:
    if found is None:
        return "no_answer"
    return "correct" if found.value == gold.value else "wrong"
