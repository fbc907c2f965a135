"""What a search may choose from: the values of sweep strings, and intervals.

A key takes part where it exists. With several routers in a space, `router.tau_span` is chosen only for those that have
it, and so is a setting that was given one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import floor, log10, prod
from typing import TYPE_CHECKING, Any

from s2d2cli.config import STRATEGY_GROUPS, compose, hydra_session, is_whole, keys_under
from s2d2cli.errors import ConfigError
from s2d2cli.overrides import Spread, Words, is_group, options, parse, spread, unknown_option
from s2d2cli.runs.grid import SweepFile, fitting, texts_of

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

MOST_COMBINATIONS = 500  # of group choices that are looked at to find out which keys exist
PARTS = 4  # decimal digits of an interval's width that a chosen number keeps
Record = Mapping[str, Any]


class Outside(Exception):
    """A recorded run has a value that its space does not hold."""


@dataclass(frozen=True)
class Range:
    """A key and what it may be; `name` tells it from the same key of another grid."""

    name: str
    spread: Spread
    group: bool  # whether it chooses an option, on which depends what other keys there are
    whole: bool = False
    values: tuple[Any, ...] = ()  # what the words mean, to know them again in a record

    @property
    def fixed(self) -> bool:
        return len(self.spread.words) == 1

    def __str__(self) -> str:
        one = self.spread
        if one.words:
            return f"{one.key}={','.join(word.partition('=')[2] for word in one.words)}"
        step = f" by {one.step:g}" if one.step else " by orders of magnitude" if one.log else ""
        return f"{one.key}={one.low:g}..{one.high:g}{step}"

    def choose(self, trial: BaseTrial | None) -> str:
        """The override that the trial gets; a fixed one asks none."""
        one = self.spread
        if self.fixed:
            return one.words[0]
        assert trial is not None, "there is something to choose"
        if one.words:
            return str(trial.suggest_categorical(self.name, one.words))
        if self.whole:
            step = int(one.step or 1)
            return f"{one.key}={trial.suggest_int(self.name, int(one.low), int(one.high), step=step, log=one.log)}"
        number = trial.suggest_float(self.name, one.low, one.high, step=one.step, log=one.log)
        return f"{one.key}={short(number, one)}"

    def found(self, recorded: Any) -> Any:
        """The parameter that stands for a recorded value."""
        one = self.spread
        if one.words:
            if recorded not in self.values:
                raise Outside(one.key)
            return one.words[self.values.index(recorded)]
        if not isinstance(recorded, (int, float)) or not one.low <= recorded <= one.high:
            raise Outside(one.key)
        steps = (recorded - one.low) / one.step if one.step else 0.0
        if abs(steps - round(steps)) > 1e-6:
            raise Outside(one.key)
        return recorded

    @property
    def size(self) -> float:
        one = self.spread
        step = one.step or (1 if self.whole else None)
        return len(one.words) or (float("inf") if step is None else round((one.high - one.low) / step) + 1)


def short(number: float, one: Spread) -> str:
    """Few digits, because people type these numbers again: a ten-thousandth of the interval makes no difference."""
    size = number if one.log else one.high - one.low
    rounded = float(f"{number:.12g}") if one.step else round(number, PARTS - floor(log10(abs(size))))
    inside = min(max(rounded, one.low), one.high)
    return str(int(inside)) if inside.is_integer() else repr(inside)


@dataclass(frozen=True)
class Space:
    """The ranges of one grid, the group choices first."""

    ranges: tuple[Range, ...]
    known: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict, compare=False)

    def choose(self, trial: BaseTrial | None) -> list[str]:
        """The overrides of a trial; a space of one point needs none."""
        choices = [one.choose(trial) for one in self.ranges if one.group]
        keys = self.keys(choices)
        return choices + [one.choose(trial) for one in self.ranges if not one.group and one.spread.key in keys]

    def keys(self, choices: Sequence[str]) -> frozenset[str]:
        chosen = tuple(choices)
        if chosen not in self.known:
            self.known[chosen] = frozenset(keys_under(chosen))
        return self.known[chosen]

    def params(self, settings: Record) -> dict[str, Any]:
        """The parameters that would give these recorded settings (dotted keys); Outside when none do."""
        there = {one.name: recorded(one, settings) for one in self.ranges if not one.fixed}
        return {one.name: one.found(there[one.name]) for one in self.ranges if there.get(one.name) is not None}

    @property
    def size(self) -> float:
        """How many combinations there are, counted as if every key existed in each."""
        return prod(one.size for one in self.ranges)


def recorded(one: Range, settings: Record) -> Any:
    key = one.spread.key
    if not one.group:
        return settings.get(key)
    return settings.get(f"{key}.kind" if key in (*STRATEGY_GROUPS,) else "model.name" if key == "model" else key)


def spaces_of(grids: Sequence[Sequence[str]], texts: Mapping[str, str]) -> list[Space]:
    """A space for each list of overrides; a key that exists nowhere in its space is refused as compose refuses it."""
    return [space_of(words, f"{number}." if len(grids) > 1 else "", texts) for number, words in enumerate(grids, 1)]


def space_of(words: Sequence[str], prefix: str, texts: Mapping[str, str]) -> Space:
    with hydra_session():
        spreads = [spread(word) for word in words]
        groups = [one for one in spreads if is_group(one.key)]
        values = {word: parse(word).value() for one in spreads for word in one.words}
        for one in groups:
            for word in one.words:
                if values[word] not in options(one.key):
                    raise unknown_option(f"{one.key}/{values[word]}")
    ranges = [range_of(one, prefix, True, values) for one in groups]
    combinations = list(islice(product(*(one.words for one in groups)), MOST_COMBINATIONS))
    for one in spreads:
        if one not in groups:
            where = next((c for c in combinations if one.key in keys_under(c)), None)
            if where is None:
                refuse(one, combinations, texts)
            ranges.append(range_of(one, prefix, False, values, where))
    return Space(tuple(ranges))


def range_of(
    one: Spread, prefix: str, group: bool, values: Mapping[str, Any], where: Sequence[str] | None = None
) -> Range:
    whole = not one.words and where is not None and is_whole(one.key, where)
    if whole and not (one.low.is_integer() and one.high.is_integer() and float(one.step or 1).is_integer()):
        raise ConfigError(f"{one.key} takes whole numbers, and its range has others: {one.low:g} to {one.high:g}")
    return Range(f"{prefix}{one.key}", one, group, whole, tuple(values[word] for word in one.words))


def refuse(one: Spread, combinations: Iterable[Sequence[str]], texts: Mapping[str, str]) -> None:
    """A key that exists nowhere: say what compose says of it."""
    word = one.words[0] if one.words else f"{one.key}={one.low:g}"
    for choices in combinations:
        compose([*choices, word], texts)
    raise ConfigError(f"no setting {one.key!r} in this space")


def grids_of(typed: Sequence[str], file: SweepFile | None) -> list[list[str]]:
    """Per grid of a sweep file the overrides that hold in it, typed ones included; the typed ones alone without a
    file."""
    with hydra_session():
        words = by_key(typed)
        if file is None:
            return [[word for (word,) in words.values()]]
        if file.include or file.seeds or any(grid.zips or grid.exclude for grid in file.grids):
            raise ConfigError(f"a search takes `overrides` and grids, and {file.name} has zip, exclude or the like")
        common, grids = by_key(file.overrides), [by_key(texts_of(grid.axes)) for grid in file.grids]
    local = {key for grid in grids for key in grid}
    return [[word for (word,) in (common | grid | fitting(words, grid, local)).values()] for grid in grids]


def by_key(overrides: Iterable[str]) -> Words:
    return {parse(word).get_key_element(): [word] for word in overrides}
