"""Sweep files and typed sweep strings become combinations of words.

A sweep file holds `overrides` (common to all points) and `grid`, or a list `grids`. A grid maps a key to one of Hydra's
sweep strings; beside its keys it may have

    zip:      key: values, or a list of such; the keys of one zip move together, first with first
    exclude:  a list of key: value; what agrees with all keys of an item is left out (a value may be several, `4,8`)

and the file itself `zip` and `exclude`, which then hold for all of its grids, and

    include:  a list of key: value; further points, besides the grids and not touched by `exclude`
    repeat:   3 (seeds 0, 1, 2) or a list of seeds: every point once with each

What is typed beside a file replaces the same key where the file has it, and otherwise holds for all of its grids; only
the autoregressive baseline keeps clear of settings that are about blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import yaml

from s2d2cli.config import hydra_session
from s2d2cli.errors import ConfigError
from s2d2cli.folders import files
from s2d2cli.overrides import Words, axes, did_you_mean, product

ABOUT_BLOCKS = re.compile(
    r"(router|unmask|estimator|verifier)\b|decode\.(block_length|denoising_steps|context|commit|cache)$"
)
BASELINE = "decoder=autoregressive"
Texts = dict[str, str]


@dataclass(frozen=True)
class Grid:
    axes: Texts = field(default_factory=dict)
    zips: list[Texts] = field(default_factory=list)
    exclude: list[Texts] = field(default_factory=list)


@dataclass(frozen=True)
class SweepFile:
    name: str
    overrides: list[str]
    grids: list[Grid]
    include: list[Texts] = field(default_factory=list)
    seeds: list[str] = field(default_factory=list)


def combinations(typed: Sequence[str], file: SweepFile | None, most: int | None = None) -> list[list[str]]:
    """The points of a sweep file under what was typed, or of the typed sweep strings alone; refused above `most`."""
    with hydra_session():
        words = axes(typed)
        if len(words.get("results", [])) > 1:
            raise ConfigError("results is the folder of all points, not an axis; give one folder: results=...")
        points = product(words) if file is None else of_file(words, file)
        found = list(islice(points, None if most is None else most + 1))
    if most is not None and len(found) > most:
        raise ConfigError(f"this sweep has more than {most} points; narrow it, or allow more with --max-points")
    return found


def of_file(words: Words, file: SweepFile) -> Iterator[list[str]]:
    """The grids one after the other, then the further points; each of them with every seed."""
    common = axes(file.overrides) | ({"seed": [f"seed={seed}" for seed in file.seeds]} if file.seeds else {})
    grids = [*file.grids, *(Grid(point) for point in file.include)]
    columns = [[axes(texts_of(texts)) for texts in (grid.axes, *grid.zips)] for grid in grids]
    local = {key for keys in chain.from_iterable(columns) for key in keys}
    refuse_strange_excludes(file, local | common.keys())
    for grid, (own, *zips) in zip(grids, columns, strict=True):
        fitted = fitting(words, own | dict(chain.from_iterable(z.items() for z in zips)), local)
        left = [{key: values for key, values in z.items() if key not in fitted} for z in zips]
        rows = [zipped(z, file.name) for z in left if z]
        for point in product(common | own | fitted, rows):
            if not excluded(point, grid.exclude):
                yield point


def fitting(words: Words, grid: Words, local: set[str]) -> Words:
    """The typed words that touch this grid; `local` are the keys that any grid of the file has."""
    baseline = grid.get("decoder") == [BASELINE]
    return {
        key: values
        for key, values in words.items()
        if key in grid or not (key in local or (baseline and ABOUT_BLOCKS.match(key)))
    }


def zipped(words: Words, name: str) -> list[tuple[str, ...]]:
    """The axes side by side: the first values of all, then the second ones."""
    counts = {key: len(values) for key, values in words.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{key} has {count}" for key, count in counts.items())
        raise ConfigError(f"the keys of a zip must have equally many values, and in {name} {listed}")
    return list(zip(*words.values(), strict=True))


def excluded(point: Sequence[str], exclude: Sequence[Texts]) -> bool:
    return any(all(set(axes([f"{k}={v}"])[k]) & set(point) for k, v in item.items()) for item in exclude if item)


def refuse_strange_excludes(file: SweepFile, known: set[str]) -> None:
    """An exclude that can never match is a slip of the pen, and would run what should be left out."""
    for item in chain.from_iterable(grid.exclude for grid in file.grids):
        for key in item.keys() - known:
            near = did_you_mean(key, sorted(known))
            raise ConfigError(f"{file.name} excludes by {key!r}, which none of its points sets{near}")


def has_axis(typed: Sequence[str]) -> bool:
    with hydra_session():
        return any(len(values) > 1 for values in axes(typed).values())


def texts_of(grid: Mapping[str, str]) -> Iterable[str]:
    return (f"{key}={value}" for key, value in grid.items())


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


FORM = "`overrides:` (a list) and `grid:` (key: sweep string) or a list of them, `grids:`"
WORDS = {"overrides": list, "grid": dict, "grids": list, "exclude": list, "include": list}


def read(path: Path) -> SweepFile:
    """The file, refused with a sentence when it is not of the form described above."""
    form = f"{path} must hold {FORM}"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{form}; it cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict) or content.keys() - {*WORDS, "zip", "repeat"}:
        found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise ConfigError(f"{form}, and may hold zip, exclude, include and repeat; found {found}")
    wrong = [word for word, kind in WORDS.items() if word in content and not isinstance(content[word], kind)]
    if wrong or ("grid" in content and "grids" in content):
        raise ConfigError(f"{form}; {wrong[0] if wrong else 'grid beside grids'} has another shape")
    shared = {word: content.get(word, []) for word in ("zip", "exclude")}
    grids = [grid_of(grid, shared, form) for grid in content.get("grids", [content.get("grid", {})])]
    include = maps(content.get("include", []), "include", form)
    overrides = [str(word) for word in content.get("overrides", [])]
    return SweepFile(path.stem, overrides, grids, include, seeds_of(content.get("repeat", []), form))


def grid_of(grid: Any, shared: Mapping[str, Any], form: str) -> Grid:
    if not isinstance(grid, dict):
        raise ConfigError(f"{form}; one of its grids has another shape")
    zips, exclude = (
        [*maps(shared[word], word, form), *maps(grid.get(word, []), word, form)] for word in ("zip", "exclude")
    )
    return Grid(plain({key: value for key, value in grid.items() if key not in ("zip", "exclude")}), zips, exclude)


def maps(value: Any, word: str, form: str) -> list[Texts]:
    """One map of keys to values, or a list of them."""
    items = [value] if isinstance(value, dict) else value
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ConfigError(f"{form}; {word} must be `key: value` or a list of such, got {json.dumps(value)}")
    return [plain(item) for item in items]


def seeds_of(value: Any, form: str) -> list[str]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return [str(seed) for seed in range(value)]
    if isinstance(value, list) and all(isinstance(seed, int) and not isinstance(seed, bool) for seed in value):
        return [str(seed) for seed in value]
    raise ConfigError(f"{form}; repeat must be a number of seeds or a list of them, got {json.dumps(value)}")


def plain(grid: Mapping[str, Any]) -> Texts:
    """YAML gives numbers and lists where a sweep string is meant: a list means its items, one after the other."""
    items = {key: value if isinstance(value, list) else [value] for key, value in grid.items()}
    return {str(key): ",".join(map(word_of, values)) for key, values in items.items()}


def word_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
