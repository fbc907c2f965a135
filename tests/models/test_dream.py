"""Dream checkpoints through the real loader: the native logits one position to the right, misfitting, broken."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from s2d2cli.errors import CheckpointError
from tests import published
from tests.models.test_llada2 import save_shards, without
from tests.models.test_loading import edit, full_forward, load

TOKENS = list(range(30))


@pytest.fixture
def folder(tmp_path):
    published.dream(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_logits_are_the_native_classes_one_position_to_the_right(tmp_path):
    native = published.dream(tmp_path / "checkpoint")
    model = load(tmp_path / "checkpoint", family="dream")
    with torch.inference_mode():
        theirs = native(torch.tensor([TOKENS])).logits[0]
    ours = full_forward(model, TOKENS)
    others = torch.arange(theirs.shape[-1]) != model.mask_id
    assert (ours[1:] - theirs[:-1])[:, others].abs().max() < 1e-5
    assert (model.mask_id, model.stop_ids, model.context) == (published.MASK, (published.STOP,), 256)
    assert model.attends_fully and model.shift == 1


def test_shards_load_alike(folder):
    expected = full_forward(load(folder, family="dream"), TOKENS)
    tensors = list(load_file(folder / "model.safetensors").items())
    save_shards(folder, [dict(tensors[part::2]) for part in range(2)])
    assert torch.equal(full_forward(load(folder, family="dream"), TOKENS), expected)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"model_type": "qwen2"}, "model.family=dream needs a checkpoint with model_type Dream, got 'qwen2'"),
        ({"use_sliding_window": True}, "attends fully, and config.json has use_sliding_window=true"),
        ({"mask_token_id": None}, "names no mask token"),
        ({"num_attention_heads": "4"}, "does not describe a network"),
    ],
)
def test_a_config_that_does_not_fit_gets_a_sentence(folder, entries, sentence):
    edit(folder, **entries)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder, family="dream")
    assert "\n" not in str(caught.value)


def test_a_missing_tensor_and_the_wrong_family_are_named(folder):
    with pytest.raises(CheckpointError, match="model.family=llada needs a checkpoint .*, got 'Dream'"):
        load(folder, family="llada")
    name = "model.layers.1.self_attn.q_proj.bias"
    save_file(without(load_file(folder / "model.safetensors"), name), folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"1 missing, first {name}"):
        load(folder, family="dream")
