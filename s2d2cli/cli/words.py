"""What the words of a command line mean: everyday options, key=value overrides, prompts.

Options are short forms of overrides; one that says otherwise than an override is refused. Prompts and paths never meet
Hydra's grammar. Nothing heavy is imported here at the top: `s2d2 --help` must stay fast.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from s2d2cli.choose import model_choice
from s2d2cli.errors import ConfigError
from s2d2cli.values import VALUES

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, anywhere on the line: router=min_span router.tau_span=4."),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugins", metavar="FILE", help="Python file whose @register classes can be chosen; may be given again."
    ),
]

ConfigDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-dir",
        "-C",
        metavar="FOLDER",
        help="Folder with model/, decoder/, experiment/, sweeps/, ... of your own: files there add to ours and hide "
        "ours of the same name. May be given again; so does S2D2_CONFIG_DIR.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE|RUN",
        help="Begin with the settings of a run: what --print-config printed, a run's config.yaml, or its folder.",
        show_default=False,
    ),
]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the resolved settings and leave.")]


def option(key: str, metavar: str, text: str, *names: str) -> Any:
    """An everyday option; `key` is the setting that it is short for."""
    return typer.Option(*names, metavar=metavar, help=f"{text} [{key}]", show_default=False)


@dataclass
class Everyday:
    """The options that every decoding command has. All are text: a sweep gives several values, `-b 4,8,16`."""

    model: Annotated[
        str | None, option("model", "NAME|FOLDER|HUB-ID", "Model to decode with, tiny by default.", "--model", "-m")
    ] = None
    decoder: Annotated[str | None, option("decoder", "NAME", "Decoder preset, s2d2 by default.", "--decoder")] = None
    router: Annotated[str | None, option("router", "NAME", "When to verify.", "--router")] = None
    task: Annotated[str | None, option("task", "NAME", "Benchmark, tiny_math by default.", "--task", "-t")] = None
    block_length: Annotated[
        str | None, option("decode.block_length", "N", "Tokens of a block.", "--block-length", "-b")
    ] = None
    denoising_steps: Annotated[
        str | None, option("decode.denoising_steps", "N", "Steps per block at most.", "--denoising-steps")
    ] = None
    max_new_tokens: Annotated[
        str | None, option("decode.max_new_tokens", "N", "Longest answer.", "--max-new-tokens", "-n")
    ] = None
    temperature: Annotated[
        str | None, option("decode.temperature", "X", "0 is greedy, the default.", "--temperature")
    ] = None
    top_k: Annotated[str | None, option("decode.top_k", "N", "0 is off.", "--top-k")] = None
    top_p: Annotated[str | None, option("decode.top_p", "X", "1 is off.", "--top-p")] = None
    seed: Annotated[str | None, option("seed", "N", "Seed of every random draw.", "--seed")] = None
    limit: Annotated[str | None, option("limit", "N", "Only the first N samples.", "--limit")] = None
    batch_size: Annotated[str | None, option("batch_size", "N", "Samples decoded at once.", "--batch-size")] = None
    device: Annotated[str | None, option("device", "|".join(VALUES["device"]), "Where to compute.", "--device")] = None
    dtype: Annotated[
        str | None, option("dtype", "|".join(VALUES["dtype"]), "Number format of the weights.", "--dtype")
    ] = None
    results: Annotated[str | None, option("results", "FOLDER", "Where runs are kept.", "--results", "-o")] = None


KEYS = {
    "block_length": "decode.block_length",
    "denoising_steps": "decode.denoising_steps",
    "max_new_tokens": "decode.max_new_tokens",
    "temperature": "decode.temperature",
    "top_k": "decode.top_k",
    "top_p": "decode.top_p",
}


def spelled(cls: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Spell out a parameter annotated with this dataclass for Typer: each of its fields becomes an option."""
    hints = get_type_hints(cls, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    fields_ = [inspect.Parameter(f.name, keyword, annotation=hints[f.name], default=f.default) for f in fields(cls)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        given = inspect.signature(command, eval_str=True).parameters.values()
        (name,) = (p.name for p in given if p.annotation is cls)

        def wrapper(**values: Any) -> None:
            made = cls(**{f.name: values.pop(f.name) for f in fields(cls)})
            command(**{name: made}, **values)

        return posing(wrapper, command, [*(p.replace(kind=keyword) for p in given if p.name != name), *fields_])

    return decorate


def posing(
    wrapper: Callable[..., None], command: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """The wrapper under the command's name, with these parameters, as Typer reads them."""
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the everyday options, --plugins and --config-dir."""
    everyday = spelled(Everyday)(command)
    own = list(inspect.signature(everyday).parameters.values())
    keyword = inspect.Parameter.KEYWORD_ONLY
    own += [
        inspect.Parameter("plugins", keyword, annotation=Plugins, default=None),
        inspect.Parameter("config_dir", keyword, annotation=ConfigDirs, default=None),
    ]

    def wrapper(**values: Any) -> None:
        use_folders(values.pop("config_dir"))
        load_plugins(values.pop("plugins"))
        everyday(**values)

    return posing(wrapper, command, own)


def load_plugins(files: Sequence[Path] | None) -> None:
    """Before anything is composed, so that what they register can be chosen."""
    if files:
        from s2d2cli.plugins import load

        load(files)


def use_folders(folders: Sequence[Path] | None) -> None:
    if folders:
        from s2d2cli.folders import use

        use(folders)


@dataclass
class Settings:
    """Overrides for Hydra's grammar, texts that go round it, and the run whose settings they are laid over."""

    overrides: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    base: Path | None = None

    def compose(self) -> RunConfig:
        """The configuration; a word that has no effect in it is told on stderr."""
        from s2d2cli.config import compose
        from s2d2cli.restore import read

        config = compose(self.overrides, self.texts, read(self.base) if self.base else None)
        self.warn([config])
        return config

    def warn(self, configs: Sequence[RunConfig]) -> None:
        from s2d2cli.effect import warnings

        for sentence in warnings(self.overrides, configs):
            typer.echo(f"warning: {sentence}", err=True)


def settings(everyday: Everyday, words: Sequence[str], first: Sequence[str] = (), base: Path | None = None) -> Settings:
    """`first` or the run `base`, with the options and the overrides as typed laid over it."""
    typed = {key_of(word) for word in words}
    given = {f.name: getattr(everyday, f.name) for f in fields(Everyday)}
    given = {name: text for name, text in given.items() if text is not None}
    need_agreement(given, words)
    wanted = {KEYS.get(name, name): text for name, text in given.items() if KEYS.get(name, name) not in typed}
    chosen, texts = model_choice(wanted.pop("model")) if "model" in wanted else ([], {})
    if "results" in wanted:
        texts["results"] = wanted.pop("results")
    chosen += [f"{key}={text}" for key, text in wanted.items()]
    texts = {key: text for key, text in texts.items() if key not in typed}
    named = typed | {key_of(word) for word in chosen}
    begin = [] if base else [word for word in first if key_of(word) not in named]
    return Settings([*begin, *chosen, *words], texts, base)


def need_agreement(given: Mapping[str, str], words: Sequence[str]) -> None:
    """A setting that is typed twice must be the same both times; which one is meant cannot be told."""
    typed = [(KEYS.get(name, name), text, f"--{name.replace('_', '-')} {text}") for name, text in given.items()]
    typed += [(key_of(word), word.partition("=")[2], word) for word in words if "=" in word]
    seen: dict[str, tuple[str, str]] = {}
    for key, value, word in typed:
        other, before = seen.setdefault(key, (value, word))
        if value != other:
            raise ConfigError(f"{key} must be given once, got {before!r} and {word!r}; leave one of them out")


def print_settings(*configs: RunConfig) -> None:
    """As YAML that --config reads; several runs are documents of one stream."""
    from s2d2cli.config import record
    from s2d2cli.plain_yaml import as_yaml

    typer.echo("---\n".join(as_yaml(record(config)) for config in configs), nl=False)


def key_of(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides and prompts. `rooter=min_span` is an override, mistyped; `What is 2+2=?` is a prompt."""
    from s2d2cli.config import top_level_keys

    known = top_level_keys()
    overrides = [word for word in words if is_override(word, known)]
    return overrides, [word for word in words if word not in overrides]


def is_override(word: str, known: Sequence[str]) -> bool:
    """key=value with a known key, or anything of that form without spaces; also +key=value and ~key."""
    match = re.match(r"[+~]*([A-Za-z_]\w*)[\w./@-]*=|~[A-Za-z_][\w./@-]*$", word)
    return match is not None and (match[1] in known or not re.search(r"\s", word))
