"""How the published formats write a model down: config.json, and the names and cuts of the weights."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tiny_model import Shape
from tiny_tokenizer import END_ID, MASK_ID, PAD_ID
from torch import Tensor

Named = Iterator[tuple[str, Tensor]]
SHARED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "rms_norm_eps", "rope_theta"),
)
COMMON = {
    "attention_dropout": 0.0,
    "eos_token_id": END_ID,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "mask_token_id": MASK_ID,
    "max_position_embeddings": 2048,
    "pad_token_id": PAD_ID,
    "sliding_window": None,
    "torch_dtype": "float32",
    "use_cache": True,
    "use_sliding_window": False,
}
LLADA2_NAMES = {
    ".self_attn.o_proj.": ".attention.dense.",
    ".self_attn.q_norm.": ".attention.query_layernorm.",
    ".self_attn.k_norm.": ".attention.key_layernorm.",
}


@dataclass(frozen=True)
class Layout:
    config: Callable[[Shape], dict[str, Any]]  # beside SHARED and COMMON
    tensors: Callable[[dict[str, Tensor], Shape], Named]  # from the parameters of TinyModel


def config_of(layout: Layout, shape: Shape) -> dict[str, Any]:
    return {**COMMON, **{key: getattr(shape, key) for key in SHARED}, **layout.config(shape)}


def as_they_are(weights: dict[str, Tensor], shape: Shape) -> Named:
    yield from weights.items()


def sdar_config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["SDARForCausalLM"],
        "attention_bias": False,
        "block_size": 16,  # the middle of the trained block lengths, and the default when decoding
        "head_dim": shape.head_dim,
        "max_window_layers": shape.num_hidden_layers,
        "model_type": "sdar",
        "tie_word_embeddings": True,
    }


def fast_dllm_v2_config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "bd_size": 32,
        "layer_types": ["full_attention"] * shape.num_hidden_layers,
        "max_window_layers": shape.num_hidden_layers,
        "model_type": "Fast_dLLM_Qwen",
        "rope_scaling": None,
        "tie_word_embeddings": True,
    }


def llada2_config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LLaDA2MoeModelLM"],
        "first_k_dense_replace": 1,
        "head_dim": shape.head_dim,
        "model_type": "llada2_moe",
        "moe_intermediate_size": shape.expert_size,
        "n_group": 1,
        "norm_head": False,
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.experts_per_token,
        "num_shared_experts": 1,
        "partial_rotary_factor": shape.rotary_dim / shape.head_dim,
        "rope_scaling": None,
        "routed_scaling_factor": shape.expert_scale,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "use_bias": False,
        "use_qk_norm": True,
        "use_qkv_bias": False,
    }


def llada2_tensors(weights: dict[str, Tensor], shape: Shape) -> Named:
    """Queries, keys and values in one matrix; every expert in matrices of its own; the head beside the embedding."""
    embedding = weights["model.embed_tokens.weight"]
    yield from (("model.word_embeddings.weight", embedding), ("lm_head.weight", embedding.clone()))
    for name, tensor in weights.items():
        layer, _, inner = name.partition(".self_attn.q_proj.")
        if inner:
            fused = [weights[f"{layer}.self_attn.{kind}_proj.weight"] for kind in "qkv"]
            yield f"{layer}.attention.query_key_value.weight", torch.cat(fused)
        elif ".mlp.experts." in name:
            yield from experts(name, tensor, shape.num_experts)
        elif not name.endswith(("embed_tokens.weight", "k_proj.weight", "v_proj.weight")):
            yield renamed(name), tensor


def experts(name: str, wide: Tensor, count: int) -> Named:
    """The inner columns of the wide MLP belong to the experts in turn."""
    for number, part in enumerate(wide.chunk(count, 1 if "down_proj" in name else 0)):
        yield name.replace(".experts.", f".experts.{number}."), part


def renamed(name: str) -> str:
    for ours, theirs in LLADA2_NAMES.items():
        name = name.replace(ours, theirs)
    return name


LAYOUTS = {
    "sdar": Layout(sdar_config, as_they_are),
    "fast_dllm_v2": Layout(fast_dllm_v2_config, as_they_are),
    "llada2": Layout(llada2_config, llada2_tensors),
}
