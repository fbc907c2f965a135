"""What to call a decoder beside others: its name, its block length, the settings in which they differ, and those that
make it approximate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from s2d2cli.config import RunConfig, record
from s2d2cli.effect import brief, effective, without_effect
from s2d2cli.overrides import leaves
from s2d2cli.runs.approximate import approximations, word
from s2d2cli.runs.store import decoder_name

Config = Mapping[str, Any]  # a recorded configuration, less what has no effect in it
SAID = ("decoder", "task", "model", "router.kind", "decode.block_length")  # by the label or beside it
PLACES = ("results", "device", "dtype", "backend", "threads", "batch_size", "limit")  # nothing about the decoder
STEPS = "decode.denoising_steps"  # the block length unless given, so it would only repeat it


def config_of(config: RunConfig) -> dict[str, Any]:
    return effective(record(config), without_effect(config))


def name_of(config: Config) -> str:
    return decoder_name(config["decoder"], config["router"]["kind"])


def labels(configs: Sequence[Config]) -> list[str]:
    """A label each; equal ones are left to whoever knows where they come from."""
    decoders = [settings(config) for config in configs]
    found = []
    for config, mine in zip(configs, decoders, strict=True):
        peers = [own for other, own in zip(configs, decoders, strict=True) if name_of(other) == name_of(config)]
        always = {"draft_model", *approximations(mine)}
        told = [k for k in mine if k in always or len({str(own.get(k)) for own in peers}) > 1]
        words = [f"{word(key)}={mine[key]}" for key in told]
        found.append(" ".join([name_of(config), f"block={config['decode']['block_length']}", *words]))
    return found


def settings(config: Config) -> dict[str, Any]:
    """The decoder's settings, dotted, without those that every label names."""
    said = {key: value for key, value in leaves(brief(config)) if not key.startswith(SAID) and key not in PLACES}
    if said.get(STEPS) == config["decode"]["block_length"]:
        said.pop(STEPS)
    return said
