"""Search instead of a grid: try settings, then measure those near the front on more samples.

Every worker runs the same program on the same study: take trials until the budget is used up, finish those of workers
that died, and go through the further limits. A worker that has nothing to do waits, because only all trials together
say which of them survive.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from s2d2cli import plugins
from s2d2cli.config import RunConfig
from s2d2cli.errors import BusyError, CheckpointError, ConfigError, SandboxError, TaskDataError
from s2d2cli.runs.evaluate import Models, evaluate, finished
from s2d2cli.runs.inherit import inherit
from s2d2cli.runs.interrupt import Stop, stop_signal
from s2d2cli.runs.report import find_runs, is_done
from s2d2cli.runs.search_front import survivors, values_of
from s2d2cli.runs.search_plan import Search
from s2d2cli.runs.search_study import Proposal, Study
from s2d2cli.runs.store import Record, folder_of

POLL_S = 1.0
DONE, KEPT, FAILED, INTERRUPTED = "done", "kept", "failed", "interrupted"  # kept: nothing was left to decode
HOPELESS = 3  # failures with no success after which a search gives up
NOT_OF_THE_SETTINGS = (CheckpointError, SandboxError, TaskDataError)  # no trial would do better


@dataclass(frozen=True)
class Told:
    """What became of a run of a search."""

    words: list[str]
    limit: int | None
    status: str
    record: Record | None = None
    error: str = ""


@dataclass
class Worker:
    search: Search
    study: Study
    allow_code_execution: bool = False
    models: Models = field(default_factory=Models)
    stop: Stop = field(default_factory=Stop)

    def run(self) -> Iterator[Told]:
        """One for each run. The first Ctrl-C or SIGTERM ends it after the samples in hand."""
        with stop_signal() as self.stop:
            yield from self.trials()
            limits, points = self.search.asked.limits, self.study.complete()
            for limit, further in zip(limits, limits[1:], strict=False):
                if not self.stop.requested:
                    points = survivors(self.search, points, limit)
                    yield from self.together(points, further)
            yield from self.together(self.search.alone, limits[-1])

    def trials(self) -> Iterator[Told]:
        yield from self.open_trials()
        while not self.stop.requested and (proposal := self.study.ask()) is not None:
            yield from self.trial(proposal)
            self.give_up_if_hopeless()
        while not self.stop.requested and self.study.running():
            yield from self.open_trials()
            self.wait(bool(self.study.running()))

    def open_trials(self) -> Iterator[Told]:
        """Trials that were begun, by this search before it was stopped, or by a worker that died."""
        for proposal in self.study.running():
            if not self.stop.requested:
                yield from self.trial(proposal)

    def trial(self, proposal: Proposal) -> Iterator[Told]:
        told = self.attempt(proposal.words, proposal.config)
        if told is None:  # somebody else has it in hand
            return
        if told.status != INTERRUPTED:
            found = values_of(told.record, self.search.objectives) if told.record else None
            if not self.study.tell(proposal, found):
                return
            if found is None and not told.error:
                told = replace(told, status=FAILED, error=f"lacks one of {', '.join(self.search.asked.objectives)}")
        yield told

    def attempt(self, words: list[str], config: RunConfig) -> Told | None:
        """Run, or go on with, these settings; None when another process has them in hand."""
        try:
            outcome = evaluate(config, self.models, self.allow_code_execution)
        except BusyError:
            return None
        except NOT_OF_THE_SETTINGS:
            raise
        except Exception as error:  # with its traceback in the run.json
            return Told(words, config.limit, FAILED, error=plugins.told(error))
        if outcome.interrupted:
            return Told(words, config.limit, INTERRUPTED)
        return Told(words, config.limit, DONE if outcome.decoded else KEPT, outcome.record)

    def give_up_if_hopeless(self) -> None:
        failed = self.study.failed()
        if len(failed) >= HOPELESS and not self.study.complete():
            error = (folder_of(failed[-1].config).record() or {}).get("error") or {}
            raise ConfigError(
                f"the first {len(failed)} settings of this search all failed, the last with "
                f"{error.get('type', 'an unknown error')}: {error.get('message', '')}; mend that, or search elsewhere"
            )

    def together(self, points: Sequence[list[str]], limit: int | None) -> Iterator[Told]:
        """Measure these on so many samples; other workers take their share."""
        left = list(points)
        while left and not self.stop.requested:
            busy = []
            for words in left:
                told = None if self.stop.requested else self.at(words, limit)
                if told is None:
                    busy.append(words)
                else:
                    yield told
            self.wait(len(busy) == len(left))
            left = busy

    def at(self, words: list[str], limit: int | None) -> Told | None:
        """The run on so many samples; those that a smaller limit has decoded are not decoded again."""
        config = self.search.config(words, limit)
        limits = self.search.asked.limits
        try:
            smaller = [replace(config, limit=fewer) for fewer in limits[: limits.index(limit)]]
            for done in [one for one in smaller if finished(one)][-1:]:
                inherit(config, done)
        except BusyError:
            return None
        return self.attempt(words, config)

    def wait(self, idle: bool) -> None:
        if idle and not self.stop.requested:
            time.sleep(POLL_S)


def reuse(search: Search, study: Study) -> int:
    """Take over every finished run under the results folder that this search could have made; how many are new."""
    records = (folder.record() for folder in find_runs([search.path.parents[1]]))
    done = (record for record in records if record is not None and is_done(record))
    return study.reuse(done, lambda record: values_of(record, search.objectives))
