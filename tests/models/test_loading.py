"""The real loader on small checkpoints in the published layout, whole, sharded and broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2ForCausalLM, Qwen3ForCausalLM

from s2d2cli.config import ModelConfig, RunConfig
from s2d2cli.decode import Request
from s2d2cli.errors import CheckpointError, ConfigError, PromptError
from s2d2cli.models import load_model
from s2d2cli.models.plan import ForwardPlan, Kind
from tests.conftest import GOLDEN, s2d2

NATIVE = {"sdar": ("qwen3", Qwen3ForCausalLM), "fast_dllm_v2": ("qwen2", Qwen2ForCausalLM)}


@pytest.fixture(params=NATIVE)
def folder(request, tmp_path) -> Path:
    """A checkpoint of each family, in a path of characters that break override grammars; see `family_of`."""
    return Path(shutil.copytree(GOLDEN / request.param / "checkpoint", tmp_path / request.param / "a=b #1, c"))


def family_of(folder: Path) -> str:
    return folder.parent.name if folder.parent.name in NATIVE else "sdar"


def load(folder: Path, **settings):
    run = {key: settings.pop(key) for key in ("device", "dtype") if key in settings}
    model = ModelConfig(name="x", source=str(folder), **{"family": family_of(folder), **settings})
    return load_model(RunConfig(model=model, **{"device": "cpu", **run}))


def edit(folder: Path, **entries) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def full_forward(model, tokens: list[int]) -> torch.Tensor:
    """Logits of the token at every position under plain causal attention, through our adapter."""
    length = len(tokens)
    row = torch.arange(length)[None]
    visible = torch.ones(1, length, length, dtype=torch.bool).tril()
    plan = ForwardPlan(Kind.PREFILL, torch.tensor([tokens]), row, row, visible, row)
    return model.forward(plan, model.new_cache(1, length, 0))[0]


def test_logits_equal_the_native_class(folder):
    """transformers' own loader takes the folder as its own class once the model type says so. Where that class scores
    the next token, our row for a token is its row one to the left."""
    tokens = list(range(30))
    model = load(folder)
    ours = full_forward(model, tokens)
    model_type, native_class = NATIVE[family_of(folder)]
    edit(folder, model_type=model_type)
    native = native_class.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        theirs = native(torch.tensor([tokens])).logits[0]
    others = torch.arange(theirs.shape[-1]) != model.mask_id
    assert (ours[model.shift :] - theirs[: len(tokens) - model.shift])[:, others].abs().max() < 1e-5
    assert torch.isneginf(ours[:, model.mask_id]).all()


def test_sharded_weights_load_alike(folder):
    tokens = list(range(30))
    expected = full_forward(load(folder), tokens)
    tensors = load_file(folder / "model.safetensors")
    halves = [dict(list(tensors.items())[part::2]) for part in range(2)]
    names = [f"model-{part + 1:05}-of-00002.safetensors" for part in range(2)]
    for name, half in zip(names, halves, strict=True):
        save_file(half, folder / name)
    weight_map = {key: name for name, half in zip(names, halves, strict=True) for key in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "model.safetensors").unlink()
    assert torch.equal(full_forward(load(folder), tokens), expected)
    (folder / names[1]).unlink()
    with pytest.raises(CheckpointError, match=r"weights are missing.*model-00002-of-00002\.safetensors"):
        load(folder)


def test_tied_and_rope_parameters_spellings(folder):
    """A checkpoint saved by transformers 5 writes rope_parameters; a tied one has no lm_head."""
    tokens = list(range(30))
    config = json.loads((folder / "config.json").read_text())
    before = full_forward(load(folder), tokens)
    edit(folder, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]})
    assert torch.equal(full_forward(load(folder), tokens), before)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1 missing, first lm_head\.weight"):
        load(folder)
    edit(folder, tie_word_embeddings=True)
    model = load(folder)
    assert torch.equal(model.network.lm_head.weight, model.network.model.embed_tokens.weight)


def test_special_ids(folder):
    assert load(folder).mask_id == 319
    assert load(folder).stop_ids == (318,)
    for eos, expected in ((None, ()), (317, (317,)), ([1, 2], (1, 2))):
        edit(folder, eos_token_id=eos)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
        assert load(folder).stop_ids == expected
    edit(folder, mask_token_id=320)
    with pytest.raises(CheckpointError, match="mask token's id must be below the vocabulary size 320, got 320"):
        load(folder)
    edit(folder, mask_token_id=None)
    with pytest.raises(CheckpointError, match="names no mask token"):
        load(folder)


def test_wrong_checkpoints_are_named(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.extra.weight": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1 unknown, first model\.extra\.weight"):
        load(folder)
    edit(folder, model_type="llama")
    family = family_of(folder)
    with pytest.raises(CheckpointError, match=f"{family} needs .* model_type .* or {NATIVE[family][0]}, got 'llama'"):
        load(folder)
    edit(folder, model_type=NATIVE[family][0])
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-8])
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read.*download"):
        load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json must be JSON"):
        load(folder)
    with pytest.raises(ConfigError, match="model.family must be one of sdar, fast_dllm_v2"):
        load(folder, family="sdra")
    with pytest.raises(CheckpointError, match="no folder 'nowhere'"):
        load(Path("nowhere"))


def test_dtype_and_device(folder):
    assert load(folder).dtype == torch.float32
    assert load(folder, dtype="bfloat16").dtype == torch.bfloat16
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="needs a CUDA device"):
            load(folder, device="cuda")


def test_no_forward_writes_outside_its_slots(golden_model):
    """The cache contract: unseen slots keep what they held."""
    cache = golden_model.new_cache(1, 8, 2)
    plan = ForwardPlan(
        Kind.DRAFT,
        torch.tensor([[5, 6]]),
        torch.tensor([[0, 1]]),
        torch.tensor([[2, 3]]),
        torch.tensor([[[False, False, True, False], [False, False, True, True]]]),
        torch.tensor([[1]]),
    )
    assert golden_model.forward(plan, cache).shape == (1, 1, golden_model.vocabulary.size)
    for stored_BTHD in cache.keys_BTHD + cache.values_BTHD:
        written = stored_BTHD[0].abs().sum((1, 2)) > 0
        assert written.tolist() == [False, False, True, True] + [False] * 6


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_half_precision_decodes(folder, dtype, temperature):
    model = load(folder, dtype=dtype)
    decoder = s2d2(block_length=8, max_new_tokens=20, temperature=temperature, top_k=20, top_p=0.95)
    result = decoder.generate(model, [Request("a", [1, 2, 3]), Request("b", list(range(20)))])
    for generation in result.generations:
        assert len(generation.token_ids) == 20
        assert "accepted" in generation.sources


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("config.json", "[1]", "must hold a JSON object, got list"),
        ("config.json", {"hidden_act": "nope"}, "does not describe a network"),
        ("config.json", {"vocab_size": "abc"}, "does not describe a network"),
        ("config.json", {"mask_token_id": "x"}, "mask_token_id must be a token id"),
        ("config.json", {"eos_token_id": "x"}, "(eos_token_id must be|does not describe a network)"),
        ("generation_config.json", {"eos_token_id": "x"}, "eos_token_id must be a token id"),
        ("tokenizer.json", "{}", "tokenizer files in .* cannot be read"),
        ("model.safetensors.index.json", '{"a": 1}', "must hold a weight_map"),
    ],
)
def test_odd_files_get_a_sentence(folder, name, content, sentence):
    path = folder / name
    if isinstance(content, dict):
        content = json.dumps({**json.loads(path.read_text()), **content})
    path.write_text(content)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_broken_chat_template_gets_a_sentence():
    model = load_model(RunConfig(model=ModelConfig(name="tiny", source="package:tiny"), device="cpu"))
    model.tokenizer.chat_template = "{% if %}"
    with pytest.raises(PromptError, match="chat template of model tiny cannot render"):
        model.chat_prompt([{"role": "user", "content": "Hello"}])
