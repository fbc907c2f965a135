"""What `s2d2 sweep --json` and `s2d2 search --json` print: one object on stdout, and all other words go to stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.runs.search_plan import Search
    from s2d2cli.runs.search_study import Study
    from s2d2cli.runs.sweep import Plan

DONE, FAILED, OPEN = "done", "failed", "open"
Plain = dict[str, Any]


def as_point(words: Sequence[str], config: RunConfig, failed: bool = False) -> Plain:
    """One run as its run.json has it; what was not measured is null."""
    from s2d2cli.config import run_id
    from s2d2cli.runs.evaluate import finished
    from s2d2cli.runs.store import folder_of

    folder = folder_of(config)
    record = folder.record() or {}
    speed = record.get("speed") or {}
    return {
        "run_id": run_id(config),
        "overrides": list(words),
        "status": FAILED if failed else DONE if finished(config) else OPEN,
        "folder": str(folder.path) if record else None,
        "n": record.get("n", 0),
        "accuracy": record.get("accuracy"),
        "tokens_per_forward": speed.get("tokens_per_forward"),
        "tokens_per_s": speed.get("tokens_per_s"),
    }


def failure(point: Plain, error: str | None) -> Plain:
    return {"run_id": point["run_id"], "overrides": point["overrides"], "error": error}


def tell(points: Sequence[Plain], failed: Sequence[Plain], skipped: Sequence[Plain], places: Mapping[str, Any]) -> None:
    answer = {"points": points, "failed": failed, "skipped": skipped, **places}
    typer.echo(json.dumps(answer, indent=1, ensure_ascii=False))


def tell_sweep(planned: Plan, errors: Mapping[str, str | None], path: Path | None, out: Path | None) -> None:
    """`errors` are those of the points that failed, by run id; there is no folder and no report of a dry run."""
    points = [as_point(one.overrides, one.config, one.run_id in errors) for one in planned.points]
    failed = [failure(point, errors[point["run_id"]]) for point in points if point["run_id"] in errors]
    skipped = [{"overrides": one.overrides, "reason": one.reason} for one in planned.skipped]
    tell(points, failed, skipped, {"sweep": path and str(path), "report": out and str(out)})


def tell_search(wanted: Search, study: Study, front: Sequence[str], out: Path | None) -> None:
    """Each setting on the most samples that it was finished on; `front` holds the run ids of the best ones."""
    from s2d2cli.cli.found import failures

    lost = [(as_point(one.words, one.config, failed=True), error) for one, error in failures(study)]
    open_ones = [as_point(one.words, one.config) for one in study.running()]
    points = [*furthest(wanted, study), *(point for point, _ in lost), *open_ones]
    skipped = [{"overrides": words, "reason": reason} for words, reason in study.left_out()]
    places = {"front": list(front), "search": str(wanted.path), "report": out and str(out)}
    tell(points, [failure(point, error) for point, error in lost], skipped, places)


def furthest(wanted: Search, study: Study) -> Iterator[Plain]:
    from s2d2cli.runs.evaluate import finished

    for words in [*study.complete(), *wanted.alone]:
        configs = [wanted.config(words, limit) for limit in reversed(wanted.asked.limits)]
        yield as_point(words, next((config for config in configs if finished(config)), configs[-1]))
