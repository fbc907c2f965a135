"""LoRA adapters: what is merged while weights are read computes what the adapter beside the weights does; misfits."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from s2d2cli.errors import CheckpointError
from s2d2cli.models.llada import RENAMED
from s2d2cli.models.native import renamed
from tests import published
from tests.models.test_llada2 import save_shards
from tests.models.test_loading import full_forward, load

TOKENS = list(range(30))
FIRST = "base_model.model.model.transformer.blocks.0.attn_out.lora_"


@pytest.fixture(params=["llada", "dream"])
def family(request):
    return request.param


@pytest.fixture
def network(family, tmp_path):
    """transformers' own network of the checkpoint that lies in tmp_path / "base"."""
    return getattr(published, family)(tmp_path / "base")


def adapted(tmp_path, family, **settings):
    return load(tmp_path / "base", family=f"d2f_{family}", adapter=str(tmp_path / "adapter"), **settings)


def layer(network, module: str) -> torch.nn.Linear:
    """Dream's published names are the native ones."""
    name = module + ".weight"
    ours = renamed(name, RENAMED) if "transformer" in name else name
    return network.get_submodule(ours.removesuffix(".weight"))


def put_beside(network, parts, scale) -> None:
    """Each adapter as a path of its own: y + scale(module) * B (A x)."""
    for module, (down_RI, up_OR) in parts.items():

        def add(_, inputs, output, module=module, down_RI=down_RI, up_OR=up_OR):
            return output + scale(module) * (inputs[0] @ down_RI.T @ up_OR.T)

        layer(network, module).register_forward_hook(add)


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, lambda _: 2.0),
        ({"lora_alpha": 1, "use_rslora": True}, lambda _: 0.5),
        ({"alpha_pattern": {"q_proj": 4, r"1\.(mlp\.)?up_proj": 2}, "lora_alpha": 1}, None),
    ],
    ids=["plain", "rank-stabilised", "alpha by layer"],
)
def test_a_merged_adapter_computes_what_one_beside_the_weights_does(tmp_path, family, network, config, scale):
    base = full_forward(load(tmp_path / "base", family=family), TOKENS)
    parts = published.lora(tmp_path / "adapter", load_file(tmp_path / "base" / "model.safetensors"), **config)
    scale = scale or (
        lambda module: (4 if "q_proj" in module else 2 if module.endswith(("1.mlp.up_proj", "1.up_proj")) else 1) / 4
    )
    model = adapted(tmp_path, family)
    put_beside(network, parts, scale)
    with torch.inference_mode():
        for module, (down_RI, _) in parts.items():
            x_XI = torch.randn(9, down_RI.shape[1], generator=torch.Generator().manual_seed(3))
            torch.testing.assert_close(
                layer(model.network, module)(x_XI), layer(network, module)(x_XI), rtol=1e-5, atol=1e-5
            )
        theirs = network(torch.tensor([TOKENS])).logits[0]
    ours = full_forward(model, TOKENS)
    others = torch.arange(theirs.shape[-1]) != model.mask_id
    shift = model.shift
    # a network of random weights multiplies the last digits, layer by layer
    assert (ours[shift:] - theirs[: len(TOKENS) - shift])[:, others].abs().max() < 1e-3
    assert (ours - base)[:, others].abs().max() > 1
    assert len(parts) == 21 and model.whole_prompt and not model.attends_fully


def test_shards_and_transposed_weights(tmp_path):
    published.llada(tmp_path / "base")
    tensors = load_file(tmp_path / "base" / "model.safetensors")
    published.lora(tmp_path / "adapter", tensors)
    expected = full_forward(adapted(tmp_path, "llada"), TOKENS)
    save_shards(tmp_path / "base", [dict(list(tensors.items())[part::3]) for part in range(3)])
    assert torch.equal(full_forward(adapted(tmp_path, "llada"), TOKENS), expected)


def test_fan_in_fan_out_changes_the_transposed_weight(tmp_path):
    from s2d2cli.models.lora import Lora

    weight_IO = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    parts = published.lora(tmp_path / "adapter", {"x.q_proj.weight": weight_IO.T}, fan_in_fan_out=True)
    down_RI, up_OI = parts["x.q_proj"]
    found = dict(Lora(tmp_path / "adapter").merged(iter([("x.q_proj.weight", weight_IO)])))["x.q_proj.weight"]
    torch.testing.assert_close(found, weight_IO + 2 * (up_OI @ down_RI).T)


