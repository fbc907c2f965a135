"""`--trace FILE`: a JSON line per sample with every step of its decoding, written as soon as it is decoded.

{"id", "config", "prompt", "block_length", "prompt_tokens", "tokens", "finish", "steps"}: `config` are the settings that
have an effect, `tokens` is the answer's length. Steps are those of decode/observe.py, each token with its text and the
reason why it was decided there and then:

    accepted, resampled, threshold, high_confidence, bonus   by the verifier, as its source says
    confident   unmasked because its draft probability exceeds unmask.threshold
    owed        unmasked because the step owes tokens (denoising_steps), though no other reason spoke for it
    unmasked    by a rule that looks at more than the token itself (entropy_bounded, klass, local_leap, plugins)
    edited      in place of the token `was`, because its draft probability exceeds unmask.edit_threshold

When a killed run goes on, a sample may stand there twice; the last line counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2d2cli.config import RunConfig
from s2d2cli.decode import Generation
from s2d2cli.errors import PromptError
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.runs import files
from s2d2cli.runs.labels import config_of
from s2d2cli.runs.store import lacking
from s2d2cli.runs.token_texts import token_texts

Entry = dict[str, Any]
Steps = list[dict[str, Any]]
OWN_PROMPTS = {"kind": "own prompts"}  # instead of a task, where none gave the prompts
QUOTA_RULES = ("sequential", "low_confidence_static")
WIDER_RULES = ("klass", "local_leap")  # their threshold is not the whole reason
ENTRY = {  # what the readers of a trace rely on
    **dict.fromkeys(("id", "prompt", "finish", "config.decoder", "config.router.kind", "config.model.name"), str),
    "config.task.kind": str,
    **dict.fromkeys(("block_length", "config.decode.block_length", "prompt_tokens", "tokens"), int),
    "steps": list,
}


@dataclass(frozen=True)
class TraceFile:
    path: Path
    config: dict[str, Any]

    def write(self, generation: Generation, prompt_ids: Sequence[int], steps: Steps, model: ModelAdapter) -> None:
        entry = {
            "id": generation.sample_id,
            "config": self.config,
            "prompt": model.text(list(prompt_ids)),
            "block_length": self.config["decode"]["block_length"],
            "prompt_tokens": len(prompt_ids),
            "tokens": len(generation.token_ids),
            "finish": generation.finish,
            "steps": told(steps, self.config.get("unmask", {}), model),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")


def open_trace(path: Path, config: RunConfig, goes_on: bool = False, of_task: bool = True) -> TraceFile:
    """A new file; one that is there already is added to only by the run that goes on, behind its last whole line.
    `of_task` says whether the prompts are those of config.task."""
    try:
        path.open("a" if goes_on else "x").close()
        files.drop_torn_line(path)
    except OSError as error:
        raise PromptError(f"cannot write the trace {str(path)!r}: {error.strerror}; choose another --trace") from error
    return TraceFile(path, config_of(config) | ({} if of_task else {"task": OWN_PROMPTS}))


def told(steps: Steps, unmask: Mapping[str, Any], model: ModelAdapter) -> Steps:
    """The steps as JSON values, each token with its text and its reason."""
    decided = {token["position"]: token["token"] for step in steps for token in step["tokens"]}
    places = sorted(decided)
    texts = dict(zip(places, token_texts([decided[place] for place in places], model.text), strict=True))

    def text(token: Mapping[str, Any]) -> str:
        """One that was edited later stands beside none of the final tokens."""
        place = token["position"]
        return texts[place] if token["token"] == decided[place] else model.text([token["token"]])

    return [
        {key: finite(value) for key, value in step.items()}
        | {"tokens": [t | {"text": text(t), "reason": reason(t, unmask)} for t in step["tokens"]]}
        for step in steps
    ]


def reason(token: Mapping[str, Any], unmask: Mapping[str, Any]) -> str:
    if token["source"] != "unmasked":
        return str(token["source"])
    if "threshold" in unmask and unmask.get("kind") not in WIDER_RULES:
        return "confident" if token["draft_prob"] > unmask["threshold"] else "owed"
    return "owed" if unmask.get("kind") in QUOTA_RULES else "unmasked"


def finite(value: Any) -> Any:
    """JSON has no infinity; a score that is none becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def by_config(path: Path) -> list[list[Entry]]:
    """The samples of a trace file, those of equal settings together: files may have been put together."""
    found: dict[str, list[Entry]] = {}
    for entry in read_trace(path):
        found.setdefault(key_of(entry), []).append(entry)
    return list(found.values())


def key_of(entry: Entry) -> str:
    return json.dumps(entry["config"], sort_keys=True)


def read_trace(path: Path) -> list[Entry]:
    """The samples of a trace file, each once; a last line that a killed run left torn does not count."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise PromptError(
            f"cannot read the trace {str(path)!r}: {reason}; --trace of generate and eval writes one"
        ) from error
    found: dict[tuple[str, str], Entry] = {}
    for number, line in enumerate(lines[:-1], 1):
        entry = entry_of(line, f"{path}, line {number}")
        found[(key_of(entry), entry["id"])] = entry
    if not found:
        raise PromptError(f"a trace must hold a sample, and {path} holds none")
    return list(found.values())


def entry_of(line: str, place: str) -> Entry:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise PromptError(f"{place}: a trace must hold a JSON object per sample; {error}") from error
    missing = lacking(entry, ENTRY)
    if missing:
        raise PromptError(
            f"{place}: this is no line of a trace, or one of an older s2d2, because it has no {missing[0]!r}; "
            f"write the trace again with this version"
        )
    return dict(entry)
