"""Combinations of words become points: composed, named and checked before the first model loads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from s2d2cli.config import RunConfig, compose, hydra_session, run_id
from s2d2cli.errors import ConfigError, S2D2Error
from s2d2cli.overrides import is_group, parse
from s2d2cli.runs.evaluate import model_key
from s2d2cli.runs.grid import BASELINE

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


def prepare(points: Sequence[Point], allow_code_execution: bool) -> None:
    """Let every task refuse what it must (data, leave to run code) before a model loads."""
    tasks = {repr(point.config.task): point.config.task for point in points}
    for task in tasks.values():
        task.prepare(allow_code_execution)
