"""LLaDA checkpoints (Nie et al. 2025): a LLaMA-like network that attends fully and predicts each token at its own
position.

transformers has no class of this name; the published code (after OLMo's) computes what its native LLaMA computes, under
other names. `native` renames the weights while they are read. No published checkpoint was at hand to measure that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from s2d2cli.models.native import build_native, need_model_type, need_values, renamed

MODEL_TYPES = ("llada",)
# what the native network cannot be told, and what a checkpoint that does not name it means
FIXED = {"block_type": "llama", "layer_norm_type": "rms", "activation_type": "silu", "rope": True, "alibi": False,
         "include_bias": False, "include_qkv_bias": False, "bias_for_layer_norm": False, "attention_layer_norm": False,
         "input_emb_norm": False, "scale_logits": False, "clip_qkv": None}  # fmt: skip

RENAMED = {
    "model.transformer.wte.": "model.embed_tokens.",
    "model.transformer.ln_f.": "model.norm.",
    "model.transformer.ff_out.": "lm_head.",
    "model.transformer.blocks.": "model.layers.",
    ".attn_norm.": ".input_layernorm.",
    ".q_proj.": ".self_attn.q_proj.",
    ".k_proj.": ".self_attn.k_proj.",
    ".v_proj.": ".self_attn.v_proj.",
    ".attn_out.": ".self_attn.o_proj.",
    ".ff_norm.": ".post_attention_layernorm.",
    ".ff_proj.": ".mlp.gate_proj.",
    ".up_proj.": ".mlp.up_proj.",
    ".ff_out.": ".mlp.down_proj.",
}


def build_network(config: dict[str, Any], device: torch.device) -> LlamaForCausalLM:
    """The network without weights; see `build_native`."""
    need_model_type("llada", config, MODEL_TYPES)
    need_values("llada", config, FIXED)
    heads = config["n_heads"]
    settings = {
        "vocab_size": config.get("embedding_size") or config["vocab_size"],  # the embedding may be padded
        "hidden_size": config["d_model"],
        "intermediate_size": config.get("mlp_hidden_size") or config["mlp_ratio"] * config["d_model"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": config.get("n_kv_heads") or (1 if config.get("multi_query_attention") else heads),
        "max_position_embeddings": config["max_sequence_length"],
        "rms_norm_eps": config.get("rms_norm_eps", 1e-5),
        "tie_word_embeddings": config.get("weight_tying", False),
        "rope_theta": config.get("rope_theta", 1e4),
    }
    return build_native(LlamaForCausalLM, settings, (), device)


def native(tensors: Iterator[tuple[str, Tensor]], _: LlamaForCausalLM) -> Iterator[tuple[str, Tensor]]:
    """The checkpoint's tensors by the network's names; one that is not known here keeps its own."""
    for name, tensor in tensors:
        yield renamed(name, RENAMED), tensor
