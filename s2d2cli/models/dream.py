"""Dream checkpoints (Ye et al. 2025): the Qwen2 architecture, attending fully, right-shifted.

By their keys and config.json the published weights are those of transformers' native Qwen2; no published checkpoint was
at hand to measure that.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen2ForCausalLM

from s2d2cli.errors import CheckpointError
from s2d2cli.models.native import build_native, need_model_type

MODEL_TYPES = ("Dream",)


def build_network(config: dict[str, Any], device: torch.device) -> Qwen2ForCausalLM:
    """The network without weights; see `build_native`."""
    need_model_type("dream", config, MODEL_TYPES)
    if config.get("use_sliding_window"):
        raise CheckpointError("model.family=dream attends fully, and config.json has use_sliding_window=true")
    return build_native(Qwen2ForCausalLM, config, (), device)
