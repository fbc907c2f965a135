"""`s2d2 generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from s2d2cli.cli.evaluate import Trace
from s2d2cli.cli.show import Show, View, show
from s2d2cli.cli.words import ConfigFile, Everyday, PrintConfig, Settings, print_settings, settings, shared, split
from s2d2cli.errors import ConfigError, PromptError

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig
    from s2d2cli.decode import Decoder
    from s2d2cli.models import ModelAdapter
    from s2d2cli.runs.prompts import Conversation, Style
    from s2d2cli.runs.trace import TraceFile

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PROMPT] [KEY=VALUE]...", help="The prompt (- reads it from stdin), and settings, in any order."
    ),
]
Prompt = Annotated[
    list[str] | None,
    typer.Option("--prompt", help="The prompt, when it looks like a setting; so does --.", metavar="TEXT"),
]
Path_ = Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)]
DEFAULTS = ("decode.max_new_tokens=256",)


@dataclass(frozen=True)
class Sources:
    """Where prompts can come from; exactly one of them does."""

    prompts: list[str]
    messages: Path | None
    rows: Path | None

    def conversations(self, style: Style) -> list[Conversation] | None:
        """What to answer; None: ask on the terminal."""
        from s2d2cli.runs.prompts import read_messages, read_rows, read_text

        given = [
            *map(repr, self.prompts),
            *(["--messages"] if self.messages else []),
            *(["--input"] if self.rows else []),
        ]
        if len(given) > 1:
            raise PromptError(f"one prompt at a time, got {' and '.join(given)}; quote a prompt of several words")
        if self.messages or self.rows:
            return read_messages(self.messages, style) if self.messages else read_rows(self.rows or Path(), style)
        if self.prompts and self.prompts[0] != "-":
            return [style.of_text("prompt", self.prompts[0])]
        if self.prompts or not sys.stdin.isatty():
            return [style.of_text("prompt", read_text(Path("-")).removesuffix("\n"))]
        return None


@shared
def generate(
    words: Words = None,
    *,
    everyday: Everyday,
    prompt: Prompt = None,
    system: Annotated[str | None, typer.Option(help="System prompt.", metavar="TEXT", show_default=False)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without chat template.")] = False,
    messages: Annotated[Path | None, typer.Option(help="JSON or JSONL with turns.", metavar="FILE")] = None,
    rows: Annotated[Path | None, typer.Option("--input", help="JSONL of prompts or messages.", metavar="FILE")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="JSONL for the answers; goes on where it ends.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as one JSON object.")] = False,
    view: Annotated[
        View | None,
        typer.Option(
            "--show",
            help="live: animate the block being decoded (as order where there is no terminal); order: the answer with "
            "the step that decided each token; blocks: a line per block.",
        ),
    ] = None,
    pace: Annotated[float, typer.Option(min=0, help="Seconds that --show live stays on a step; not timed.")] = 0.3,
    trace: Trace = None,
    config_file: ConfigFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Answer a prompt, a file of prompts, or (without a prompt, on a terminal) one question after the other."""
    overrides, found = split(words or [])
    config = compose(settings(everyday, overrides, DEFAULTS, config_file), overrides)
    if print_config:
        print_settings(config)
        return
    from s2d2cli.runs.prompts import Style

    style = Style(system, raw)
    conversations = Sources([*found, *(prompt or [])], messages, rows).conversations(style)
    several = bool(rows or output or (conversations and len(conversations) > 1))
    how = Show(view, pace) if view else None
    if how and (several or as_json):
        raise PromptError(
            "--show draws one answer on the screen, so it cannot go with --json, --output or several prompts"
        )
    if conversations is None:
        talk(config, style, how, trace)
    elif several:
        write_rows(config, conversations, output, trace)
    elif how:
        show(*load(config), conversations[0], how, open_log(trace, config))
    else:
        answer(config, conversations[0], as_json, open_log(trace, config))


def compose(chosen: Settings, overrides: Sequence[str]) -> RunConfig:
    """The settings; when an unknown one was typed, say how a prompt of that form is given."""
    from s2d2cli.config import top_level_keys

    try:
        return chosen.compose()
    except ConfigError as error:
        strange = [word for word in overrides if word.lstrip("+~").split("=")[0].split(".")[0] not in top_level_keys()]
        if not strange:
            raise
        raise ConfigError(f"{error} (if {strange[0]!r} is the prompt: --prompt {strange[0]!r})") from error


