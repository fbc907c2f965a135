"""Grade-school word problems in GSM8K's format, judged by the number that a worked answer arrives at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from s2d2cli.config import register
from s2d2cli.errors import ConfigError, TaskDataError
from s2d2cli.tasks.base import DataSource, Sample, Score, user_turn
from s2d2cli.tasks.data import Hub, Rows, load
from s2d2cli.tasks.numbers import find_answer
from s2d2cli.tasks.published_numbers import published_answer, published_gold

FIELDS = {"question": str, "answer": str}

# The published prompts: what comes before the question, and after it.
STYLES = {
    "boxed": (
        "Solve the following math problem concisely and clearly and put your final answer within \\boxed{}.",
        "",
    ),
    "cot": (
        "Solve the following math problem step by step. Show your reasoning clearly. "
        "Put your final answer within \\boxed{}.",
        "\nAnswer: Let's think step by step.",
    ),
}

# The published scripts show these three problems with these three answers. The wording is ours: theirs is not ours to
# copy, so a run with shots is close to a published one and not the same.
WORKED = (
    (
        "A park has 15 trees. Workers plant some more today, and afterwards it has 21. How many trees did they plant?",
        "There were 15 trees and then there are 21. The workers planted 21 - 15 = 6 trees. \\boxed{6}",
    ),
    (
        "Mona owns 32 chocolates and her sister owns 42. Together they eat 35. How many chocolates remain?",
        "Together they own 32 + 42 = 74 chocolates. After eating 35 there remain 74 - 35 = 39. \\boxed{39}",
    ),
    (
        "Theo had 20 lollipops. He handed some of them to a friend and has 12 left. How many did he hand over?",
        "Theo went from 20 lollipops down to 12. He handed over 20 - 12 = 8 lollipops. \\boxed{8}",
    ),
)


@register("task", "gsm8k")
@dataclass
class GSM8K:
    """1319 test problems of `openai/gsm8k`, one user turn each; correct means equal as exact fractions."""

    name: ClassVar[str] = "gsm8k"
    version: ClassVar[int] = 1

    data: str = "openai/gsm8k"  # a hub id, optionally with @revision, or a JSONL file with question and answer
    style: str = "boxed"  # or cot, the published prompts; or a prompt of your own, with {question} in it
    shots: int = 0  # worked examples in front of the question, up to 3
    max_new_tokens: int = 256

    def validate(self) -> None:
        if self.style not in STYLES and "{question}" not in self.style:
            raise ConfigError(
                f"task.style must be {' or '.join(STYLES)}, or a text with {{question}} where the problem goes; "
                f"got {self.style!r}"
            )
        most = len(WORKED) if self.style in STYLES else 0
        if not 0 <= self.shots <= most:
            raise ConfigError(f"task.shots must lie between 0 and {most} with this task.style, got {self.shots}")

    def prepare(self, allow_code_execution: bool) -> DataSource:
        for place, row in zip(self._loaded.places, self._loaded.rows, strict=True):
            if find_answer(row["answer"]) is None:
                raise TaskDataError(
                    f"{place}: the answer must end in a number as in '#### 18', "
                    f"it ends in {row['answer'][-40:]!r}; mend or remove the row"
                )
        return self._loaded.source

    def samples(self, limit: int | None) -> list[Sample]:
        return [
            Sample(f"{self.name}/{index}", user_turn(self.prompt(row["question"])), row)
            for index, row in enumerate(self._loaded.rows[:limit])
        ]

    def prompt(self, question: str) -> str:
        if self.style not in STYLES:
            return self.style.replace("{question}", question)
        task, ending = STYLES[self.style]
        worked = [f"Question: {example}\nAnswer: {answer}" for example, answer in WORKED[: self.shots]]
        return "\n\n".join([task, *worked, f"Question: {question}{ending}"])

    def score(self, sample: Sample, completion: str) -> Score:
        return score_number(sample.record["answer"], completion)

    @cached_property
    def _loaded(self) -> Rows:
        return load(self.data, FIELDS, Hub("main"))


@register("task", "tiny_math")
@dataclass
class TinyMath(GSM8K):
    """The word problems that ship with s2d2, held out from the training of the tiny model."""

    name: ClassVar[str] = "tiny_math"

    data: str = "package:tiny_math.jsonl"
    style: str = "{question}"
    max_new_tokens: int = 128


def score_number(answer: str, completion: str) -> Score:
    """Whether the completion arrives at the number that the answer of its row arrives at; that it has one is known."""
    gold, found = find_answer(answer), find_answer(completion)
    assert gold is not None
    status = "no_answer" if found is None else "correct" if found.value == gold.value else "wrong"
    published = published_answer(completion)
    detail = {
        "status": status,
        "gold": gold.text,
        "source": found.source if found else None,
        "published": None if published is None else str(published),  # text: a float may be infinite
    }
    measures = {"fixed": (int(status == "correct"), 1), "paper": (int(published == published_gold(answer)), 1)}
    return Score(status == "correct", found.text if found else None, detail, measures)
