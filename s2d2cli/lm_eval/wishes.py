"""What an lm-eval task asks of a generation, and whether the decoder's own settings allow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from s2d2cli.config import DecodeConfig
from s2d2cli.errors import ConfigError

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # lm-eval's order of preference
IDLE = {"num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1, "length_penalty": 1}  # they change nothing
KNOWN = {*LENGTHS, "until", "do_sample", "temperature", "top_p", "top_k"}


@dataclass(frozen=True)
class Wishes:
    """Decode settings that a task names; None leaves the choice to the decoder."""

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


def read_wishes(task: str, asked: Mapping[str, Any]) -> Wishes:
    """A task's generation_kwargs. Greedy is greedy: then top_p and top_k mean nothing."""
    strange = [key for key, value in asked.items() if key not in KNOWN and IDLE.get(key, "") != value]
    if strange:
        raise ConfigError(
            f"task {task} asks for {', '.join(f'{key}={asked[key]!r}' for key in strange)} in its generation_kwargs, "
            f"which no s2d2 decoder has; change the task"
        )
    length = next((int(asked[key]) for key in LENGTHS if asked.get(key) is not None), None)
    temperature = wished_temperature(task, asked)
    if temperature == 0.0:
        return Wishes(length, temperature)
    top_p, top_k = asked.get("top_p"), asked.get("top_k")
    return Wishes(length, temperature, None if top_p is None else float(top_p), None if top_k is None else int(top_k))


def wished_temperature(task: str, asked: Mapping[str, Any]) -> float | None:
    sample, temperature = asked.get("do_sample"), asked.get("temperature")
    if sample is False:
        return 0.0
    if sample and temperature is None:
        raise ConfigError(
            f"task {task} asks for do_sample without a temperature; say which, as in --gen_kwargs temperature=1.0"
        )
    return None if temperature is None else float(temperature)


def agreed(task: str, wishes: Wishes, decode: DecodeConfig, given: Iterable[str]) -> DecodeConfig:
    """The decoder's settings with the task's wishes; refused if they differ from what the user chose.

    Chosen is what is `given` by name, and what a preset has moved from its default.
    """
    named = {key: value for key, value in asdict(wishes).items() if value is not None}
    for key, wanted in named.items():
        own = getattr(decode, key)
        chosen = f"decode.{key}" in given or (key != "max_new_tokens" and own != getattr(DecodeConfig, key))
        if chosen and own != wanted:
            word = {"max_new_tokens": "max_gen_toks", "temperature": "do_sample=True,temperature"}.get(key, key)
            raise ConfigError(
                f"task {task} asks for {key}={wanted} (its generation_kwargs), and the decoder has decode.{key}={own}; "
                f"leave that setting out, or change the task's with --gen_kwargs {word}={own}"
            )
    return replace(decode, **named)


def cut(text: str, until: Any) -> str:
    """`text` before the first of the task's stop strings, one or a list of them."""
    for stop in [until] if isinstance(until, str) else until or []:
        text = text.partition(stop)[0] if stop else text
    return text
