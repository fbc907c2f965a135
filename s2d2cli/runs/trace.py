"""`--trace FILE`: a JSON line per sample with every step of its decoding, written as soon as it is decoded.

{"id", "block_length", "prompt_tokens", "steps"}; steps are those of decode/observe.py, each token with its text. When a
killed run goes on, a sample may stand there twice; the last line counts.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2d2cli.config import RunConfig
from s2d2cli.errors import PromptError
from s2d2cli.models.adapter import ModelAdapter


@dataclass(frozen=True)
class TraceFile:
    path: Path
    block_length: int

    def write(self, sample_id: str, prompt_tokens: int, steps: list[dict[str, Any]], model: ModelAdapter) -> None:
        entry = {
            "id": sample_id,
            "block_length": self.block_length,
            "prompt_tokens": prompt_tokens,
            "steps": [with_texts(step, model) for step in steps],
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")


def open_trace(path: Path, config: RunConfig, goes_on: bool = False) -> TraceFile:
    """A new file; one that is there already is added to only by the run that goes on."""
    assert config.decode.block_length is not None
    try:
        path.open("a" if goes_on else "x").close()
    except OSError as error:
        raise PromptError(f"cannot write the trace {str(path)!r}: {error.strerror}; choose another --trace") from error
    return TraceFile(path, config.decode.block_length)


def with_texts(step: dict[str, Any], model: ModelAdapter) -> dict[str, Any]:
    tokens = [token | {"text": model.text([token["token"]])} for token in step["tokens"]]
    return {key: finite(value) for key, value in step.items()} | {"tokens": tokens}


def finite(value: Any) -> Any:
    """JSON has no infinity; a score that is none becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
