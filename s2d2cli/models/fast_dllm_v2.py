"""Fast-dLLM v2 checkpoints (Wu et al. 2025): the Qwen2 architecture, predicting each token one position to its left.

The published remote code computes what transformers' native Qwen2 computes (max logit difference 0, measured).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen2ForCausalLM

from s2d2cli.models.native import build_native, need_model_type

MODEL_TYPES = ("Fast_dLLM_Qwen", "qwen2")
FOREIGN = ("bd_size",)  # the trained block length


def build_network(config: dict[str, Any], device: torch.device) -> Qwen2ForCausalLM:
    """The network without weights; see `build_native`."""
    need_model_type("fast_dllm_v2", config, MODEL_TYPES)
    return build_native(Qwen2ForCausalLM, config, FOREIGN, device)
