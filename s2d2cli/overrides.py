"""Hydra's override grammar: what an override says, what a sweep string holds, and in one sentence what is wrong.

Beside config.py this is the only file that knows Hydra. Nothing here knows what the settings mean.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from s2d2cli.errors import ConfigError

HYDRA_ERRORS = (HydraException, OmegaConfBaseException)
Words = dict[str, list[str]]  # key -> the overrides that give it each of its values


def parse(override: str) -> Override:
    """One override, read by Hydra's own parser; deletions and additions are refused, as is all of `hydra.*`."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None, "parse needs a hydra_session"
    try:
        parsed = OverridesParser.create(config_loader=hydra.config_loader).parse_overrides([override])[0]
    except OverrideParseException as error:
        raise ConfigError(unreadable(override)) from error
    key = parsed.key_or_group
    if parsed.is_delete():
        raise ConfigError(f"{override!r} would delete a setting, and each is needed; choose a value instead: {key}=...")
    if parsed.is_add() or parsed.is_force_add():
        raise ConfigError(f"{override!r} would add a setting, and nothing reads it; leave out '+' to set {key}")
    if key.split("/")[0].split(".")[0] == "hydra":
        raise ConfigError(f"{override!r} sets up Hydra itself, which s2d2 does not use; leave it out")
    return parsed


def unreadable(override: str) -> str:
    """What to type instead: the same value in quotes, ready to be pasted into a shell."""
    key, equals, value = override.partition("=")
    if not equals or not key:
        return f"cannot read the override {override!r}: write key=value"
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", re.sub(r"(\\*)$", r"\1\1", value, count=1))
    pasted = f"{key}='{escaped}'".replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'cannot read the override {override!r}: a value with special characters stands in quotes, "{pasted}"'


def options(group: str) -> list[str]:
    """The names that `group=` takes; none when there is no such group."""
    hydra = GlobalHydra.instance().hydra
    return sorted(hydra.config_loader.get_group_options(group)) if hydra else []


def single(overrides: Iterable[str]) -> tuple[list[str], list[tuple[str, Any]]]:
    """Group choices as they are, and the other keys with their values; sweep strings have their own command."""
    choices, values = [], []
    for override in overrides:
        parsed = parse(override)
        key, value = parsed.get_key_element(), None if parsed.is_sweep_override() else parsed.value()
        if parsed.is_sweep_override():
            raise ConfigError(
                f"{override!r} holds several values, and this command takes one; use `s2d2 sweep {override}` to try "
                f"each, {key}=[...] for a list, or quotes for a text with commas"
            )
        if not is_group(key):
            values.append((key, value))
        elif isinstance(value, str):
            choices.append(override)
        else:
            raise ConfigError(f"{override!r}: {key} takes one of {', '.join(options(key))}")
    return choices, values


def is_group(key: str) -> bool:
    """Whether `key=` chooses an option rather than sets a value; `group@part=` chooses one for another part."""
    return key.partition("@")[0] in groups()


@cache
def groups() -> frozenset[str]:
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None, "groups needs a hydra_session"
    return frozenset(hydra.config_loader.list_groups(""))


def axes(overrides: Iterable[str]) -> Words:
    """Each key with its values, one override per value; a key given again replaces the earlier one."""
    words: Words = {}
    for override in overrides:
        parsed = parse(override)
        key = parsed.get_key_element()
        words.pop(key, None)
        if not parsed.is_sweep_override():
            words[key] = [parsed.input_line or override]
            continue
        if not parsed.is_discrete_sweep():
            raise ConfigError(
                f"{override!r} is a continuous range, and a grid needs single values: give them or "
                f"range(start,stop,step), or let `s2d2 search` choose from the range"
            )
        if getattr(parsed.value(), "shuffle", False):
            raise ConfigError(f"{override!r} would draw another order each time; give the values in the order you want")
        words[key] = [f"{key}={rounded(value)}" for value in parsed.sweep_string_iterator()]
    return words


def product(words: Mapping[str, Sequence[str]], zips: Sequence[Sequence[tuple[str, ...]]] = ()) -> Iterator[list[str]]:
    """Every combination, the last key varying fastest, as a reader would write them down; `zips` are rows of words that
    come together."""
    columns = [*([(word,) for word in values] for values in words.values()), *zips]
    return ([word for part in parts for word in part] for parts in itertools.product(*columns))


def rounded(value: str) -> str:
    """range(0.1,0.35,0.1) yields 0.30000000000000004; a name of a point must not."""
    try:
        number = float(value)
    except ValueError:
        return value
    return value if number == tidy(number) or not math.isfinite(number) else str(tidy(number))


def tidy(number: float) -> float:
    """Twelve digits: more are the dust of arithmetic."""
    return float(f"{number:.12g}")


