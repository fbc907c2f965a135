"""LLaDA2.x checkpoints (inclusionAI): a mixture of experts that predicts each token at its own position.

The published remote code computes what transformers' native GLM-4-MoE computes (max logit difference 1e-5, measured);
only names and layout of the weights differ: queries, keys and values lie in one matrix, each expert in matrices of its
own. `native` brings them into the native layout while they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

from s2d2cli.errors import CheckpointError
from s2d2cli.models.native import build_native, need_model_type, need_values, renamed

SHARED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "num_key_value_heads", "hidden_act", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
          "moe_intermediate_size", "num_experts_per_tok", "routed_scaling_factor", "n_group", "topk_group",
          "first_k_dense_replace")  # fmt: skip
# what the native network cannot be told, and what a checkpoint that does not name it means
FIXED = {"use_bias": False, "use_qkv_bias": False, "use_sliding_window": False, "norm_head": False,
         "score_function": "sigmoid"}  # fmt: skip
# the router is computed in float32; its bias, rounded, would choose other experts
EXACT = (".mlp.gate.",)

RENAMED = {
    "model.word_embeddings.": "model.embed_tokens.",
    ".attention.dense.": ".self_attn.o_proj.",
    ".attention.query_layernorm.": ".self_attn.q_norm.",
    ".attention.key_layernorm.": ".self_attn.k_norm.",
    ".mlp.gate.expert_bias": ".mlp.gate.e_score_correction_bias",
}
FUSED = ".attention.query_key_value.weight"


def build_network(config: dict[str, Any], device: torch.device) -> Glm4MoeForCausalLM:
    """The network without weights; see `build_native`."""
    need_model_type("llada2", config, ["llada2_moe"])
    check(config)
    settings = {
        **{key: config[key] for key in SHARED},
        "head_dim": config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        "n_routed_experts": config["num_experts"],
        "n_shared_experts": config["num_shared_experts"],
        "use_qk_norm": config.get("use_qk_norm", True),
        "rope_theta": config["rope_theta"],
        "rope_scaling": config.get("rope_scaling"),
        "rope_parameters": {"partial_rotary_factor": config.get("partial_rotary_factor", 1.0)},
    }
    return build_native(Glm4MoeForCausalLM, settings, (), device)


def check(config: dict[str, Any]) -> None:
    """Refuse what the native network would compute otherwise."""
    need_values("llada2", config, FIXED)
    if config["num_experts_per_tok"] < 2 or config["num_shared_experts"] < 1:
        raise CheckpointError(
            f"model.family=llada2 needs num_experts_per_tok of at least 2 and num_shared_experts of at least 1 in "
            f"config.json, got {config['num_experts_per_tok']} and {config['num_shared_experts']}"
        )


def native(tensors: Iterator[tuple[str, Tensor]], network: Glm4MoeForCausalLM) -> Iterator[tuple[str, Tensor]]:
    """The checkpoint's tensors by the network's names, in whatever order they come and shards cut them apart.

    An expert's matrix goes into its place in its layer's stack at once, so nothing is held twice. A name that is not
    known here stays as it is.
    """
    places = dict(expert_places(network))
    waiting = Counter(place.stack for place in places.values())
    stacks: dict[str, Tensor] = {}
    for name, tensor in tensors:
        if name.endswith(FUSED):
            yield from split(name.removesuffix(FUSED), tensor, network.config)
        elif name in places:
            place = places.pop(name)
            if place.stack not in stacks:
                stacks[place.stack] = tensor.new_empty(place.shape)
            fill(stacks[place.stack][place.expert, place.rows], tensor, name)
            waiting[place.stack] -= 1
            if not waiting[place.stack]:
                yield place.stack, stacks.pop(place.stack)
        else:
            yield renamed(name, RENAMED), tensor
    if places:
        raise CheckpointError(f"the checkpoint lacks {len(places)} of its experts' matrices, first {min(places)}")


@dataclass(frozen=True)
class Place:
    """Where an expert's matrix lies in its layer's stack."""

    stack: str
    shape: torch.Size  # of the stack
    expert: int
    rows: slice


def expert_places(network: Glm4MoeForCausalLM) -> Iterator[tuple[str, Place]]:
    """Gate rows lie above up rows."""
    for name, tensor in network.state_dict().items():
        layer, _, stack = name.partition(".mlp.experts.")
        half = tensor.shape[1] // 2 if stack else 0
        rows = {"gate_up_proj": {"gate": slice(half), "up": slice(half, None)}, "down_proj": {"down": slice(None)}}
        for kind, part in rows.get(stack, {}).items():
            for expert in range(len(tensor)):
                yield f"{layer}.mlp.experts.{expert}.{kind}_proj.weight", Place(name, tensor.shape, expert, part)


def fill(place: Tensor, matrix: Tensor, name: str) -> None:
    if matrix.shape != place.shape:
        raise CheckpointError(f"{name} must be {tuple(place.shape)} by config.json, got {tuple(matrix.shape)}")
    place.copy_(matrix)


def split(layer: str, fused: Tensor, config: Glm4MoeConfig) -> Iterator[tuple[str, Tensor]]:
    """Queries, keys and values, which lie below each other."""
    queries, others = (heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads))
    if len(fused) != queries + 2 * others:
        raise CheckpointError(f"{layer}{FUSED} must have {queries + 2 * others} rows by config.json, got {len(fused)}")
    for kind, part in zip("qkv", torch.split(fused, [queries, others, others]), strict=True):
        yield f"{layer}.self_attn.{kind}_proj.weight", part
