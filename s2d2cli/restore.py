"""From the record of a run back to its configuration, so that it can be scored or run again from nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from s2d2cli import plugins
from s2d2cli.config import STRATEGY_GROUPS, DecodeConfig, ModelConfig, RunConfig, strategy, validate
from s2d2cli.errors import ConfigError

T = TypeVar("T")
ADDED = ("kind", "version", "plugin_sha256")  # what `config.record` says of a strategy besides its settings


def restore(record: Mapping[str, Any]) -> RunConfig:
    """The settings of the run whose run.json this is; the plugins that it used are loaded first, unchanged ones only.

    Raises ConfigError when this version of s2d2 lacks something that the record names.
    """
    plugins.load_installed()
    load_files(record.get("plugins", []))
    plain = dict(record["config"])
    parts: dict[str, Any] = {"model": made(ModelConfig, "model", plain.pop("model"))}
    parts["decode"] = made(DecodeConfig, "decode", plain.pop("decode"))
    for group in STRATEGY_GROUPS:
        settings = plain.pop(group)
        given = {key: value for key, value in settings.items() if key not in ADDED}
        parts[group] = made(strategy(group, settings["kind"]), group, given)
    config = made(RunConfig, "the run", plain | parts)
    validate(config)
    return config


def load_files(used: Sequence[Mapping[str, Any]]) -> None:
    for plugin in used:
        if plugin["sha256"] is None:  # an installed package loads itself
            continue
        plugins.load([Path(plugin["origin"])])
        if not any(found.sha256 == plugin["sha256"] for found in plugins.LOADED.values()):
            raise ConfigError(
                f"the plugin {plugin['origin']} must be the file that the run used, and it was changed since; "
                f"bring that version back"
            )


def made(cls: type[T], name: str, settings: Mapping[str, Any]) -> T:
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    strange = sorted(settings.keys() - known)
    if strange:
        raise ConfigError(
            f"the record has settings of {name} that this version of s2d2 does not know: {', '.join(strange)}; "
            f"use the version that made it"
        )
    return cls(**settings)