def explain(error: Exception, known: Sequence[str], chosen: Mapping[str, str]) -> ConfigError:
    """What Hydra or OmegaConf meant, in one sentence; `known` are dotted keys, `chosen` is each group's option."""
    reason = error.__cause__ or error
    file = re.match(r"In '([^']+)': \w+ raised while composing", str(error))
    if file and error.__context__:  # a configuration file of the user's, and not a word on the command line
        return ConfigError(f"in {file[1]}.yaml: {first_line(error.__context__)}")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return unknown_option(str(error.missing_cfg_file))
    if isinstance(reason, (ConfigAttributeError, ConfigKeyError)):
        return unknown_key(str(reason.full_key), known, chosen)
    if isinstance(reason, InterpolationResolutionError):
        return ConfigError(f"{reason.full_key} refers to something that is not there: {first_line(reason)}")
    if isinstance(reason, MissingMandatoryValue):
        return ConfigError(f"{reason.full_key} must be given: {reason.full_key}=...")
    if isinstance(reason, OmegaConfBaseException) and reason.full_key:
        return ConfigError(f"{reason.full_key} cannot take this value: {first_line(reason)}")
    return ConfigError(first_line(error))


def unknown_option(path: str) -> ConfigError:
    group, _, name = path.rpartition("/")
    names = options(group)
    listed = f" among {', '.join(names)}" if names else ""
    return ConfigError(f"no {group} {name!r}{listed}{did_you_mean(name, names)}")


def unknown_key(key: str, known: Sequence[str], chosen: Mapping[str, str]) -> ConfigError:
    """Say where the key lives when it does exist under another option, else the nearest one."""
    group, _, name = key.partition(".")
    owners = options_with_field(group, name)
    if owners:
        return ConfigError(
            f"{key} is a setting of {' and '.join(f'{group}={owner}' for owner in owners)}, "
            f"but {group} is {chosen.get(group, 'another')} here"
        )
    option = f" ({chosen[group]})" if group in chosen else ""
    where = f"no {name!r} in {group}{option}" if name else f"no setting {key!r}"
    return ConfigError(f"{where}{did_you_mean(key, known)}")


def options_with_field(group: str, name: str) -> list[str]:
    """The registered options of a group whose dataclass has this field."""
    repo = ConfigStore.instance().repo.get(group, {})
    nodes = {file.removesuffix(".yaml"): OmegaConf.get_type(entry.node) for file, entry in repo.items()} if repo else {}
    return sorted(option for option, cls in nodes.items() if cls and name in {f.name for f in fields(cls)})


def did_you_mean(word: str, candidates: Sequence[str]) -> str:
    """`; did you mean 'x'?`, also when only the last part of a dotted key was typed; nothing when nothing is near."""
    tails = {candidate.rpartition(".")[2]: candidate for candidate in candidates}
    if word in tails:
        return f"; did you mean {tails[word]!r}?"
    near = difflib.get_close_matches(word, candidates, n=1) or difflib.get_close_matches(word, tails, n=1)
    return f"; did you mean {tails.get(near[0], near[0])!r}?" if near else ""


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def dotted_keys(node: Any, prefix: str = "") -> list[str]:
    """Every key of a composed tree, dotted, branches included."""
    keys = []
    for key in node:
        path = f"{prefix}{key}"
        child = None if OmegaConf.is_missing(node, key) else node[key]
        keys += [path, *(dotted_keys(child, f"{path}.") if OmegaConf.is_dict(child) else [])]
    return keys


def leaves(plain: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree of dicts and lists with its dotted key; an item of a list goes by the list's."""
    if isinstance(plain, dict):
        for name, child in plain.items():
            yield from leaves(child, f"{key}.{name}" if key else str(name))
    elif isinstance(plain, (list, tuple)):
        for child in plain:
            yield from leaves(child, key)
    else:
        yield key, plain


@dataclass(frozen=True)
class Spread:
    """What a search may choose for a key: one of some words, or a number from `low` to `high`."""

    key: str
    words: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    step: float | None = None  # None: any number between them
    log: bool = False


def spread(override: str) -> Spread:
    """The values of an override as something to choose from. A range keeps the order of its numbers; `interval(a,b)` is
    every number between, `tag(log,interval(a,b))` by orders of magnitude."""
    parsed = parse(override)
    key, value = parsed.get_key_element(), parsed.value() if parsed.is_sweep_override() else None
    if isinstance(value, IntervalSweep):
        low, high, log = float(value.start or 0), float(value.end or 0), "log" in value.tags
        if not low < high or (log and low <= 0):
            need = "0 < low < high" if log else "low < high"
            raise ConfigError(f"an interval must have {need}, got {override!r}")
        return Spread(key, low=low, high=high, log=log)
    words = tuple(dict.fromkeys(axes([override])[key]))
    if isinstance(value, RangeSweep) and len(words) > 1:
        numbers = sorted(float(word.partition("=")[2]) for word in words)
        return Spread(key, low=numbers[0], high=numbers[-1], step=tidy(numbers[1] - numbers[0]))
    return Spread(key, words)
