"""The trials of a search: an Optuna study in a journal that any number of processes share. Only this file imports
Optuna.

What must hold together (counting trials and taking a new one) happens under one lock. A trial is RUNNING from the
moment its settings are drawn, which reserves its place in the budget; who works on it is whoever holds the lock of its
run folder. So a trial whose worker died is simply one that is RUNNING and whose folder is free.
"""

from __future__ import annotations

import fcntl
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FixedTrial, FrozenTrial, TrialState, create_trial

from s2d2cli.config import RunConfig, run_id
from s2d2cli.errors import S2D2Error
from s2d2cli.runs import files
from s2d2cli.runs.described import flat
from s2d2cli.runs.search_plan import Search
from s2d2cli.runs.search_space import Outside
from s2d2cli.runs.store import Record

optuna.logging.set_verbosity(optuna.logging.ERROR)

RANDOM_FIRST = 10  # trials before the sampler has something to learn from
MOST_DRAWS = 200  # for one trial: most of a small space may be tried already, or invalid
OWN_DRAWS = 20  # of these by the sampler, which may insist on a point; then by chance
GRID = "grid"


@dataclass
class Lock:
    """A lock on a file that goes with its process, however that ends; its holder may take it again. Optuna calls
    `acquire` and `release` too. A line of the journal that a killed process left torn is cut off first."""

    path: Path
    journal: Path
    depth: int = 0
    file: IO[bytes] = field(init=False)

    def acquire(self) -> bool:
        if not self.depth:
            self.file = self.path.open("ab")
            fcntl.flock(self.file, fcntl.LOCK_EX)
            if self.journal.is_file():
                files.drop_torn_line(self.journal)
        self.depth += 1
        return True

    def release(self) -> None:
        self.depth -= 1
        if not self.depth:
            self.file.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


@dataclass(frozen=True)
class Proposal:
    """A trial in hand."""

    number: int
    words: list[str]
    config: RunConfig


class Study:
    def __init__(self, search: Search) -> None:
        self.search, self.asked = search, search.asked
        journal = search.path / "journal.log"
        self.lock = Lock(search.path / "lock", journal)
        with self.lock:
            storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=self.lock))  # type: ignore[arg-type]
            directions = ["maximize" if metric.larger else "minimize" for metric in search.objectives]
            self.study = optuna.create_study(
                storage=storage, study_name="search", directions=directions, load_if_exists=True
            )

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Those in these states, in the order in which they were drawn; of settings that were new and valid."""
        found = self.study.get_trials(deepcopy=False, states=states or None)
        return [trial for trial in found if trial.state != TrialState.PRUNED and "words" in trial.user_attrs]

    def spent(self) -> int:
        """How much of the budget is used or reserved. What earlier runs had measured costs nothing."""
        return sum(not trial.user_attrs.get("reused") for trial in self.trials())

    def running(self) -> list[Proposal]:
        return [self.proposal(trial) for trial in self.trials(TrialState.RUNNING)]

    def complete(self) -> list[list[str]]:
        """The words of the trials that have their values."""
        return [list(trial.user_attrs["words"]) for trial in self.trials(TrialState.COMPLETE)]

    def failed(self) -> list[Proposal]:
        return [self.proposal(trial) for trial in self.trials(TrialState.FAIL)]

    def left_out(self) -> list[tuple[list[str], str]]:
        """Settings that were drawn and make no valid run, and why."""
        pruned = self.study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
        found = []
        for words in dict.fromkeys(tuple(self.choose(trial)) for trial in pruned):
            try:
                self.search.config(words, self.asked.limits[0])
            except S2D2Error as error:
                found.append((list(words), str(error)))
        return found

    def proposal(self, trial: FrozenTrial) -> Proposal:
        words = list(trial.user_attrs["words"])
        return Proposal(trial.number, words, self.search.config(words, self.asked.limits[0]))

    def ask(self) -> Proposal | None:
        """New settings, reserved; None when the budget is used up, or nothing new is left in the space."""
        with self.lock:
            if self.spent() >= self.asked.trials:
                return None
            seen = {trial.user_attrs["run_id"] for trial in self.trials()}
            for draw in range(MOST_DRAWS):
                found = self.draw(seen, chance=draw >= OWN_DRAWS)
                if found is not None:
                    return found
        return None

    def draw(self, seen: set[str], chance: bool) -> Proposal | None:
        """One draw. Settings that are invalid together or were tried already are pruned: the sampler keeps away from
        them, and they cost nothing."""
        self.study.sampler = sampler(self.asked.seed, len(self.study.get_trials(deepcopy=False)), chance)
        trial = self.study.ask()
        words = self.choose(trial)
        try:
            config = self.search.config(words, self.asked.limits[0])
        except S2D2Error:
            self.study.tell(trial, state=TrialState.PRUNED)
            return None
        if run_id(config) in seen:
            self.study.tell(trial, state=TrialState.PRUNED)
            return None
        trial.set_user_attr("run_id", run_id(config))
        trial.set_user_attr("words", words)
        return Proposal(trial.number, words, config)

    def choose(self, trial: Any) -> list[str]:
        spaces = self.search.spaces
        index = trial.suggest_categorical(GRID, list(range(len(spaces)))) if len(spaces) > 1 else 0
        return spaces[index].choose(trial)

    def tell(self, proposal: Proposal, values: Sequence[float] | None) -> bool:
        """What came of it; None is a failure. False when somebody else has told it meanwhile."""
        state = TrialState.FAIL if values is None else TrialState.COMPLETE
        with self.lock:
            if all(trial.number != proposal.number for trial in self.trials(TrialState.RUNNING)):
                return False
            self.study.tell(proposal.number, values, state=state)
            return True

    def reuse(self, records: Iterator[Record], values_of: Callable[[Record], list[float] | None]) -> int:
        """Take finished runs that lie in the space as trials; how many were new."""
        count = 0
        with self.lock:
            seen = {trial.user_attrs["run_id"] for trial in self.trials()}
            for record in records:
                values = values_of(record) if record["run_id"] not in seen else None
                trial = self.as_trial(record) if values is not None else None
                if trial is not None:
                    seen.add(record["run_id"])
                    self.study.add_trial(trial_with(trial, values or []))
                    count += 1
        return count

    def as_trial(self, record: Record) -> FixedTrial | None:
        """The parameters under which the search would have made exactly this run."""
        settings = flat(record["config"])
        for index, space in enumerate(self.search.spaces):
            try:
                trial = FixedTrial({GRID: index, **space.params(settings)})
                words = self.choose(trial)
                if run_id(self.search.config(words, self.asked.limits[0])) != record["run_id"]:
                    continue
            except (Outside, S2D2Error, ValueError):  # ValueError: a parameter that this run lacks
                continue
            for key, value in {"words": words, "run_id": record["run_id"], "reused": True}.items():
                trial.set_user_attr(key, value)
            return trial
        return None


def trial_with(trial: FixedTrial, values: Sequence[float]) -> FrozenTrial:
    return create_trial(
        values=list(values), params=trial.params, distributions=trial.distributions, user_attrs=trial.user_attrs
    )


def sampler(seed: int, number: int, chance: bool) -> RandomSampler | TPESampler:
    """Its random numbers are named by the seed and the trial's number, so that a search that was stopped goes on as it
    would have, and workers draw different ones."""
    own = (seed * 1_000_003 + number) % 2**32
    if chance:
        return RandomSampler(seed=own)
    with warnings.catch_warnings():  # Optuna calls these arguments experimental since 2020
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(seed=own, multivariate=True, group=True, constant_liar=True, n_startup_trials=RANDOM_FIRST)
