"""What can be chosen and set, read from the source without running it: listing and completion must not import torch.

A registered class is found by its decorator, its settings by their annotations, what they are for by the docstring and
by the comment behind each. A test compares all of it with the classes themselves.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from s2d2cli.folders import files
from s2d2cli.plugins import ENTRY_POINTS, NEEDED

HERE = Path(__file__).resolve().parent
STRATEGIES = tuple(NEEDED)
GROUPS = ("model", "decoder", "experiment", *STRATEGIES)  # what can be chosen as group=name


@dataclass(frozen=True)
class Setting:
    """A field of a settings class."""

    name: str
    default: Any
    kind: str  # its annotation
    about: str = ""


@dataclass
class Choice:
    """Something that can be chosen by name."""

    name: str
    about: str
    origin: str
    settings: list[Setting] = field(default_factory=list)


@dataclass(frozen=True)
class Class:
    """A class in a source file, with what can be said of it from there."""

    node: ast.ClassDef
    file: Path
    lines: tuple[str, ...]


def choices(group: str, plugins: Sequence[Path] = ()) -> list[Choice]:
    """What `group=` takes, sorted by name: registered classes and configuration files; a file hides a class."""
    found = {choice.name: choice for choice in registered(tuple(plugins)).get(group, [])}
    found |= {name: Choice(name, comment(file), str(file)) for name, file in files(group).items()}
    return [found[name] for name in sorted(found)]


@cache
def registered(plugins: tuple[Path, ...]) -> dict[str, list[Choice]]:
    """The classes under `@register(group, name)` of our own modules, of installed packages and of these files."""
    own = [file for part in ("decode", "tasks") for file in sorted((HERE / part).glob("*.py"))]
    classes = {name: cls for file in [*own, *installed(), *plugins] for name, cls in classes_of(file).items()}
    found: dict[str, list[Choice]] = {}
    for cls in classes.values():
        for group, name in registrations(cls.node):
            settings = settings_of(cls, classes)
            found.setdefault(group, []).append(Choice(name, sentence(cls.node), str(cls.file), settings))
    return found


def installed() -> Iterator[Path]:
    """The files of plugins that are installed as packages."""
    for point in entry_points(group=ENTRY_POINTS):
        try:
            spec = find_spec(point.value.partition(":")[0])
        except (ImportError, ValueError):  # the commands that load it say what is wrong with it
            continue
        if spec and spec.origin:
            yield Path(spec.origin)


def classes_of(file: Path) -> dict[str, Class]:
    try:
        text = file.expanduser().read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):  # as above
        return {}
    lines = tuple(text.splitlines())
    return {node.name: Class(node, file, lines) for node in tree.body if isinstance(node, ast.ClassDef)}


def registrations(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "register":
            group, name = (argument.value for argument in call.args if isinstance(argument, ast.Constant))
            yield str(group), str(name)


def settings_of(cls: Class, classes: dict[str, Class]) -> list[Setting]:
    """Its fields, those of its base classes first, as a dataclass orders them."""
    found: dict[str, Setting] = {}
    for base in reversed(cls.node.bases):
        if isinstance(base, ast.Name) and base.id in classes:
            found |= {setting.name: setting for setting in settings_of(classes[base.id], classes)}
    for line in cls.node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            kind = ast.unparse(line.annotation)
            if not kind.startswith("ClassVar"):
                name = line.target.id
                found[name] = Setting(name, value_of(line.value), kind, behind(cls.lines[(line.end_lineno or 1) - 1]))
    return list(found.values())


def value_of(node: ast.expr) -> Any:
    """The default; an empty list for what a factory makes, and None for what must be given."""
    if isinstance(node, ast.Call):
        return []
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def behind(line: str) -> str:
    """The comment at the end of a line of code."""
    return line.rpartition("  # ")[2] if "  # " in line else ""


def sentence(node: ast.ClassDef) -> str:
    """The first sentence of its docstring."""
    return first_sentence((ast.get_docstring(node) or "").split("\n\n")[0])


def comment(file: Path) -> str:
    """The first sentence of the comment at the top of a YAML file."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            lines.append(line.lstrip("# "))
    return first_sentence("\n".join(lines))


def first_sentence(text: str) -> str:
    words = " ".join(text.split())
    end = re.search(r"(?<! al)\. ", words)  # "et al. 2026" goes on
    return words[: end.start() + 1] if end else words


@cache
def tree() -> dict[str, list[Setting]]:
    """The settings that are no strategy's: "" (the run), "model" and "decode"."""
    classes = classes_of(HERE / "config.py")
    names = {"": "RunConfig", "model": "ModelConfig", "decode": "DecodeConfig"}
    return {part: settings_of(classes[name], classes) for part, name in names.items()}


def keys(chosen: dict[str, str], plugins: Iterable[Path] = ()) -> list[str]:
    """Every dotted key; of a strategy those of the option in `chosen`, or of all options where none is."""
    found = [*GROUPS, *(s.name for s in tree()[""] if s.name not in ("decode", *GROUPS))]
    found += [f"{part}.{s.name}" for part in ("model", "decode") for s in tree()[part]]
    for group in STRATEGIES:
        options = choices(group, tuple(plugins))
        picked = [choice for choice in options if choice.name == chosen.get(group)] or options
        found += [f"{group}.{s.name}" for choice in picked for s in choice.settings]
    return list(dict.fromkeys(found))


def kinds(plugins: tuple[Path, ...] = ()) -> dict[str, str]:
    """The type of each dotted key, of all options of a group."""
    found = {f"{part}.{s.name}".lstrip("."): s.kind for part, settings in tree().items() for s in settings}
    for group in STRATEGIES:
        found |= {f"{group}.{s.name}": s.kind for choice in choices(group, plugins) for s in choice.settings}
    return found
