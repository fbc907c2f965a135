"""One point of a sweep: from the record in its manifest to a finished run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from s2d2cli.config import RunConfig
from s2d2cli.restore import restore
from s2d2cli.runs.evaluate import Models, Outcome, evaluate
from s2d2cli.runs.manifest import Entry, SweepFolder
from s2d2cli.runs.workers import Finish


@dataclass
class Evaluator:
    """Evaluates points and keeps the model that it loaded last."""

    allow_code_execution: bool = False
    plugins: list[dict[str, Any]] = field(default_factory=list)  # of the manifest
    models: Models = field(default_factory=Models)

    def __call__(self, entry: Entry, sweep: SweepFolder) -> Finish:
        config = restore({"config": entry.config, "plugins": self.plugins})
        outcome = self.point(replace(config, results=str(sweep.results)))
        return Finish(outcome.folder, outcome.interrupted)

    def point(self, config: RunConfig) -> Outcome:
        """Run, or go on with, one configuration."""
        return evaluate(config, self.models, self.allow_code_execution)
