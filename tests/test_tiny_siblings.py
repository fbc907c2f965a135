"""The formats and sizes `tiny` is trained in: batches, the lean model, monitoring and export hold for each of them."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

from tiny_batches import Noise, make_batch
from tiny_data import FAMILIES
from tiny_eval import MAX_ANSWER, dynamic, held_out, speculative
from tiny_export import check_export, export
from tiny_formats import FORMATS, SIZES, shape_of
from tiny_layouts import LAYOUTS
from tiny_model import Router, Shape, TinyModel
from tiny_tokenizer import END_ID, MASK_ID, PAD_ID, build_tokenizer, render
from train_tiny import Trainer

import s2d2cli

ASSETS = Path(s2d2cli.__file__).parent / "assets"


def random_model(name: str, size: str = "tiny") -> TinyModel:
    """Weights large enough that every part moves the logits."""
    torch.manual_seed(0)
    model = TinyModel(shape_of(name, size)).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    for router in (module for module in model.modules() if isinstance(module, Router)):
        router.expert_bias += 0.1 * torch.randn_like(router.expert_bias)
    return model


@given(
    shifted=st.booleans(),
    clean_block=st.sampled_from([1, 4]),
    prompt=st.integers(1, 20),
    answer=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_no_training_query_sees_the_token_it_must_guess(shifted, clean_block, prompt, answer, seed):
    ids, rng = list(range(4, 4 + prompt + answer)), torch.Generator().manual_seed(seed)
    batch = make_batch([(ids, prompt)], clean_block, (clean_block, 8), rng, shifted=shifted)
    clean_keys = slice(len(ids))
    assert batch.weights_BN.sum() > 0
    for number in batch.weights_BN[0].nonzero()[:, 0].tolist():
        query, target = batch.rows_BN[0, number], batch.targets_BN[0, number]
        position = batch.positions_BQ[0, query] + shifted
        assert target == (ids[position] if position < len(ids) else PAD_ID)
        seen = batch.visible_BQQ[0, query] & (batch.positions_BQ[0] == position)
        assert (batch.tokens_BQ[0][seen] != target).all()
        clean = batch.visible_BQQ[0, query, clean_keys].nonzero()[:, 0]
        # Clean keys must not have looked at it either, through the clean block that they share.
        assert not batch.visible_BQQ[0, clean, clean_keys][:, position : position + 1].any()


def test_a_shifted_warm_start_is_plain_autoregressive_training():
    ids = list(range(4, 24))
    batch = make_batch([(ids, 7)], 1, (1,), torch.Generator().manual_seed(0), shifted=True)
    assert batch.tokens_BQ.tolist() == [ids]
    assert torch.equal(batch.visible_BQQ[0], torch.ones(20, 20, dtype=torch.bool).tril())
    assert batch.rows_BN.tolist() == [list(range(6, 19))]
    assert batch.targets_BN.tolist() == [ids[7:]]


def test_leaning_noise_masks_the_end_of_a_block():
    examples = [(list(range(4, 132)), 32)] * 8
    batch = make_batch(examples, 1, (32,), torch.Generator().manual_seed(0), Noise(lean=100.0))
    masked = (batch.tokens_BQ[:, 128:] == MASK_ID).reshape(-1, 32)
    assert masked.any(1).all()
    assert (masked.sort(1).values == masked).all()
    assert len(masked.sum(1).unique()) > 5


def test_swapped_tokens_stand_where_answers_are_visible_and_are_to_be_put_right():
    ids, rng = list(range(4, 132)), torch.Generator().manual_seed(0)
    batch = make_batch([(ids, 30)] * 8, 1, (32,), rng, Noise(swapped=0.3, kept=0.5))
    tokens, truth = batch.tokens_BQ[:, 128:], torch.tensor(ids)
    visible = (tokens != MASK_ID) & (torch.arange(128) >= 30)
    wrong = tokens != truth
    assert torch.equal(batch.targets_BN, truth.expand(8, -1))
    assert not wrong[:, :30].any()
    assert 0.2 < wrong[visible].float().mean() < 0.4
    assert (batch.weights_BN[visible] == 0.5).all()
    assert (batch.weights_BN[:, :30] == 0).all()


def test_a_router_asks_a_neglected_expert_more_often():
    router = Router(shape_of("llada2", "tiny"))
    torch.nn.init.normal_(router.weight)
    router(torch.randn(4, 50, 128))
    load = router.load_E.clone()
    assert load.sum() == 4 * 50 * 2
    router.balance()
    assert (router.expert_bias[load < load.mean()] > 0).all()
    assert (router.expert_bias[load > load.mean()] < 0).all()
    assert not router.load_E.any()


PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [20, 21, 22], [30] * 9]


def plain_greedy(model: TinyModel, prompt: list[int]) -> list[int]:
    """One token after the other, everything computed anew: the next one is scored by a mask, or by the last token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + MAX_ANSWER:
        row = torch.tensor([tokens if model.shape.shifted else [*tokens, MASK_ID]])
        places = torch.arange(row.shape[1])[None]
        tokens.append(model(row, places, places[:, None, :] <= places[:, :, None])[0, -1].argmax().item())
        if tokens[-1] == END_ID:
            return tokens[len(prompt) : -1]
    return tokens[len(prompt) :]


