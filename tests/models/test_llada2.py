"""LLaDA2.x checkpoints through the real loader: the native network's logits, cut into shards, misfitting, broken."""

from __future__ import annotations

import json
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

from s2d2cli.errors import CheckpointError
from s2d2cli.models import llada2
from s2d2cli.models.checkpoint import load_weights, read_json, weights
from tests.conftest import GOLDEN
from tests.models.test_loading import edit, full_forward, load

LLADA2 = GOLDEN / "llada2" / "checkpoint"
TOKENS = list(range(30))
LAYER = "model.layers.1."
EXPERT = LAYER + "mlp.experts.3.up_proj.weight"
FUSED = LAYER + "attention.query_key_value.weight"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(LLADA2, tmp_path / "checkpoint"))


def native_network(folder: Path) -> Glm4MoeForCausalLM:
    """transformers' class, its settings and weights written out by hand."""
    config = Glm4MoeConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
        moe_intermediate_size=32,
        num_experts_per_tok=2,
        n_routed_experts=8,
        n_shared_experts=1,
        routed_scaling_factor=2.5,
        n_group=4,
        topk_group=2,
        first_k_dense_replace=1,
        use_qk_norm=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    )
    tensors = load_file(folder / "model.safetensors")
    state = {name: tensors[name] for name in tensors if ".attention." not in name and ".experts." not in name}
    state["model.embed_tokens.weight"] = state.pop("model.word_embeddings.weight")
    for number in range(4):
        layer = f"model.layers.{number}"
        query, key, value = tensors[f"{layer}.attention.query_key_value.weight"].split([64, 32, 32])
        for name, tensor in (("q_proj", query), ("k_proj", key), ("v_proj", value)):
            state[f"{layer}.self_attn.{name}.weight"] = tensor
        for name, published_name in (("o_proj", "dense"), ("q_norm", "query_layernorm"), ("k_norm", "key_layernorm")):
            state[f"{layer}.self_attn.{name}.weight"] = tensors[f"{layer}.attention.{published_name}.weight"]
        if number:
            state[f"{layer}.mlp.gate.e_score_correction_bias"] = state.pop(f"{layer}.mlp.gate.expert_bias")
            parts = {
                kind: torch.stack([tensors[f"{layer}.mlp.experts.{one}.{kind}_proj.weight"] for one in range(8)])
                for kind in ("gate", "up", "down")
            }
            state[f"{layer}.mlp.experts.gate_up_proj"] = torch.cat([parts["gate"], parts["up"]], 1)
            state[f"{layer}.mlp.experts.down_proj"] = parts["down"]
    network = Glm4MoeForCausalLM(config)
    network.load_state_dict(state, strict=True)
    return network.eval()


def test_logits_equal_the_native_class(folder):
    model = load(folder, family="llada2")
    causal = torch.ones(1, 1, len(TOKENS), len(TOKENS), dtype=torch.bool).tril()  # given: without, another kernel
    with torch.inference_mode():
        theirs = native_network(folder)(torch.tensor([TOKENS]), attention_mask=causal).logits[0]
    ours = full_forward(model, TOKENS)
    others = torch.arange(theirs.shape[-1]) != model.mask_id
    assert (ours - theirs)[:, others].abs().max() < 1e-5
    assert (model.mask_id, model.stop_ids) == (319, (318,))


def save_shards(folder: Path, shards: list[dict[str, torch.Tensor]]) -> list[str]:
    names = [f"model-{number + 1:05}-of-{len(shards):05}.safetensors" for number in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        save_file(shard, folder / name)
    weight_map = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "model.safetensors").unlink()
    return names


def test_shards_that_cut_layers_and_experts_apart_load_alike(folder):
    expected = full_forward(load(folder, family="llada2"), TOKENS)
    tensors = load_file(folder / "model.safetensors")
    names = save_shards(folder, [dict(list(tensors.items())[part::3]) for part in range(3)])
    held = [{key for key in load_file(folder / name) if key.startswith(LAYER + "mlp.experts.3.")} for name in names]
    assert [len(keys) for keys in held] == [1, 1, 1], "an expert must lie in three files here"
    assert torch.equal(full_forward(load(folder, family="llada2"), TOKENS), expected)
    (folder / names[1]).unlink()
    with pytest.raises(CheckpointError, match=r"weights are missing.*model-00002-of-00003\.safetensors"):
        load(folder, family="llada2")


