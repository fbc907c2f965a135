"""AR-ness as a table for the terminal, as CSV, and as a figure."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from s2d2cli.runs.arness import DEFINITIONS, Level, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCOPES = ("local", "global")
KINDS = {"optimistic": "opt.", "expected": "exp.", "chance": "chance"}
# Okabe and Ito's colours, told apart by readers with any colour vision; the marker says the same once more.
STYLES = tuple(
    zip(("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"), "oDs^vPX", strict=True)
)


def table(measured: Sequence[Measured]) -> Table:
    """A group of rows per decoder, a row per k; what all have in common stands in the title."""
    grid = Table(
        title=title(measured), title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    grid.add_column("decoder", overflow="fold")
    heads = [f"{scope}\n{short}" for scope in SCOPES for short in KINDS.values()]
    for name in ("n", "tok/\nstep", "k", *heads):
        grid.add_column(name, justify="right", no_wrap=True)
    for one, name in zip(measured, names(measured), strict=True):
        first = [name, str(one.n), number(one.tokens_per_step, 2)]
        for level in one.levels:
            grid.add_row(
                *first, str(level.k), *(number(score(level, scope, kind)) for scope in SCOPES for kind in KINDS)
            )
            first = ["", "", ""]
    return grid


def score(level: Level, scope: str, kind: str) -> float | None:
    found: float | None = getattr(level, f"{scope}_{kind}")
    return found


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def title(measured: Sequence[Measured]) -> str:
    tasks, models = {one.task for one in measured}, {one.model for one in measured}
    task = f", {tasks.pop()}" if len(tasks) == 1 else ""
    return f"AR-ness@k{task}{f' on {models.pop()}' if len(models) == 1 else ''}, mean over samples"


def names(measured: Sequence[Measured]) -> list[str]:
    """Decoders, with task, model or origin where they differ from the others."""
    several = {key: len({getattr(one, key) for one in measured}) > 1 for key in ("task", "model")}
    plain = [", ".join([one.decoder, *(getattr(one, key) for key in several if several[key])]) for one in measured]
    return [
        f"{name} ({one.origin})" if plain.count(name) > 1 else name for name, one in zip(plain, measured, strict=True)
    ]


def remarks(measured: Sequence[Measured]) -> list[str]:
    """What the columns mean, and what the numbers do not say by themselves."""
    short = {"optimistic": "opt.", "expected": "exp."}
    found = ["; ".join(f"{short.get(name, name)}: {text}" for name, text in pair) + "." for pair in halves()]
    in_order = [one for one in measured if one.verifier not in (None, "chain")]  # a chain follows the model's own order
    routers = sorted({one.router for one in in_order if one.router != "never"})
    if routers:
        found.append(
            f"Verified tokens come left to right by construction: with router={', '.join(routers)} this measures the "
            f"router, not the model."
        )
    for one, name in zip(measured, names(measured), strict=True):
        if one.edits:
            found.append(f"{name}: {one.edits} edits of {one.tokens} tokens, which count by their first reveal.")
    left_out = sorted({level.k for one in measured for level in one.levels if level.local_n < one.n})
    if left_out:
        words = ", ".join(map(str, left_out))
        found.append(f"k={words}: samples of no more than k tokens have no local@k and are left out of it.")
    return found


def halves() -> list[list[tuple[str, str]]]:
    """The two scores, and the three readings of each: a line for either."""
    items = list(DEFINITIONS.items())
    return [items[:2], items[2:]]


def write(measured: Sequence[Measured], out: Path) -> list[Path]:
    """CSV, PNG and SVG into this folder."""
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"arness.{ending}" for ending in ("csv", "png", "svg")]
    with files[0].open("w", encoding="utf-8", newline="") as file:
        rows = list(flat_rows(measured))
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    draw(measured, files[1:])
    return files


def flat_rows(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """A row per decoder and k."""
    own = [field.name for field in fields(Measured) if field.name != "levels"]
    return [{name: getattr(one, name) for name in own} | asdict(level) for one in measured for level in one.levels]


def draw(measured: Sequence[Measured], files: Sequence[Path]) -> None:
    from matplotlib.figure import Figure  # not pyplot: no display is needed, or looked for

    figure = Figure(figsize=(10, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, scope in zip(panels, SCOPES, strict=True):
        for index, (one, name) in enumerate(zip(measured, names(measured), strict=True)):
            lines(axes, one, scope, (*STYLES[index % len(STYLES)], name))
        axes.set_xlabel("k")
        axes.set_xticks(sorted({level.k for one in measured for level in one.levels}))
        axes.set_title(f"{scope}@k", fontsize=10)
        axes.grid(color="#eeeeee")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("AR-ness (1: left to right)")
    panels[0].set_ylim(-0.02, 1.02)
    handles, shown = panels[0].get_legend_handles_labels()
    figure.legend(handles, shown, loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    figure.suptitle(f"{title(measured)}\nsolid: expected; dashed: optimistic; dotted: chance", fontsize=10)
    for file in files:
        figure.savefig(file, dpi=150)


def lines(axes: Axes, one: Measured, scope: str, style: tuple[str, str, str]) -> None:
    """Expected with its marker, the optimistic reading dashed, chance dotted."""
    color, marker, name = style
    levels = [level for level in one.levels if score(level, scope, "expected") is not None]
    ks = [level.k for level in levels]
    high, middle, low = ([score(level, scope, kind) or 0.0 for level in levels] for kind in KINDS)
    axes.plot(ks, middle, color=color, marker=marker, label=name)
    axes.plot(ks, high, color=color, linestyle="--", linewidth=1)
    axes.plot(ks, low, color=color, linestyle=":", linewidth=1)
