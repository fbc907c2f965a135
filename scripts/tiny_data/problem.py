"""What every generator returns, and the rule that keeps held-out problems out of training."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

HELD_OUT_PERCENT = 5


@dataclass(frozen=True)
class Problem:
    """A chat prompt, the answer to learn, and the row of the benchmark file that scores it."""

    messages: list[dict[str, str]]
    answer: str
    record: dict

    @property
    def prompt(self) -> str:
        return self.messages[-1]["content"]


Generator = Callable[[Random], Problem]


def user_turn(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def words(text: str) -> list[str]:
    return text.split()


def is_held_out(prompt: str) -> bool:
    """Decided by the whole prompt alone, so no seed and no order of drawing can move a problem across the split."""
    digest = hashlib.sha256(prompt.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def draw(generate: Generator, rng: Random, held_out: bool) -> Problem:
    """The next problem of the wanted side of the split."""
    while True:
        problem = generate(rng)
        if is_held_out(problem.prompt) == held_out:
            return problem


def held_out_set(generate: Generator, rng: Random, count: int) -> Iterator[Problem]:
    """`count` held-out problems with different prompts."""
    seen: set[str] = set()
    while len(seen) < count:
        problem = draw(generate, rng, held_out=True)
        if problem.prompt not in seen:
            seen.add(problem.prompt)
            yield problem
