"""`s2d2 arness`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.screen import screen
from s2d2cli.cli.words import ConfigFile, Everyday, PrintConfig, Settings, print_settings, settings, shared
from s2d2cli.errors import ConfigError

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.runs.arness import Measured
    from s2d2cli.runs.orders import Decoded

DEFAULTS = ("decoder=static", "limit=50")  # one token a step: what both papers measured
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH]... [KEY=VALUE,VALUE]...",
        help="Run folders, folders of them and trace files to measure as they are; or settings with one or several "
        "values, decoded now: decoder=dynamic,s2d2.",
    ),
]


@shared
def arness(
    words: Words = None,
    *,
    everyday: Everyday,
    k: Annotated[str, typer.Option("--k", metavar="N,N", help="How many neighbours count.")] = "1,2,3,4",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Also write CSV, PNG and SVG.", show_default=False)
    ] = None,
    config_file: ConfigFile = None,
    print_config: PrintConfig = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how close to left-to-right tokens are revealed: local and global AR-ness@k.

    local@k: the k left neighbours were decided just before; global@k: among the k leftmost undecided ones. Tokens of
    one step have no order: read from the left (optimistic), and as the mean over their orders (expected).
    """
    ks = numbers(k)
    paths = [Path(word) for word in words or [] if is_path(word)]
    chosen = settings(everyday, [word for word in words or [] if not is_path(word)], base=config_file)
    if paths and (chosen.overrides or chosen.texts or config_file):
        typed = [*chosen.overrides, *chosen.texts, "--config"]
        raise ConfigError(
            f"what is stored is measured as it is, so {typed[0]!r} cannot go with {paths[0]}; leave one out"
        )
    configs = [] if paths else composed(settings(everyday, words or [], DEFAULTS, config_file))
    if print_config:
        print_settings(*configs)
        return
    from s2d2cli.runs.arness import measure

    if out:
        from s2d2cli.runs.store import need_writable

        need_writable(out)
    sources = stored(paths) if paths else decode(configs)
    show(measure(sources, ks), out, as_json)


def is_path(word: str) -> bool:
    """An existing file or folder, or what cannot be a setting."""
    return "=" not in word or Path(word).exists()


def numbers(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise ConfigError(f"--k takes whole numbers from 1, as in --k 1,2,4,8; got {text!r}")
    return found


def stored(paths: Sequence[Path]) -> list[Decoded]:
    from s2d2cli.runs.orders import stored

    for path in paths:
        if not path.exists():
            raise ConfigError(f"no run folder or trace file {str(path)!r}; a setting is written KEY=VALUE")
    return stored(paths)


def composed(chosen: Settings) -> list[RunConfig]:
    """The run of --config, or every combination of the settings, checked before the first model loads."""
    if chosen.base:
        return [chosen.compose()]
    from s2d2cli.runs.grid import combinations
    from s2d2cli.runs.sweep import plan

    planned = plan(combinations(chosen.overrides, None), chosen.texts)
    configs = [point.config for point in planned.points]
    chosen.warn(configs)
    for skipped in planned.skipped:
        typer.echo(f"left out: {' '.join(skipped.overrides)}: {skipped.reason}", err=True)
    return configs


def decode(configs: Sequence[RunConfig]) -> list[Decoded]:
    from s2d2cli.runs.evaluate import Models
    from s2d2cli.runs.orders import decoded_now

    for config in configs:
        config.task.prepare(True)  # nothing that the model writes is run here
    models = Models()
    return [decoded_now(config, models) for config in configs]


def show(measured: Sequence[Measured], out: Path | None, as_json: bool) -> None:
    from s2d2cli.runs.arness import DEFINITIONS
    from s2d2cli.runs.arness_output import remarks, table, write

    files = write(measured, out) if out else []
    if as_json:
        import json

        plain = {"definitions": DEFINITIONS, "measured": [one.plain() for one in measured]}
        typer.echo(json.dumps(plain, indent=1, ensure_ascii=False))
        return
    screen().print(table(measured))
    for line in [*remarks(measured), *map(str, files)]:
        typer.echo(line)
