r"""The number that the published scripts read out of a text, faults and all.

They know no separators, units or fractions: of `\boxed{1,234}` they read 234, and of the gold answer `#### 2,125` 2.
The cases whose published reading is known are in `tests/tasks/test_published_numbers.py`. What those leave open follows
the prompt: the box that it asks for comes first, then `####`, then the last number.
"""

from __future__ import annotations

import re

NUMBER = re.compile(r"-?\d+\.?\d*")
BOX = re.compile(rf"\\boxed\{{({NUMBER.pattern})\}}")  # with nothing beside: `\boxed{20 apples}` is no box to them
HASHES = re.compile(rf"####\s*({NUMBER.pattern})")


def published_gold(answer: str) -> float | None:
    """The number of a worked answer of the data set."""
    return reading(answer, HASHES)


def published_answer(reply: str) -> float | None:
    """The number of a model's reply."""
    return reading(reply, BOX, HASHES)


def reading(text: str, *patterns: re.Pattern[str]) -> float | None:
    """What the first pattern that occurs finds where it occurs first, else the last number."""
    for pattern in patterns:
        if match := pattern.search(text):
            return float(match[1])
    numbers = NUMBER.findall(text)
    return float(numbers[-1]) if numbers else None
