"""From the record of a run back to its configuration, so that it can be scored or run again from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from s2d2cli import plugins
from s2d2cli.config import STRATEGY_GROUPS, DecodeConfig, ModelConfig, RunConfig, record, strategy, validate
from s2d2cli.errors import ConfigError

T = TypeVar("T")
ADDED = ("kind", "version", "plugin_sha256")  # what `config.record` says of a strategy besides its settings


def restore(recorded: Mapping[str, Any]) -> RunConfig:
    """The settings of the run whose run.json this is; the plugins that it used are loaded first, unchanged ones only.

    Raises ConfigError when this version of s2d2 lacks something that the record names.
    """
    plugins.load_installed()
    load_files(recorded.get("plugins", []))
    plain = dict(recorded["config"])
    parts: dict[str, Any] = {"model": made(ModelConfig, "model", plain.pop("model"))}
    draft = plain.pop("draft_model", None)  # records of before have none
    parts["draft_model"] = draft and made(ModelConfig, "draft_model", draft)
    parts["decode"] = made(DecodeConfig, "decode", plain.pop("decode"))
    for group in STRATEGY_GROUPS:
        settings = plain.pop(group)
        given = {key: value for key, value in settings.items() if key not in ADDED}
        parts[group] = made(strategy(group, settings["kind"]), group, given)
    config = made(RunConfig, "the run", plain | parts)
    validate(config)
    return config


def read(path: Path) -> RunConfig:
    """The settings in a run's folder, or in a YAML file: a run's config.yaml, or what --print-config printed."""
    if path.is_dir():
        path = path / "run.json"
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise ConfigError(f"--config must be a run's folder or a YAML file of one; {str(path)!r}: {reason}") from error
    whole = content if path.suffix == ".json" else {"config": content}
    try:
        config = restore(whole)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{str(path)!r} must hold all settings of one run, as --print-config prints them; "
            f"something is missing or of another form ({type(error).__name__}: {error})"
        ) from error
    same_code(whole["config"], record(config), path)
    return config


def same_code(then: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """The settings say nothing about the code behind them: a plugin's file and a task's protocol must be unchanged."""
    marks = [(group, "plugin_sha256") for group in STRATEGY_GROUPS] + [("task", "version")]
    for group, mark in marks:
        before, here = then[group].get(mark), now[group].get(mark)
        if before != here:
            raise ConfigError(
                f"{group}={then[group]['kind']} has {mark} {before} in {str(path)!r} and {here} here, so this would be "
                f"another run; use the version that made it, or change that line"
            )


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
