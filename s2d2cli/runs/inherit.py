"""A run on more samples takes over what a run on fewer has decoded.

A sample's tokens depend on the seed and its own name alone, not on how many others there are; so its lines are those
that the larger run would write, and its seconds were measured with the same settings.
"""

from __future__ import annotations

from s2d2cli.config import RunConfig, record, run_id
from s2d2cli.runs.rows import attempts
from s2d2cli.runs.store import Record, folder_of, start


def inherit(config: RunConfig, smaller: RunConfig) -> int:
    """Begin the run `config` with the samples of `smaller`, the same but for its limit; how many there were.

    A run that was begun already is left as it is.
    """
    source, target = folder_of(smaller), folder_of(config)
    with target.locked():
        earlier, rows = source.record(), source.rows()
        if earlier is None or target.record() is not None or target.rows():
            return 0
        for row in rows.values():
            target.append(row)
        start(target, grown(earlier, config))
    return len(rows)


def grown(earlier: Record, config: RunConfig) -> Record:
    """The record of the smaller run as that of one that goes on: machine, data and first prompt are where it began."""
    chosen = attempts(config.task.samples(config.limit), config.repeats)
    return earlier | {
        "run_id": run_id(config),
        "config": record(config),
        "samples": len(chosen),
        "status": "started",
        "error": None,
        "inherited": {"run_id": earlier["run_id"], "samples": earlier["n"]},
    }
