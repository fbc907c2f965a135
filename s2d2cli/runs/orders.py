"""Where reveal orders come from: rows of stored runs, trace files, or decoding now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2d2cli.config import RunConfig
from s2d2cli.decode import Request, build_decoder
from s2d2cli.effect import effective
from s2d2cli.errors import ConfigError
from s2d2cli.runs.evaluate import Models
from s2d2cli.runs.labels import config_of
from s2d2cli.runs.progress import progress
from s2d2cli.runs.rows import prompt_of
from s2d2cli.runs.store import SCHEMA, Record, RunFolder, damage
from s2d2cli.runs.trace import Entry, by_config
from s2d2cli.values import FROM_PROMPT


@dataclass(frozen=True)
class Order:
    """The step that first decided each new token of a sample, the block that it stands in, how many edits came later,
    and the order: equal times were decided together, which is finer than steps where a step knows an order of its
    own."""

    steps: list[int]
    blocks: list[int]
    edits: int
    times: list[int]


@dataclass(frozen=True)
class Decoded:
    """What one decoder revealed on one task, and when."""

    origin: str
    config: dict[str, Any]  # the settings that have an effect
    orders: list[Order]


def order(
    in_front: int, steps: Sequence[int], block_length: int, edits: int = 0, times: Sequence[int] | None = None
) -> Order:
    """Tokens in front of the answer that end inside a block leave a shorter first one. Without `times` the steps are
    all that is known of the order."""
    blocks = [(in_front + i) // block_length for i in range(len(steps))]
    return Order(list(steps), blocks, edits, list(steps if times is None else times))


def stored(paths: Iterable[Path]) -> list[Decoded]:
    """Run folders, folders of them, and trace files."""
    found: list[Decoded] = []
    for path in paths:
        if path.is_dir():
            found += map(of_folder, run_folders(path))
        else:
            found += of_trace(path)
    return found


def run_folders(path: Path) -> list[RunFolder]:
    inside = [path] if (path / "run.json").is_file() else sorted(file.parent for file in path.glob("*/run.json"))
    if not inside:
        raise ConfigError(f"{path} must be a run's folder or hold some, and has no run.json; `s2d2 eval` writes runs")
    return [RunFolder(folder) for folder in inside]


def of_folder(folder: RunFolder) -> Decoded:
    record, rows = folder.record(), folder.rows()
    if record is None or record.get("schema") != SCHEMA or damage(record):
        raise ConfigError(f"{folder.path}: run.json must be of this version of s2d2 and whole; leave this run out")
    if not rows or any("reveal_steps" not in row for row in rows.values()):
        raise ConfigError(
            f"{folder.path}: samples must have reveal_steps, and {'some have none' if rows else 'it has none'}; "
            f"decode them with this version into another --results folder, or leave this run out"
        )
    return Decoded(
        str(folder.path), effective(record["config"], record.get("without_effect", {})), orders_of(record, rows)
    )


def tokens_in_front(family: str | None, prompt_tokens: int) -> int:
    """How many of a sequence's tokens stand on the grid of blocks in front of the answer."""
    return 0 if family in FROM_PROMPT else prompt_tokens


def orders_of(record: Record, rows: dict[str, Record]) -> list[Order]:
    decode, family = record["config"]["decode"], record["config"]["model"].get("family")
    return [
        order(
            tokens_in_front(family, row["prompt_tokens"]),
            row["reveal_steps"],
            decode["block_length"],
            row.get("edits", 0),
            row.get("reveal_order"),
        )
        for _, row in sorted(rows.items())
    ]


def of_trace(path: Path) -> list[Decoded]:
    """One for each configuration in the file."""
    return [Decoded(str(path), group[0]["config"], [order_of(entry) for entry in group]) for group in by_config(path)]


def order_of(entry: Entry) -> Order:
    low, tokens = entry["prompt_tokens"], entry["tokens"]
    events = [(step["step"], token) for step in entry["steps"] for token in step["tokens"]]
    first = [(step, token) for step, token in events if token["source"] != "edited"]
    steps = {token["position"]: step for step, token in first}
    # a trace of before the order within a step was noted knows the step alone
    times = {token["position"]: (step, token.get("order", 0)) for step, token in first}
    edited = [token["position"] for _, token in events if token["source"] == "edited"]
    edits = sum(position < low + tokens for position in edited)
    in_front = tokens_in_front(entry["config"]["model"].get("family"), low)
    found = [steps[low + i] for i in range(tokens)]
    known = [times[low + i] for i in range(tokens)]
    rank = {time: place for place, time in enumerate(sorted(set(known)))}
    return order(in_front, found, entry["block_length"], edits, [rank[time] for time in known])


def decoded_now(config: RunConfig, models: Models) -> Decoded:
    """Decode the first `limit` samples of the task; nothing is scored or kept."""
    samples = config.task.samples(config.limit)
    model, decoder = models.get(config), build_decoder(config)
    requests = [Request(sample.id, model.encode(prompt_of(model, sample))) for sample in samples]
    found: dict[str, Order] = {}
    length = config.decode.block_length
    assert length is not None
    family = config.model.family
    in_front = {request.sample_id: tokens_in_front(family, len(request.prompt_ids)) for request in requests}
    with progress(len(requests), 0) as shown:
        for generation in decoder.session(model, requests, config.batch_size).results():
            name = generation.sample_id
            steps, times = generation.reveal_steps, generation.reveal_order
            found[name] = order(in_front[name], steps, length, generation.edits, times)
            shown.advance(len(generation.token_ids))
    return Decoded("decoded now", config_of(config), [found[request.sample_id] for request in requests])
