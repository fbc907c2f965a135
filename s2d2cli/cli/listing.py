"""`s2d2 list`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2d2cli.cli.screen import screen
from s2d2cli.cli.words import ConfigDirs, Plugins, use_folders
from s2d2cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from s2d2cli.catalog import Choice

KINDS = {  # what is asked for -> the group it is chosen from; the last two are no groups
    "models": "model",
    "decoders": "decoder",
    "presets": "experiment",
    "routers": "router",
    "estimators": "estimator",
    "unmask": "unmask",
    "verifiers": "verifier",
    "tasks": "task",
    "sweeps": "",
    "datasets": "",
}


def list_(
    kind: Annotated[str, typer.Argument(metavar="|".join(KINDS), help="What to list.", show_default=False)],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show this one with its settings.", show_default=False)
    ] = None,
    plugins: Plugins = None,
    config_dir: ConfigDirs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all settings.")] = False,
) -> None:
    """List what can be chosen, a line each; with a name, its settings and their defaults."""
    use_folders(config_dir)
    found = chosen(entries(kind, plugins or []), kind, name)
    if as_json:
        import json

        typer.echo(json.dumps([asdict(choice) for choice in found], indent=1, ensure_ascii=False))
    elif name is None:
        for choice in found:
            typer.echo(f"{choice.name:{max(len(one.name) for one in found)}}  {choice.about}")
    else:
        show(found[0], KINDS[kind])


def entries(kind: str, plugins: Sequence[Path]) -> list[Choice]:
    """Everything of this kind; what configuration files set stands in them."""
    from s2d2cli.catalog import Choice, choices, comment
    from s2d2cli.folders import files

    if kind not in KINDS:
        from s2d2cli.overrides import did_you_mean

        raise ConfigError(f"there is no list of {kind!r}, only of {', '.join(KINDS)}{did_you_mean(kind, list(KINDS))}")
    if kind == "datasets":
        return datasets()
    if kind == "sweeps":
        found = [Choice(name, comment(file), str(file)) for name, file in files("sweeps").items()]
    else:
        found = choices(KINDS[kind], tuple(plugins))
    return [replace(choice, settings=choice.settings or set_by(choice.origin)) for choice in found]


def set_by(origin: str) -> list[Any]:
    """What a YAML file sets."""
    import yaml

    from s2d2cli.catalog import Setting

    if not origin.endswith(".yaml"):
        return []
    content = yaml.safe_load(Path(origin).read_text(encoding="utf-8")) or {}
    return [Setting(key, value, type(value).__name__) for key, value in content.items()]


def datasets() -> list[Choice]:
    """What the tasks read unless told otherwise, and the published files that are known by their digest."""
    from s2d2cli.catalog import Choice, choices
    from s2d2cli.tasks.data import KNOWN_SHA256

    tasks: dict[str, list[str]] = {}
    for task in choices("task"):
        data = next((s.default for s in task.settings if s.name == "data"), "")
        tasks.setdefault(data, []).append(task.name)
    found = []
    for data, names in sorted(tasks.items()):
        place = "ships with s2d2" if data.startswith("package:") else "from the Hugging Face hub"
        found += [Choice(data, f"{place}; read by task={', '.join(names)}", place)] if data else []
    published = "the published file, checked by its sha256 when given as task.data=FOLDER/NAME"
    return [*found, *(Choice(name, published, digest) for name, digest in KNOWN_SHA256.items())]


def chosen(found: list[Choice], kind: str, name: str | None) -> list[Choice]:
    if name is None:
        return found
    names = [choice.name for choice in found]
    if name not in names:
        from s2d2cli.overrides import did_you_mean

        raise ConfigError(f"no {name!r} among the {kind} {', '.join(names)}{did_you_mean(name, names)}")
    return [found[names.index(name)]]


def show(choice: Choice, group: str) -> None:
    """One of them: how to choose it, what it is, where it comes from, and its settings."""
    typer.echo(f"{group}={choice.name}" if group else choice.name)
    typer.echo(choice.about)
    typer.echo(f"from {choice.origin}")
    if choice.origin.endswith(".yaml"):
        typer.echo(Path(choice.origin).read_text(encoding="utf-8"), nl=False)
    elif choice.settings:
        screen().print(settings_table(choice, group))


def settings_table(choice: Choice, group: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    for setting in choice.settings:
        default = "null" if setting.default is None else str(setting.default)
        words = (f"{group}.{setting.name}", default, setting.kind, setting.about)
        table.add_row(*map(Text, words))  # as it is: brackets in it are no markup
    return table
