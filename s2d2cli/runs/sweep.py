"""Many runs: sweep strings and sweep files become points; each point is checked before the first model loads.

A sweep file holds `overrides` (common to all points) and `grid`, or a list `grids`; a grid maps a key to one of
Hydra's sweep strings. What is typed beside a file replaces the same key where the file has it, and otherwise holds for
all of its grids; only the autoregressive baseline keeps clear of settings that are about blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from s2d2cli.config import RunConfig, compose, hydra_session, run_id
from s2d2cli.errors import ConfigError, S2D2Error
from s2d2cli.folders import files
from s2d2cli.overrides import Words, axes, did_you_mean, is_group, parse, product
from s2d2cli.runs.evaluate import Models, Outcome, evaluate, finished, model_key

ABOUT_BLOCKS = re.compile(
    r"(router|unmask|estimator|verifier)\b|decode\.(block_length|denoising_steps|context|commit)$"
)

BASELINE = "decoder=autoregressive"
SIZE_OF_BLOCKS = re.compile(r"decode\.(block_length|denoising_steps)=")


@dataclass(frozen=True)
class Point:
    """One run of a sweep, composed and valid."""

    overrides: list[str]
    config: RunConfig
    run_id: str


@dataclass(frozen=True)
class Skipped:
    """A combination that makes no valid run, and why."""

    overrides: list[str]
    reason: str


@dataclass
class Plan:
    """All points in the order in which they were typed; runs that share a model stand together."""

    points: list[Point] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    duplicates: int = 0
    cleared: list[str] = field(default_factory=list)  # words that the autoregressive points went without


@dataclass(frozen=True)
class SweepFile:
    name: str
    overrides: list[str]
    grids: list[dict[str, str]]


def plan(combinations: Sequence[Sequence[str]], texts: Mapping[str, str]) -> Plan:
    """Compose every combination. A grid's corner that is invalid is left out; a word that is wrong wherever it stands
    is an error, and so is a plan of nothing else."""
    tried, cleared = lone_baseline(combinations)
    planned = Plan(cleared=cleared)
    seen: dict[str, Point] = {}
    for overrides in tried:
        try:
            config = compose(overrides, texts)
        except S2D2Error as error:
            invalid = Skipped(overrides, str(error))
            planned.skipped += [invalid] if invalid not in planned.skipped else []
            continue
        name = run_id(config)
        planned.duplicates += name in seen
        seen.setdefault(name, Point(overrides, config, name))
    refuse_wrong_words(planned.skipped, {word for point in seen.values() for word in point.overrides}, texts)
    if not seen:
        raise ConfigError(f"no point of this sweep is valid; the first one: {planned.skipped[0].reason}")
    planned.points = by_model(list(seen.values()))
    return planned


def lone_baseline(combinations: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """The combinations, the autoregressive ones without what is typed about the size of blocks and each once; and the
    words that fell away."""
    kept: list[list[str]] = []
    cleared: list[str] = []
    for words in map(list, combinations):
        away = [word for word in words if SIZE_OF_BLOCKS.match(word)] if BASELINE in words else []
        left = [word for word in words if word not in away]
        cleared += away
        kept += [left] if not away or left not in kept else []
    return kept, list(dict.fromkeys(cleared))


def refuse_wrong_words(skipped: Sequence[Skipped], good: set[str], texts: Mapping[str, str]) -> None:
    """A word is wrong in itself when each of its points fails, and just as it would with the group choices alone."""
    doubtful = dict.fromkeys(word for point in skipped for word in point.overrides if word not in good)
    choices = choices_of(doubtful)  # first, because what else there is depends on them
    for word in [*choices, *(word for word in doubtful if word not in choices)]:
        points = [point for point in skipped if word in point.overrides]
        if all(point.reason == wrong_alone(word, point.overrides, texts) for point in points):
            raise ConfigError(points[0].reason)


def wrong_alone(word: str, words: Sequence[str], texts: Mapping[str, str]) -> str | None:
    """What is wrong with `word` beside nothing but the options chosen in `words`; None when nothing is."""
    choices = choices_of(words)
    try:
        compose([word] if word in choices else [*choices, word], texts)
    except S2D2Error as error:
        return str(error)
    return None


def choices_of(words: Iterable[str]) -> list[str]:
    with hydra_session():
        return [word for word in words if is_group(parse(word).get_key_element())]


def by_model(points: list[Point]) -> list[Point]:
    """Stable: models in the order of their first point, so that each loads once."""
    keys = [model_key(point.config) for point in points]
    return sorted(points, key=lambda point: keys.index(model_key(point.config)))


def combinations(typed: Sequence[str], file: SweepFile | None) -> list[list[str]]:
    """The points of a sweep file under what was typed, or of the typed sweep strings alone."""
    with hydra_session():
        words = axes(typed)
        if len(words.get("results", [])) > 1:
            raise ConfigError("results is the folder of all points, not an axis; give one folder: results=...")
        if file is None:
            return product(words)
        common, grids = axes(file.overrides), [axes(texts_of(grid)) for grid in file.grids]
    local = {key for grid in grids for key in grid}
    return [point for grid in grids for point in product(common | grid | fitting(words, grid, local))]


def fitting(words: Words, grid: Words, local: set[str]) -> Words:
    """The typed words that touch this grid; `local` are the keys that any grid of the file has."""
    baseline = grid.get("decoder") == [BASELINE]
    return {
        key: values
        for key, values in words.items()
        if key in grid or not (key in local or (baseline and ABOUT_BLOCKS.match(key)))
    }


def has_axis(typed: Sequence[str]) -> bool:
    with hydra_session():
        return any(len(values) > 1 for values in axes(typed).values())


def texts_of(grid: Mapping[str, str]) -> Iterator[str]:
    for key, value in grid.items():
        yield f"{key}={value}"


def default_file(router: str | None) -> SweepFile:
    """The grid that a router ships with, for a sweep that names no axis."""
    known = files("sweeps")
    return read(known.get(f"router_{router}", known["default"]))


def find(word: str) -> SweepFile:
    """A path to a sweep file, or the name of one of the user's or a shipped one."""
    path, known = Path(word).expanduser(), files("sweeps")
    if path.is_file():
        return read(path)
    if word in known:
        return read(known[word])
    near = did_you_mean(path.stem, list(known))
    raise ConfigError(f"no sweep file {word!r}, and none of that name among {', '.join(known)}{near}")