@pytest.mark.parametrize("name", FORMATS)
@torch.inference_mode()
def test_monitored_decoders_write_what_plain_greedy_decoding_writes(name):
    model = random_model(name)
    expected = [plain_greedy(model, prompt) for prompt in PROMPTS]
    for block in (1, 8):
        answers = speculative(model, PROMPTS, block).answers
        for answer, wanted in zip(answers, expected, strict=True):
            length = min(len(answer), len(wanted))
            assert length > 90 or answer == wanted
            assert answer[:length] == wanted[:length]


@pytest.mark.parametrize("name", FORMATS)
@torch.inference_mode()
def test_block_diffusion_of_single_tokens_is_greedy_decoding(name):
    model = random_model(name)
    answers = dynamic(model, PROMPTS, 1, 0.5).answers
    assert answers == speculative(model, PROMPTS, 1).answers


@pytest.mark.parametrize(("name", "size"), [*((name, "tiny") for name in FORMATS), ("sdar", "draft")])
def test_a_trained_checkpoint_is_exported_in_its_published_format(name, size, tmp_path):
    texts = [render(problem.messages) + problem.answer for problem in held_out("math", 50)]
    build_tokenizer(texts, 1024).save(str(tmp_path / "tokenizer.json"))
    trainer = Trainer(random_model(name, size), {}, Namespace(format=name, size=size))
    trainer.save(tmp_path / "stage4.pt", [], 1)
    export(tmp_path / "stage4.pt", "sibling", tmp_path)
    assert check_export(trainer.model, name, tmp_path / "sibling") < 1e-4
    assert sum(path.stat().st_size for path in (tmp_path / "sibling").iterdir()) <= 8_000_000
    assert {path.name for path in (tmp_path / "data").iterdir()} == {f"tiny_{family}.jsonl" for family in FAMILIES}


def test_the_draft_has_a_quarter_of_the_parameters():
    tiny, draft = (sum(p.numel() for p in TinyModel(shape_of("sdar", size)).parameters()) for size in SIZES)
    assert 0.2 < draft / tiny < 0.3


SHIPPED = {"tiny-fast": "fast_dllm_v2", "tiny-llada2": "llada2", "tiny-draft": "sdar"}


@pytest.mark.parametrize(("name", "family"), SHIPPED.items())
def test_shipped_siblings_are_small_and_answer_in_their_format(name, family):
    folder = ASSETS / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 8_000_000
    assert (folder / "tokenizer.json").read_bytes() == (ASSETS / "tiny" / "tokenizer.json").read_bytes()
    assert (
        json.loads((folder / "config.json").read_text())["model_type"] == LAYOUTS[family].config(Shape())["model_type"]
    )
    decoder = s2d2cli.build_decoder("decoder=autoregressive", "decode.max_new_tokens=112")
    problem = held_out("math", 1)[0]
    [answer] = s2d2cli.generate(s2d2cli.load_model(name), decoder, [problem.prompt])
    assert "####" in answer.text
