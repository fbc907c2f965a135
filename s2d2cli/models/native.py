"""What the model families share: a published `config.json` as one of transformers' own networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from s2d2cli.errors import CheckpointError

# keys of a published config.json that describe its own code, files or training, not the network; a family adds its own
FOREIGN = ("architectures", "auto_map", "model_type", "mask_token_id", "dtype", "torch_dtype", "transformers_version",
           "rope_theta", "rope_scaling")  # fmt: skip


def need_model_type(family: str, config: dict[str, Any], allowed: Sequence[str]) -> None:
    found = config.get("model_type")
    if found not in allowed:
        raise CheckpointError(
            f"model.family={family} needs a checkpoint with model_type {' or '.join(allowed)}, got {found!r}"
        )


def need_values(family: str, config: dict[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuse a network that computes otherwise; a key that a checkpoint does not name has the needed value."""
    for key, needed in fixed.items():
        if config.get(key, needed) != needed:
            raise CheckpointError(f"model.family={family} needs {key}={needed} in config.json, got {config[key]!r}")


def renamed(name: str, table: Mapping[str, str]) -> str:
    """A tensor's name with each part of it that the table knows replaced."""
    for theirs, ours in table.items():
        name = name.replace(theirs, ours)
    return name


def build_native(network_class: Any, config: dict[str, Any], foreign: Sequence[str], device: torch.device) -> Any:
    """The network without weights (parameters on the meta device, rotary tables on `device`)."""
    scaling = config.get("rope_scaling") or {}
    rope = {"rope_type": "default", "rope_theta": config.get("rope_theta", 1e6), **scaling}
    rope.update(config.get("rope_parameters") or {})  # the spelling of checkpoints saved by transformers 5
    known = {key: value for key, value in config.items() if key not in (*FOREIGN, *foreign)}
    known["rope_parameters"] = rope
    with torch.device("meta"):
        network = network_class(network_class.config_class(**known, attn_implementation="sdpa"))
    with device:  # its tables are computed, not loaded
        network.model.rotary_emb = type(network.model.rotary_emb)(config=network.config)
    return network
