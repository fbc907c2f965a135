"""Small random checkpoints in the layouts of models whose published weights are too large for a test."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

VOCABULARY, STOP, MASK = 100, 98, 99
LLADA = {  # the keys of LLaDA-8B-Instruct's config.json that say something of the network, small
    "model_type": "llada",
    "d_model": 32,
    "n_heads": 4,
    "n_kv_heads": 2,
    "n_layers": 3,
    "mlp_hidden_size": 48,
    "mlp_ratio": 4,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "embedding_size": VOCABULARY,
    "max_sequence_length": 256,
    "weight_tying": False,
    "block_type": "llama",
    "layer_norm_type": "rms",
    "activation_type": "silu",
    "rope": True,
    "alibi": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "multi_query_attention": None,
    "eos_token_id": STOP,
    "mask_token_id": MASK,
}


def llada(folder: Path) -> LlamaForCausalLM:
    """Write a checkpoint as LLaDA's are published; returns transformers' own network of the same weights."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    network = scattered(LlamaForCausalLM(config))
    ours = network.state_dict()
    tensors = {
        "model.transformer.wte.weight": ours["model.embed_tokens.weight"],
        "model.transformer.ln_f.weight": ours["model.norm.weight"],
        "model.transformer.ff_out.weight": ours["lm_head.weight"],
    }
    for number in range(3):
        theirs, layer = f"model.transformer.blocks.{number}", f"model.layers.{number}"
        for name in "qkv":
            tensors[f"{theirs}.{name}_proj.weight"] = ours[f"{layer}.self_attn.{name}_proj.weight"]
        tensors[f"{theirs}.attn_out.weight"] = ours[f"{layer}.self_attn.o_proj.weight"]
        tensors[f"{theirs}.attn_norm.weight"] = ours[f"{layer}.input_layernorm.weight"]
        tensors[f"{theirs}.ff_norm.weight"] = ours[f"{layer}.post_attention_layernorm.weight"]
        tensors[f"{theirs}.ff_proj.weight"] = ours[f"{layer}.mlp.gate_proj.weight"]
        tensors[f"{theirs}.up_proj.weight"] = ours[f"{layer}.mlp.up_proj.weight"]
        tensors[f"{theirs}.ff_out.weight"] = ours[f"{layer}.mlp.down_proj.weight"]
    save(folder, LLADA, tensors)
    return network


DREAM = {  # those of Dream-v0-Instruct-7B's, with stray ones
    "model_type": "Dream",
    "architectures": ["DreamModel"],
    "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "max_window_layers": 3,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "sliding_window": None,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": VOCABULARY,
    "eos_token_id": STOP,
    "mask_token_id": MASK,
}


def dream(folder: Path) -> Qwen2ForCausalLM:
    """The same for Dream, whose weights bear the native names."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )
    network = scattered(Qwen2ForCausalLM(config))
    save(folder, DREAM, network.state_dict())
    return network


def lora(folder: Path, tensors: dict[str, torch.Tensor], seed: int = 1, **config) -> dict[str, tuple]:
    """Write an adapter of rank 4 for each attention and MLP matrix among `tensors`; returns its (A, B) by module."""
    draws, parts = torch.Generator().manual_seed(seed), {}
    for name, weight in sorted(tensors.items()):
        if name.endswith(("proj.weight", ".attn_out.weight")) or (".blocks." in name and ".ff_out." in name):
            sides = (torch.randn(4, weight.shape[1], generator=draws), torch.randn(weight.shape[0], 4, generator=draws))
            parts[name.removesuffix(".weight")] = tuple(side * 0.2 for side in sides)
    folder.mkdir(parents=True, exist_ok=True)
    entries = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "use_dora": False, "modules_to_save": None}
    (folder / "adapter_config.json").write_text(json.dumps({**entries, **config}))
    named = {
        f"base_model.model.{module}.lora_{side}.weight": part
        for module, sides in parts.items()
        for side, part in zip("AB", sides, strict=True)
    }
    save_file(named, folder / "adapter_model.safetensors")
    return parts


def scattered(network: torch.nn.Module) -> torch.nn.Module:
    """Weights large enough that a token depends on its surroundings."""
    draws = torch.Generator().manual_seed(0)
    for name, parameter in network.named_parameters():
        noise = torch.randn(parameter.shape, generator=draws)
        parameter.data = 1 + 0.1 * noise if "norm" in name else noise * (0.7 if parameter.ndim > 1 else 0.1)
    return network.eval()


def save(folder: Path, config: dict, tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