def load(config: RunConfig) -> tuple[ModelAdapter, Decoder]:
    from s2d2cli.decode import build_decoder
    from s2d2cli.models import load_model

    return load_model(config), build_decoder(config)


def open_log(path: Path | None, config: RunConfig, goes_on: bool = False) -> TraceFile | None:
    from s2d2cli.runs.trace import open_trace
    from s2d2cli.runs.verification import TRACED

    if path is None:
        return None
    empty = path.is_file() and not path.stat().st_size  # what a failed start leaves
    log = open_trace(path, config, goes_on or empty, of_task=False)
    typer.echo(f"traced to {path}: {TRACED}", err=True)
    return log


def write_rows(
    config: RunConfig, conversations: Sequence[Conversation], output: Path | None, trace: Path | None
) -> None:
    """An answer per line, in the order of the prompts."""
    if output is None:
        write_answers(config, conversations, sys.stdout, open_log(trace, config))
        return
    from s2d2cli.runs.answer_file import appended, left

    todo = left(output, conversations)
    kept = len(conversations) - len(todo)
    if kept:
        there = f"{kept} of {len(conversations)} answers are in {output} already"
        typer.echo(f"{there} and are kept; remove the file to have them decoded again.", err=True)
    if todo:
        with appended(output) as file, told_progress(output, conversations):
            write_answers(config, todo, file, open_log(trace, config, goes_on=kept > 0))


def write_answers(
    config: RunConfig, conversations: Sequence[Conversation], file: TextIO, log: TraceFile | None
) -> None:
    from s2d2cli.runs.prompts import Tally, answers

    tally = Tally()
    for generation, found in answers(*load(config), conversations, config.batch_size, log):
        file.write(json.dumps(found, ensure_ascii=False) + "\n")
        file.flush()
        tally.add(generation)
    typer.echo(tally, err=True)


@contextmanager
def told_progress(output: Path, conversations: Sequence[Conversation]) -> Iterator[None]:
    """Ctrl-C says how far it came, and how to go on."""
    from s2d2cli.runs.answer_file import left

    try:
        yield
    except KeyboardInterrupt:
        done = len(conversations) - len(left(output, conversations))
        typer.echo(
            f"Interrupted with {done} of {len(conversations)} answers in {output}; the same command goes on from here.",
            err=True,
        )
        raise typer.Exit(130) from None


def answer(config: RunConfig, conversation: Conversation, as_json: bool, log: TraceFile | None) -> None:
    """One answer: streamed to a terminal, plain into a pipe or when it is traced, or a JSON object."""
    from s2d2cli.runs.prompts import Tally, answers

    model, decoder = load(config)
    if sys.stdout.isatty() and not as_json and log is None:
        stream(model, decoder, conversation)
        return
    tally = Tally()
    for generation, found in answers(model, decoder, [conversation], 1, log):
        tally.add(generation)
        extra = {"seconds": tally.seconds, "model": config.model.name, "decoder": config.decoder}
        typer.echo(json.dumps(found | extra, ensure_ascii=False) if as_json else found["text"])
    typer.echo(tally, err=True)


def stream(model: ModelAdapter, decoder: Decoder, conversation: Conversation) -> str:
    """Print the answer as it is decided; return it."""
    from s2d2cli.runs.prompts import Tally, pieces

    growing = (model.text(ids) for ids in decoder.stream(model, conversation.request(model)))
    for piece in pieces(growing):
        typer.echo(piece, nl=False)
    typer.echo()
    tally = Tally()
    generation = decoder.last.generations[0]
    tally.add(generation)
    typer.echo(tally, err=True)
    return model.text(generation.token_ids)


def talk(config: RunConfig, style: Style, how: Show | None, trace: Path | None) -> None:
    """Turn after turn; the model sees the whole conversation. An empty line or Ctrl-D ends it."""
    if trace:
        raise PromptError("--trace needs a prompt or a file of prompts; a conversation on the terminal is not traced")
    model, decoder = load(config)
    typer.echo(f"{config.model.name}, {config.decoder}; an empty line or Ctrl-D ends the conversation.", err=True)
    turns: list[dict[str, str]] = []
    while text := ask():
        said = style.of_text("prompt", text) if style.raw else None
        turns.append({"role": "user", "content": text})
        turn = said or style.of_turns(f"turn {len(turns)}", turns)
        reply = show(model, decoder, turn, how, None) if how else stream(model, decoder, turn)
        turns.append({"role": "assistant", "content": reply})


def ask() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        typer.echo(err=True)
        return ""
