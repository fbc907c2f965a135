"""LLaDA checkpoints through the real loader: the native network's logits, cut into shards, misfitting, broken."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from s2d2cli.errors import CheckpointError
from tests import published
from tests.models.test_llada2 import save_shards, without
from tests.models.test_loading import edit, full_forward, load

TOKENS = list(range(30))
BLOCK = "model.transformer.blocks.1."


@pytest.fixture
def folder(tmp_path):
    published.llada(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_logits_equal_the_native_class(tmp_path):
    native = published.llada(tmp_path / "checkpoint")
    model = load(tmp_path / "checkpoint", family="llada")
    with torch.inference_mode():
        theirs = native(torch.tensor([TOKENS])).logits[0]
    ours = full_forward(model, TOKENS)
    others = torch.arange(theirs.shape[-1]) != model.mask_id
    assert (ours - theirs)[:, others].abs().max() < 1e-5
    assert (model.mask_id, model.stop_ids, model.context) == (published.MASK, (published.STOP,), 256)


def test_shards_load_alike(folder):
    expected = full_forward(load(folder, family="llada"), TOKENS)
    tensors = list(load_file(folder / "model.safetensors").items())
    names = save_shards(folder, [dict(tensors[part::3]) for part in range(3)])
    assert torch.equal(full_forward(load(folder, family="llada"), TOKENS), expected)
    (folder / names[1]).unlink()
    with pytest.raises(CheckpointError, match=r"weights are missing.*model-00002-of-00003\.safetensors"):
        load(folder, family="llada")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: without(t, BLOCK + "ff_proj.weight"), r"1 missing, first model\.layers\.1\.mlp\.gate_proj\.weight"),
        (lambda t: without(t, "model.transformer.ff_out.weight"), r"1 missing, first lm_head\.weight"),
        (lambda t: {**t, BLOCK + "q_proj.bias": torch.zeros(32)}, r"1 unknown, first .*self_attn\.q_proj\.bias"),
        (lambda t: {**t, BLOCK + "up_proj.weight": torch.zeros(47, 32)}, r"1 misshapen, first .*up_proj\.weight"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(folder, change, sentence):
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder, family="llada")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"include_qkv_bias": True}, "needs include_qkv_bias=False in config.json, got True"),
        ({"layer_norm_type": "default"}, "needs layer_norm_type=rms in config.json, got 'default'"),
        ({"alibi": True}, "needs alibi=False"),
        ({"scale_logits": True}, "needs scale_logits=False"),
        ({"model_type": "sdar"}, "needs a checkpoint with model_type llada, got 'sdar'"),
        ({"mask_token_id": None}, "names no mask token"),
        ({"n_heads": "4"}, "does not describe a network"),
        ({"d_model": None}, "does not describe a network"),
    ],
)
def test_a_config_that_does_not_fit_gets_a_sentence(folder, entries, sentence):
    edit(folder, **entries)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder, family="llada")
    assert "\n" not in str(caught.value)


def test_the_wrong_family_is_told(folder):
    for family in ("sdar", "llada2"):
        with pytest.raises(CheckpointError, match=f"model.family={family} needs a checkpoint .*, got 'llada'"):
            load(folder, family=family)


def test_what_a_config_may_leave_out(folder):
    """Tied embeddings have no matrix of their own for the logits; key heads, if not named, are as many as others."""
    tensors = load_file(folder / "model.safetensors")
    tensors["model.transformer.ff_out.weight"] = tensors["model.transformer.wte.weight"].clone()
    for name in [name for name in tensors if ".k_proj." in name or ".v_proj." in name]:
        heads = tensors[name].unflatten(0, (2, 8))
        tensors[name] = heads.repeat_interleave(2, 0).flatten(0, 1)
    edit(folder, n_kv_heads=None, mlp_hidden_size=48, embedding_size=None)
    save_file(tensors, folder / "model.safetensors")
    expected = full_forward(load(folder, family="llada"), TOKENS)
    edit(folder, weight_tying=True)
    save_file(without(tensors, "model.transformer.ff_out.weight"), folder / "model.safetensors")
    assert torch.equal(full_forward(load(folder, family="llada"), TOKENS), expected)