def test_nothing_is_held_twice_while_it_is_read(folder):
    """An expert's matrix is let go once it lies in its stack: a checkpoint of 32 GB needs little more than 32 GB."""
    network = llada2.build_network(read_json(folder, "config.json"), torch.device("cpu"))
    seen, most = [], 0

    def watched():
        nonlocal most
        for name, tensor in weights(folder, torch.float32, torch.device("cpu")):
            if ".mlp.experts." in name:
                seen.append(weakref.ref(tensor))
                most = max(most, sum(ref() is not None for ref in seen))
            yield name, tensor

    load_weights(network, llada2.native(watched(), network), folder)
    assert len(seen) == 3 * 8 * 3 and most <= 2


def without(tensors, name):
    return {key: tensor for key, tensor in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda t: {**t, LAYER + "mlp.experts.8.up_proj.weight": t[EXPERT].clone()},
            r"1 unknown, first .*experts\.8\.up_proj",
        ),
        (lambda t: {**t, LAYER + "attention.query_key_value.bias": torch.zeros(128)}, "1 unknown, first .*value.bias"),
        (
            lambda t: without(t, EXPERT),
            r"lacks 1 of its experts' matrices, first .*layers\.1\.mlp\.experts\.3\.up_proj",
        ),
        (lambda t: without(t, FUSED), r"3 missing, first model\.layers\.1\.self_attn\.k_proj"),
        (
            lambda t: {**t, EXPERT: torch.zeros(31, 64)},
            r"experts\.3\.up_proj\.weight must be \(32, 64\).*got \(31, 64\)",
        ),
        (lambda t: {**t, FUSED: torch.zeros(96, 64)}, r"query_key_value\.weight must have 128 rows .*, got 96"),
        (lambda t: {**t, "lm_head.weight": torch.zeros(1, 64)}, r"1 misshapen, first lm_head\.weight"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(folder, change, sentence):
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder, family="llada2")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"use_bias": True}, "needs use_bias=False in config.json, got True"),
        ({"use_qkv_bias": True}, "needs use_qkv_bias=False in config.json, got True"),
        ({"use_sliding_window": True}, "needs use_sliding_window=False"),
        ({"norm_head": True}, "needs norm_head=False"),
        ({"score_function": "softmax"}, "needs score_function=sigmoid in config.json, got 'softmax'"),
        ({"num_experts_per_tok": 1}, "num_experts_per_tok of at least 2 .*, got 1 and 1"),
        ({"num_shared_experts": 0}, "got 2 and 0"),
        ({"model_type": "sdar"}, "needs a checkpoint with model_type llada2_moe, got 'sdar'"),
        ({"mask_token_id": None}, "names no mask token"),
        ({"num_experts": "8"}, "does not describe a network"),
        ({"num_experts_per_tok": None}, "does not describe a network"),
    ],
)
def test_a_config_that_does_not_fit_gets_a_sentence(folder, entries, sentence):
    edit(folder, **entries)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder, family="llada2")
    assert "\n" not in str(caught.value)


def test_the_wrong_family_is_told(folder):
    with pytest.raises(CheckpointError, match="model.family=sdar needs a checkpoint .*, got 'llada2_moe'"):
        load(folder)


def test_the_routers_weights_stay_exact_in_halves(folder):
    """A bias rounded to bfloat16 would choose other experts."""
    network = load(folder, family="llada2", dtype="bfloat16").network
    gate, stored = network.model.layers[1].mlp.gate, load_file(folder / "model.safetensors")
    assert torch.equal(gate.e_score_correction_bias, stored[LAYER + "mlp.gate.expert_bias"])
    assert gate.weight.dtype == torch.float32
    assert {p.dtype for n, p in network.named_parameters() if ".mlp.gate." not in n} == {torch.bfloat16}
    assert full_forward(load(folder, family="llada2", dtype="bfloat16"), TOKENS).isfinite().any()
