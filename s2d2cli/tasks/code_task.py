"""What all benchmarks of programs share: consent, limits, the choice of a sandbox, and a verdict by either protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from s2d2cli.errors import ConfigError, SandboxError
from s2d2cli.tasks.base import DataSource, Sample, Score
from s2d2cli.tasks.code import parsed
from s2d2cli.tasks.data import Row, Rows, check_unique
from s2d2cli.tasks.published_code import launcher, same_run
from s2d2cli.tasks.sandbox import SANDBOXES, Limits, Outcome, Program, choose_sandbox, run_program

MAX_REMEMBERED = 4096
SHARED = ("pass", "assert", "timeout")  # how a program can end that ends the same as a script


@dataclass
class CodeTask(ABC):
    """A benchmark whose replies are programs. A subclass says what is asked, and how a reply becomes a program."""

    name: ClassVar[str]

    data: str = ""
    max_new_tokens: int = 512
    cpu_limit_s: int = 10  # for one program; the clock may run three times as long, since the machine may be busy
    sandbox: str = "auto"  # bwrap, process, or auto: bwrap where it works

    def validate(self) -> None:
        if self.cpu_limit_s < 1:
            raise ConfigError(f"task.cpu_limit_s must be at least 1 second, got {self.cpu_limit_s}")
        check_choice("sandbox", self.sandbox, SANDBOXES)

    def prepare(self, allow_code_execution: bool) -> DataSource:
        if not allow_code_execution:
            raise SandboxError(
                f"task {self.name} runs programs that the model writes, with your rights on this machine; "
                f"add --allow-code-execution if that is what you want"
            )
        source = self._loaded.source
        for row in self._loaded.rows:
            self.check_row(row, source.origin)
        check_unique([sample.id for sample in self.samples(None)], source)
        assert self._sandbox  # the trial is made now, not after the first answer
        return source

    def facts(self) -> dict[str, Any]:
        return {"sandbox": self._sandbox}

    def samples(self, limit: int | None) -> list[Sample]:
        return [self.sample(row) for row in self._loaded.rows[:limit]]

    def score(self, sample: Sample, completion: str) -> Score:
        program = self.program(sample.record, completion)
        outcome = self.run(program) if program else Outcome("no_code")
        passed, paper = outcome.status == "pass", self.passes_on_paper(sample.record, completion, program, outcome)
        detail = {"status": outcome.status, "message": outcome.message, "sandbox": self._sandbox}
        measures = {"fixed": (int(passed), 1), "paper": (int(paper), 1)}
        return Score(passed, program.code if program else None, detail, measures)

    def passes_on_paper(self, row: Row, completion: str, program: Program | None, outcome: Outcome) -> bool:
        """The published verdict. It takes a second run, unless the first one is sure to have had the same end."""
        published = self.published(row, completion)
        if isinstance(published, Program):
            return self.run(published).status == "pass"
        script = parsed(published)
        if script is None:  # Python would not begin it
            return False
        if program and outcome.status in SHARED and same_run(script, program):
            return outcome.status == "pass"
        return self.run(Program(launcher(published), [])).exit_code == 0

    def run(self, program: Program) -> Outcome:
        limits = Limits(cpu_s=self.cpu_limit_s, wall_s=3 * self.cpu_limit_s)
        return remembered(program.code.rstrip(), tuple(program.tests), program.setup.strip(), limits, self._sandbox)

    @abstractmethod
    def sample(self, row: Row) -> Sample: ...

    @abstractmethod
    def check_row(self, row: Row, origin: str) -> None:
        """Refuse a row that could not be judged."""

    @abstractmethod
    def program(self, row: Row, completion: str) -> Program | None:
        """The completion with the row's tests, rightly read; None if nothing in it looks like code."""

    @abstractmethod
    def published(self, row: Row, completion: str) -> Program | str:
        """What the published scripts run: a script that is judged by its exit code, or a program by its tests."""

    @cached_property
    def _sandbox(self) -> str:
        return choose_sandbox(self.sandbox)

    @cached_property
    @abstractmethod
    def _loaded(self) -> Rows: ...


@lru_cache(MAX_REMEMBERED)
def remembered(code: str, tests: tuple[str, ...], setup: str, limits: Limits, sandbox: str) -> Outcome:
    """The outcome of a program. A sweep meets many again: its decoders give the same answer to most problems."""
    return run_program(Program(code, list(tests), setup, limits, sandbox))


def check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"task.{field} must be one of {', '.join(choices)}, got {value!r}")
