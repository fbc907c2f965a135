"""What a benchmark is: samples with a prompt each, and a score for each completion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True)
class Sample:
    """One problem: the conversation that the model sees and the row it was made from."""

    id: str
    messages: list[dict[str, str]]
    record: dict[str, Any]
    raw: str | None = None  # the prompt word for word, for protocols that go round the chat template


@dataclass(frozen=True)
class Score:
    """The verdict on one completion; `detail` holds JSON values and always has a "status".

    `measures` are all ways of counting it, by name, as (hits, out of): the protocols "fixed" (right) and "paper" (as
    the published scripts judge, faults included), and others that a benchmark has. `correct` is what heads tables.
    """

    correct: bool
    extracted: str | None  # what was judged; None: the completion held nothing to judge
    detail: dict[str, Any]
    measures: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class DataSource:
    """Where the rows came from, precisely enough to tell two versions of a data set apart."""

    origin: str  # a path, or hub id@revision
    sha256: str  # of the file; of all rows where there is none
    rows: int
    content: str = ""  # digest of the fields that the task reads: a file and a hub copy with equal rows have equal ones
    published: bool | None = None  # whether the content is the published set's; None: it does not claim to be


class Task(Protocol):
    """A benchmark. `prepare` comes first and refuses what would fail later; `score` never raises on model output.

    It may also have `facts() -> dict`, what scoring depends on besides its settings (the sandbox in use, say): JSON
    values for the run's record, asked after `prepare`.
    """

    name: ClassVar[str]
    version: ClassVar[int]  # raised when prompts or scores change: results of two versions are never compared
    max_new_tokens: int

    def prepare(self, allow_code_execution: bool) -> DataSource: ...

    def samples(self, limit: int | None) -> list[Sample]: ...

    def score(self, sample: Sample, completion: str) -> Score: ...


def user_turn(content: str, system: str = "") -> list[dict[str, str]]:
    """A conversation of one question, with a system turn in front if there is one."""
    turns = [{"role": "system", "content": system}] if system else []
    return [*turns, {"role": "user", "content": content}]