def read(path: Path) -> SweepFile:
    """The file, refused with a sentence when it is not of the form described above."""
    form = f"{path} must hold `overrides:` (a list) and `grid:` (key: sweep string) or a list of them, `grids:`"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{form}; it cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict) or content.keys() - {"overrides", "grid", "grids"}:
        found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise ConfigError(f"{form}; found {found}")
    grids = content.get("grids", [content.get("grid", {})])
    overrides = content.get("overrides", [])
    if not isinstance(overrides, list) or not isinstance(grids, list) or not all(isinstance(g, dict) for g in grids):
        raise ConfigError(f"{form}; one of them has another shape")
    return SweepFile(path.stem, [str(o) for o in overrides], [plain(grid) for grid in grids])


def plain(grid: Mapping[str, Any]) -> dict[str, str]:
    """YAML gives numbers and lists where a sweep string is meant: a list means its items, one after the other."""
    items = {key: value if isinstance(value, list) else [value] for key, value in grid.items()}
    return {str(key): ",".join(map(word_of, values)) for key, values in items.items()}


def word_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Result:
    """What became of a point: kept (finished earlier), done, failed or interrupted."""

    point: Point
    status: str
    outcome: Outcome | None = None
    error: str = ""


def prepare(points: Sequence[Point], allow_code_execution: bool) -> None:
    """Let every task refuse what it must (data, leave to run code) before a model loads."""
    tasks = {repr(point.config.task): point.config.task for point in points}
    for task in tasks.values():
        task.prepare(allow_code_execution)


def run(points: Sequence[Point], allow_code_execution: bool = False) -> Iterator[Result]:
    """Run the points that are not finished. A point that fails is told at once and does not stop the others."""
    models = Models()
    for point in points:
        if finished(point.config):
            yield Result(point, "kept")
            continue
        try:
            outcome = evaluate(point.config, models, allow_code_execution)
        except Exception as error:  # recorded in the point's run.json
            yield Result(point, "failed", error=f"{type(error).__name__}: {error}")
            continue
        yield Result(point, "interrupted" if outcome.interrupted else "done", outcome)
        if outcome.interrupted:
            return