def test_narrow_weights_are_summed_in_float32_and_rounded_once(tmp_path):
    from s2d2cli.models.lora import Lora

    weight = torch.full((4, 4), 1.0, dtype=torch.bfloat16)
    published.lora(tmp_path / "adapter", {"x.q_proj.weight": weight})
    ((_, found),) = Lora(tmp_path / "adapter").merged(iter([("x.q_proj.weight", weight)]))
    ((_, exact),) = Lora(tmp_path / "adapter").merged(iter([("x.q_proj.weight", weight.float())]))
    assert found.dtype == torch.bfloat16 and torch.equal(found, exact.bfloat16())


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"use_dora": True}, "must have use_dora=False, got True"),
        ({"bias": "lora_only"}, "must have bias=none, got 'lora_only'"),
        ({"peft_type": "IA3"}, "must have peft_type=LORA, got 'IA3'"),
        ({"modules_to_save": ["lm_head"]}, r"must have modules_to_save=None, got \['lm_head'\]"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa', which changes the base weights"),
        ({"lora_alpha": None}, "must give lora_alpha as a number, got None"),
    ],
)
def test_an_adapter_that_is_no_plain_lora_is_refused(tmp_path, config, sentence):
    published.llada(tmp_path / "base")
    published.lora(tmp_path / "adapter", load_file(tmp_path / "base" / "model.safetensors"), **config)
    refused(tmp_path, sentence)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: {**t, "base_model.model.x.lora_magnitude_vector": torch.ones(1)}, "lora_B of .* alone, it has base"),
        (
            lambda t: {key: t[key] for key in t if key != FIRST + "B.weight"},
            r"is missing for model\.transformer\..*attn_out",
        ),
        (lambda t: {}, "and there are none"),
        (
            lambda t: {**t, **{f"base_model.model.lm.q_proj.lora_{s}.weight": torch.ones(1, 1) for s in "AB"}},
            r"1 of its layers are not there, first lm\.q_proj; is it the adapter of another model",
        ),
        (lambda t: {**t, FIRST + "A.weight": torch.ones(4, 31)}, r"fit .*attn_out: A \[4, 31\] and B \[32, 4\]"),
        (lambda t: {**t, FIRST + "A.weight": torch.ones(3, 32)}, r"fit .*attn_out: A \[3, 32\] and B \[32, 4\]"),
    ],
)
def test_matrices_that_do_not_fit_are_named(tmp_path, change, sentence):
    published.llada(tmp_path / "base")
    published.lora(tmp_path / "adapter", load_file(tmp_path / "base" / "model.safetensors"))
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)
    refused(tmp_path, sentence)


def test_what_is_missing_or_broken_is_told(tmp_path):
    published.llada(tmp_path / "base")
    with pytest.raises(CheckpointError, match="the adapter must be a folder or a hub id"):
        adapted(tmp_path, "llada")
    published.lora(tmp_path / "adapter", load_file(tmp_path / "base" / "model.safetensors"))
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    refused(tmp_path, "adapter_model.safetensors cannot be read .* download the adapter again")
    path.unlink()
    refused(tmp_path, r"must hold adapter_model\.safetensors; there is none")
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps([]))
    refused(tmp_path, "must hold a JSON object")
    (tmp_path / "adapter" / "adapter_config.json").unlink()
    refused(tmp_path, r"must hold adapter_config\.json")


def test_an_adapter_is_no_model_of_its_own(tmp_path):
    published.lora(tmp_path / "adapter", {"x.q_proj.weight": torch.ones(4, 4)}, base_model_name_or_path="GSAI-ML/X")
    with pytest.raises(CheckpointError, match=r"holds a LoRA adapter, .* changes \(GSAI-ML/X\) as --model"):
        load(tmp_path / "adapter", family="d2f_llada")


def refused(tmp_path, sentence):
    with pytest.raises(CheckpointError, match=sentence) as caught:
        adapted(tmp_path, "llada")
    assert "\n" not in str(caught.value)
