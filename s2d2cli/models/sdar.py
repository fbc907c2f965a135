"""SDAR checkpoints (Cheng et al. 2025): the Qwen3 architecture, predicting each token at its own position.

The published remote code computes what transformers' native Qwen3 computes (max logit difference 1e-5, measured), so
the native class is used with `config.json` read directly: transformers does not know `model_type: sdar`.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from s2d2cli.errors import CheckpointError

MODEL_TYPES = ("sdar", "qwen3")
# keys of SDAR's config.json that describe its own code or training, not the network
FOREIGN = ("architectures", "auto_map", "model_type", "block_size", "fuse_cross_entropy", "mask_token_id", "dtype",
           "torch_dtype", "transformers_version", "rope_theta", "rope_scaling")  # fmt: skip


def build_network(config: dict[str, Any], device: torch.device) -> Qwen3ForCausalLM:
    """The network without weights (parameters on the meta device, rotary tables on `device`)."""
    if config.get("model_type") not in MODEL_TYPES:
        raise CheckpointError(
            f"model.family=sdar needs a checkpoint with model_type {' or '.join(MODEL_TYPES)}, "
            f"got {config.get('model_type')!r}"
        )
    scaling = config.get("rope_scaling") or {}
    rope = {"rope_type": "default", "rope_theta": config.get("rope_theta", 1e6), **scaling}
    rope.update(config.get("rope_parameters") or {})  # the spelling of checkpoints saved by transformers 5
    known = {key: value for key, value in config.items() if key not in FOREIGN}
    known["rope_parameters"] = rope
    with torch.device("meta"):
        network = Qwen3ForCausalLM(Qwen3Config(**known, attn_implementation="sdpa"))
    with device:  # its tables are computed, not loaded
        network.model.rotary_emb = type(network.model.rotary_emb)(config=network.config)
    return network
