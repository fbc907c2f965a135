"""`s2d2 generate --show`: one answer drawn while it is decoded, or with the order in which it was."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import typer

from s2d2cli.cli.screen import screen

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from s2d2cli.decode import Decoder, Generation, Request, StepLog
    from s2d2cli.models import ModelAdapter
    from s2d2cli.runs.prompts import Conversation
    from s2d2cli.runs.trace import TraceFile


class View(str, Enum):
    live = "live"
    order = "order"
    blocks = "blocks"


@dataclass(frozen=True)
class Show:
    """What is to be drawn, and how many seconds a step of the live view stays."""

    view: View
    pace: float


def show(model: ModelAdapter, decoder: Decoder, conversation: Conversation, how: Show, log: TraceFile | None) -> str:
    """Decode and draw; returns the answer. Where no terminal can be drawn on, live becomes order."""
    from s2d2cli.decode import StepLog
    from s2d2cli.runs.prompts import Tally

    request, console = conversation.request(model), screen()
    steps = StepLog() if log else None
    if how.view is View.live and sys.stdout.isatty() and not console.is_dumb_terminal:
        generation = live(model, decoder, request, steps, how.pace)
    else:
        (generation,) = decoder.session(model, [request], observer=steps).results()
        typer.echo(model.text(generation.token_ids) + "\n")
        console.print(drawn(model, decoder, request, generation, how.view))
    if log and steps:
        log.write(generation, request.prompt_ids, steps.steps[request.sample_id], model)
    tally = Tally()
    tally.add(generation)
    typer.echo(tally, err=True)
    return model.text(generation.token_ids)


def live(model: ModelAdapter, decoder: Decoder, request: Request, steps: StepLog | None, pace: float) -> Generation:
    """The animation; the text stays on the screen, after Ctrl-C as far as it came."""
    from s2d2cli.decode.observe import Unobserved
    from s2d2cli.runs.live import Picture, Watch, play
    from s2d2cli.runs.palette import visible

    watch, low = Watch(steps or Unobserved()), len(request.prompt_ids)
    assert decoder.settings.max_new_tokens is not None
    picture = Picture(model, low, low + decoder.settings.max_new_tokens)
    session = decoder.session(model, [request], observer=watch)
    try:
        play(session, watch, picture, screen(), pace)
    finally:
        typer.echo(visible(picture.answer()))
    return session.result.generations[0]


def drawn(model: ModelAdapter, decoder: Decoder, request: Request, generation: Generation, view: View) -> Group | Table:
    from s2d2cli.runs.order_grid import block_table, order_grid
    from s2d2cli.runs.token_texts import token_texts

    texts = token_texts(generation.token_ids, model.text)
    if view is View.blocks:
        settings = decoder.settings
        assert settings.block_length is not None
        in_front = 0 if model.from_prompt else len(request.prompt_ids)
        return block_table(generation, texts, in_front, settings.block_length)
    return order_grid(generation, texts, screen().width)
