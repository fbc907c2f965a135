"""What a benchmark is: samples with a prompt each, and a score for each completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True)
class Sample:
    """One problem: the conversation that the model sees and the row it was made from."""

    id: str
    messages: list[dict[str, str]]
    record: dict[str, Any]


@dataclass(frozen=True)
class Score:
    """The verdict on one completion; `detail` holds JSON values and always has a "status"."""

    correct: bool
    extracted: str | None  # what was judged; None: the completion held nothing to judge
    detail: dict[str, Any]


@dataclass(frozen=True)
class DataSource:
    """Where the rows came from, precisely enough to tell two versions of a data set apart."""

    origin: str  # a path, or hub id@revision
    sha256: str
    rows: int


class Task(Protocol):
    """A benchmark. `prepare` comes first and refuses what would fail later; `score` never raises on model output."""

    name: ClassVar[str]
    version: ClassVar[int]  # raised when prompts or scores change: results of two versions are never compared
    executes_code: ClassVar[bool]  # True: score() runs generated programs
    max_new_tokens: int

    def prepare(self, allow_code_execution: bool) -> DataSource: ...

    def samples(self, limit: int | None) -> list[Sample]: ...

    def score(self, sample: Sample, completion: str) -> Score: ...


def user_turn(content: str, system: str = "") -> list[dict[str, str]]:
    """A conversation of one question, with a system turn in front if there is one."""
    turns = [{"role": "system", "content": system}] if system else []
    return [*turns, {"role": "user", "content": content}]
