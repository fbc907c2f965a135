"""A search on disk: `results/searches/<name>-<hash>/`, which any number of workers share.

    search.json   what was asked for; the same words with more trials or further limits are the same search
    journal.log   the trials, as Optuna writes them
    logs/         what local workers print

Samples are in the run folders beside `searches/`: a trial is an ordinary run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from s2d2cli import plugins
from s2d2cli.config import RunConfig, compose
from s2d2cli.errors import ConfigError
from s2d2cli.restore import load_files
from s2d2cli.runs import files
from s2d2cli.runs.launch import go_to
from s2d2cli.runs.metrics import METRICS, SPEEDUP, Metric
from s2d2cli.runs.search_space import Space, spaces_of

SCHEMA = 1


@dataclass(frozen=True)
class Asked:
    """A search in words, as search.json holds it."""

    grids: list[list[str]]  # of overrides: the values to choose from, and what is fixed
    texts: dict[str, str]
    objectives: list[str]
    trials: int
    limits: list[int | None]
    seed: int = 0
    cwd: str = field(default_factory=os.getcwd)
    plugins: list[dict[str, Any]] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Names the search: everything that a trial's values depend on, and not how many there are to be."""
        texts = {key: text for key, text in self.texts.items() if key != "results"}
        same = [self.grids, texts, self.objectives, self.limits[0], self.seed]
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Search:
    path: Path
    asked: Asked

    @cached_property
    def spaces(self) -> list[Space]:
        """Those with something to choose."""
        return [space for space in self.everything if space.size > 1]

    @cached_property
    def everything(self) -> list[Space]:
        return spaces_of(self.asked.grids, self.asked.texts)

    @property
    def alone(self) -> list[list[str]]:
        """Grids of one point, such as a baseline: they run besides the trials."""
        return [space.choose(None) for space in self.everything if space.size == 1]

    @property
    def objectives(self) -> list[Metric]:
        return [METRICS[name] for name in self.asked.objectives]

    def config(self, words: Sequence[str], limit: int | None) -> RunConfig:
        """The run of these words on so many samples."""
        config = compose(words, self.asked.texts)
        return replace(config, limit=limit, results=str(self.path.parents[1]))

    def write(self) -> None:
        (self.path / "logs").mkdir(parents=True, exist_ok=True)
        text = json.dumps({"schema": SCHEMA, **asdict(self.asked)}, indent=1)
        files.replace(self.path / "search.json", text + "\n")


def asked(grids: list[list[str]], texts: dict[str, str], goal: str, budget: tuple[int, str | None]) -> Asked:
    """What the command line asks for: `budget` is the trials and the words of --limits."""
    trials, limits = budget
    samples, seeds = typed(grids, "limit="), typed(grids, "seed=")
    rest = [[word for word in words if not word.startswith("limit=")] for words in grids]
    seed = int(seeds[0]) if len(seeds) == 1 and seeds[0].isdecimal() else 0
    used = [asdict(plugin) for plugin in plugins.LOADED.values()]
    return Asked(rest, texts, objectives(goal), trials, limits_of(limits, samples), seed, plugins=used)


def typed(grids: Sequence[Sequence[str]], key: str) -> list[str]:
    """The different values that were given to this key."""
    return list(dict.fromkeys(word.removeprefix(key) for words in grids for word in words if word.startswith(key)))


def folder_for(asked: Asked, name: str, results: str) -> Path:
    return Path(results) / "searches" / f"{name}-{asked.digest}"


def read(path: Path) -> Search:
    """A search that somebody began. Goes where it was typed, because relative paths in its settings start there."""
    try:
        plain = json.loads((path / "search.json").read_text(encoding="utf-8"))
        if plain.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        asked = Asked(**plain)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{str(path)!r} must be the folder of a search, as `s2d2 search` makes one; its search.json cannot be used"
        ) from error
    there = go_to(asked.cwd, path)
    load_files(asked.plugins)
    return Search(there, asked)


def objectives(text: str) -> list[str]:
    """The two metrics of `--objective`."""
    known = {name: metric for name, metric in METRICS.items() if metric != SPEEDUP}
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in known]
    if wrong or len(set(names)) != 2 or len(names) != 2:
        got = f"{wrong[0]!r}" if wrong else f"{text!r}"
        raise ConfigError(f"--objective must name two of {', '.join(known)}, got {got}")
    return names


def limits_of(text: str | None, typed: Sequence[str]) -> list[int | None]:
    """The numbers of samples: those of --limits, rising, or else the one that was `typed` as limit=N."""
    if text is None:
        if not typed or typed == ["null"]:
            return [None]
        if len(typed) > 1 or not typed[0].isdecimal() or typed[0] == "0":
            raise ConfigError(f"limit must be one number of samples here, got {', '.join(typed)}; see --limits")
        return [int(typed[0])]
    words = text.split(",")
    numbers = [int(word) for word in words if word.strip().isdecimal()]
    if len(numbers) != len(words) or numbers != sorted({*numbers} - {0}):
        raise ConfigError(f"--limits must be rising numbers of samples, as in 50,200,500; got {text!r}")
    return [*numbers]
