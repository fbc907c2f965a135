"""SDAR checkpoints (Cheng et al. 2025): the Qwen3 architecture, predicting each token at its own position.

The published remote code computes what transformers' native Qwen3 computes (max logit difference 1e-5, measured), so
the native class is used with `config.json` read directly: transformers does not know `model_type: sdar`.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from s2d2cli.models.native import build_native, need_model_type

MODEL_TYPES = ("sdar", "qwen3")
FOREIGN = ("block_size", "fuse_cross_entropy")


def build_network(config: dict[str, Any], device: torch.device) -> Qwen3ForCausalLM:
    """The network without weights; see `build_native`."""
    need_model_type("sdar", config, MODEL_TYPES)
    return build_native(Qwen3ForCausalLM, config, FOREIGN, device)
