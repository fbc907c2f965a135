"""Where strategies come from: our own modules, installed packages (entry-point group `s2d2.plugins`), and files.

Importing any of them registers its classes. A plugin is code of the user's own choice and runs with all rights.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
import traceback
from collections.abc import Container, Iterable
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from s2d2cli.errors import ConfigError, S2D2Error

OWN_MODULES = ("s2d2cli.decode", "s2d2cli.tasks")
ENTRY_POINTS = "s2d2.plugins"


@dataclass(frozen=True)
class Plugin:
    """Code from outside, precisely enough to tell two versions apart."""

    origin: str  # a path, or an entry point with its package's version
    sha256: str | None  # of the file; None for a package


LOADED: dict[str, Plugin] = {}  # by the name of the module
OWNERS: dict[tuple[str, str], str] = {}  # of each option, the module it comes from
NEEDED = {  # the groups of strategies, and what a class of each must have
    "unmask": ("select",),
    "router": ("start", "decide", "observe", "keep", "enter"),
    "estimator": ("accept_prob",),
    "verifier": ("verify", "drafter", "positions", "grid", "scratch"),
    "task": ("prepare", "samples", "score", "version"),
}


def admit(group: str, name: str, cls: type) -> None:
    """Refuse a class that could not be chosen or used as `group=name`."""
    if group not in NEEDED:
        raise ConfigError(f"the group of @register must be one of {', '.join(NEEDED)}, got {group!r}")
    if not is_dataclass(cls):
        raise ConfigError(f"{cls.__name__} must be a dataclass: put @dataclass under @register({group!r}, {name!r})")
    missing = [needed for needed in NEEDED[group] if not hasattr(cls, needed)]
    if missing:
        raise ConfigError(f"a {group} must have {', '.join(NEEDED[group])}; {cls.__name__} lacks {', '.join(missing)}")
    owner = OWNERS.setdefault((group, name), cls.__module__)
    if owner != cls.__module__:
        raise ConfigError(f"{group}={name} is taken by {owner}; register {cls.__name__} under another name")


@cache
def load_installed() -> None:
    """Our own strategies, then those of installed packages."""
    for module in OWN_MODULES:
        import_module(module)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown package"
        name = f"{point.name} = {point.value} ({package})"
        try:
            point.load()
        except Exception as error:
            raise ConfigError(
                f"the installed plugin {name} cannot be loaded: {type(error).__name__}: {error}; mend or uninstall it"
            ) from error
        LOADED[point.value.partition(":")[0]] = Plugin(name, None)


def load(files: Iterable[Path]) -> None:
    """Run each file once; its `@register(...)` classes can be chosen from then on."""
    load_installed()
    for file in files:
        path = file.expanduser().resolve()
        try:
            source = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the plugin {str(file)!r}: {error.strerror}") from error
        plugin = Plugin(str(path), hashlib.sha256(source).hexdigest())
        name = module_name(path)
        if LOADED.get(name) != plugin:
            run(name, path, source)
            LOADED[name] = plugin


def module_name(path: Path) -> str:
    """Its own for each path: two files of the same name stay apart."""
    return f"s2d2_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def run(name: str, path: Path, source: bytes) -> None:
    """The file as a module. Compiled from the very bytes that were hashed, without a bytecode cache."""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        reason = str(error) if isinstance(error, S2D2Error) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"the plugin {path}, line {line_of(error, path)}: {reason}") from error


def line_of(error: BaseException, path: Path) -> int:
    """Where in the file it went wrong: the innermost line of it on the stack, or where its syntax breaks off."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    lines = lines_in(error, {str(path)})
    return lines[-1][1] if lines else 1


def lines_in(error: BaseException, files: Container[str]) -> list[tuple[str, int]]:
    """Each line of these files on the error's stack, the innermost one last."""
    frames = traceback.extract_tb(error.__traceback__)
    return [(frame.filename, frame.lineno or 1) for frame in frames if frame.filename in files]


def told(error: BaseException) -> str:
    """The error in a line, with the place in the file of a plugin that it came through."""
    places = lines_in(error, {plugin.origin for plugin in LOADED.values() if plugin.sha256})
    where = "the plugin {}, line {}: ".format(*places[-1]) if places else ""
    return f"{where}{type(error).__name__}: {error}"


def mark(cls: type) -> dict[str, str]:
    """What a record says besides about a strategy from a file: its hash, so that an edited file makes another run."""
    plugin = LOADED.get(cls.__module__)
    return {"plugin_sha256": plugin.sha256} if plugin and plugin.sha256 else {}
