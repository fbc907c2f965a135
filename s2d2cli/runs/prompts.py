"""Prompts from words, files and pipes, and the answers to them as plain rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2d2cli.decode import Decoder, Generation, Request, StepLog
from s2d2cli.errors import PromptError
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.runs.trace import TraceFile

Messages = list[dict[str, str]]
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Conversation:
    """What to continue: turns that go through the chat template, or raw text that does not."""

    id: str
    prompt: str  # the last thing the user said, or the raw text
    messages: Messages | None

    def request(self, model: ModelAdapter) -> Request:
        text = self.prompt if self.messages is None else model.chat_prompt(self.messages)
        return Request(self.id, model.encode(text))


@dataclass(frozen=True)
class Style:
    """How text becomes a conversation."""

    system: str | None = None
    raw: bool = False

    def __post_init__(self) -> None:
        if self.system is None:
            return
        if self.raw:
            raise PromptError(
                "--raw is for text without a chat template, which has no place for --system; leave one out"
            )
        check_text("--system", self.system)

    def of_text(self, name: str, text: str) -> Conversation:
        check_text(name, text)
        if not text.strip():
            raise PromptError(f"a prompt must hold some text; {name} holds none")
        return Conversation(name, text, None) if self.raw else self.of_turns(name, [{"role": "user", "content": text}])

    def of_turns(self, name: str, turns: Any) -> Conversation:
        check_turns(name, turns)
        if self.raw:
            raise PromptError(f"--raw is for text without a chat template, and {name} holds messages; leave out --raw")
        if self.system and any(turn["role"] == "system" for turn in turns):
            raise PromptError(f"{name} holds a system message already; leave out --system, or that message")
        system = [{"role": "system", "content": self.system}] if self.system else []
        return Conversation(name, turns[-1]["content"], [*system, *turns])


def check_text(name: str, text: str) -> None:
    """JSON and command lines can hold halves of characters, which no tokenizer and no file takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"{name}: a prompt must be Unicode text, and its character {error.start + 1} is half a surrogate pair, "
            f"{text[error.start]!r}; remove it"
        ) from error


def check_turns(name: str, turns: Any) -> None:
    form = f'{name}: messages must be a list like [{{"role": "user", "content": "..."}}]'
    if not isinstance(turns, list) or not turns:
        raise PromptError(f"{form}, got {type(turns).__name__ if turns else 'none'}")
    for turn in turns:
        good = isinstance(turn, dict) and turn.get("role") in ROLES and isinstance(turn.get("content"), str)
        if not good or turn.keys() - {"role", "content"}:
            raise PromptError(f"{form} with role {', '.join(ROLES)}; got {json.dumps(turn)[:80]}")
        check_text(name, turn["content"])
    if turns[-1]["role"] != "user":
        raise PromptError(
            f"{name}: the last message must be the user's, for the model to answer; got {turns[-1]['role']}"
        )


def read_text(path: Path) -> str:
    """A file, or stdin for `-`; a byte order mark before it is none of its text."""
    try:
        if str(path) == "-":
            return sys.stdin.read().removeprefix("\ufeff")
        return path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise PromptError(f"cannot read {str(path)!r}: {reason}") from error


def read_messages(path: Path, style: Style) -> list[Conversation]:
    """One conversation as JSON (a list of turns, or an object with `messages`), or JSON Lines of several."""
    text = read_text(path)
    try:
        whole = json.loads(text)
    except ValueError:
        return conversations_in(path, text, style)
    turns = whole.get("messages") if isinstance(whole, dict) else whole
    return [style.of_turns(str(path), turns)]


def read_rows(path: Path, style: Style) -> list[Conversation]:
    """JSON Lines with `prompt` or `messages` and perhaps an `id`; the line number is the id otherwise."""
    return conversations_in(path, read_text(path), style)


def conversations_in(path: Path, text: str, style: Style) -> list[Conversation]:
    lines = enumerate(text.split("\n"), 1)  # not splitlines: JSON strings may hold U+2028 and its like as they are
    found = [conversation(f"{path}, line {number}", number, line, style) for number, line in lines if line.strip()]
    names = [one.id for one in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PromptError(
            f"{path}: ids must differ, and {twice!r} stands there twice (a row without id has its line number)"
        )
    if not found:
        raise PromptError(f"{path} must hold a JSON object per line, and is empty")
    return found


def conversation(place: str, number: int, line: str, style: Style) -> Conversation:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise PromptError(f"{place}: must be a JSON object; {error}") from error
    if not isinstance(row, dict) or ("prompt" in row) == ("messages" in row):
        raise PromptError(f'{place}: must hold either "prompt" or "messages", got {line.strip()[:80]}')
    if "messages" in row:
        made = style.of_turns(place, row["messages"])
    elif isinstance(row["prompt"], str):
        made = style.of_text(place, row["prompt"])
    else:
        raise PromptError(f'{place}: "prompt" must be text, got {type(row["prompt"]).__name__}')
    return Conversation(id_of(place, row.get("id", number)), made.prompt, made.messages)


def id_of(place: str, value: Any) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise PromptError(f'{place}: "id" must be text or a number, got {json.dumps(value)[:80]}; or leave it out')
    check_text(place, str(value))
    return str(value)


def answers(
    model: ModelAdapter,
    decoder: Decoder,
    conversations: Sequence[Conversation],
    batch_size: int,
    trace: TraceFile | None = None,
) -> Iterator[tuple[Generation, dict[str, Any]]]:
    """In the order given, each as soon as it and those before it are done; all prompts are checked first."""
    requests = [one.request(model) for one in conversations]
    prompts = {request.sample_id: request.prompt_ids for request in requests}
    log = StepLog() if trace else None
    waiting: dict[str, Generation] = {}
    left = list(conversations)
    for generation in decoder.session(model, requests, batch_size, observer=log).results():
        name = generation.sample_id
        waiting[name] = generation
        if trace and log:
            trace.write(generation, prompts[name], log.steps.pop(name), model)
        while left and left[0].id in waiting:
            one = left.pop(0)
            yield waiting[one.id], row(one, waiting.pop(one.id), model)


def row(one: Conversation, generation: Generation, model: ModelAdapter) -> dict[str, Any]:
    """An answer as JSON values."""
    forwards = sum(generation.forwards.values())
    return {
        "id": one.id,
        "prompt": one.prompt,
        "text": model.text(generation.token_ids),
        "tokens": len(generation.token_ids),
        "finish": generation.finish,
        "forwards": generation.forwards,
        "tokens_per_forward": len(generation.token_ids) / forwards if forwards else None,
    }


@dataclass
class Tally:
    """What a call cost in all."""

    tokens: int = 0
    forwards: int = 0
    seconds: float = 0.0

    def add(self, generation: Generation) -> None:
        self.tokens += len(generation.token_ids)
        self.forwards += sum(generation.forwards.values())
        self.seconds += generation.bill.share.total_s

    def __str__(self) -> str:
        per_forward = self.tokens / self.forwards if self.forwards else 0.0
        per_second = self.tokens / self.seconds if self.seconds else 0.0
        return (
            f"{self.tokens} tokens, {self.forwards} forwards, {per_forward:.2f} tokens per forward, "
            f"{per_second:.1f} tokens per second"
        )


def pieces(texts: Iterable[str]) -> Iterator[str]:
    """What to print as a text grows: only what is new and will not change (half a character waits)."""
    shown = ""
    for text in texts:
        whole = text.rstrip("\ufffd")
        if whole.startswith(shown) and len(whole) > len(shown):
            yield whole[len(shown) :]
            shown = whole
