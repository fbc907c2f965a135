"""The synthetic problems of `tiny`: right, reproducible, in the benchmarks' formats, and really held out."""

import contextlib
import json
import re
import sys
from argparse import Namespace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from tiny_data import FAMILIES, Problem, draw, held_out_set, is_held_out  # noqa: E402
from tiny_data.checks import CHECKS  # noqa: E402
from tiny_formats import FORMATS, shape_of  # noqa: E402
from tiny_model import TinyModel  # noqa: E402
from train_tiny import Stage, Trainer, load_data  # noqa: E402

TINY, DATA = ROOT / "s2d2cli" / "assets" / "tiny", ROOT / "s2d2cli" / "assets" / "data"
KEYS = {
    "math": {"question", "answer"},
    "code": {"task_id", "text", "code", "test_list", "test_setup_code", "challenge_test_list"},
    "instruct": {"key", "prompt", "instruction_id_list", "kwargs"},
}
SIZES = {"math": 500, "code": 200, "instruct": 200}


def problems(family: str, count: int = 400, seed: int = 3) -> list[Problem]:
    rng = Random(seed)
    return [FAMILIES[family](rng) for _ in range(count)]


def rows(family: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / f"tiny_{family}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_fixes_the_problems(family):
    assert problems(family, 50) == problems(family, 50)
    assert problems(family, 50) != problems(family, 50, seed=4)


@pytest.mark.parametrize("family", FAMILIES)
def test_records_have_the_benchmark_format(family):
    for problem in problems(family, 50):
        assert set(problem.record) == KEYS[family]
        assert [turn["role"] for turn in problem.messages] == ["user"]


def test_word_problem_equations_are_right_and_lead_to_the_answer():
    for problem in problems("math"):
        body, final = problem.answer.split("\n#### ")
        equations = re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", body)
        assert 2 <= len(equations) <= 4
        for left, op, right, result in equations:
            assert eval(f"{left}{op}{right}") == int(result)
        assert equations[-1][-1] == final


def test_word_problem_numbers_come_from_the_question_or_an_earlier_step():
    for problem in problems("math"):
        known = set(re.findall(r"\d+", problem.prompt)) | ({"2"} if "twice" in problem.prompt else set())
        for left, _, right, result in re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", problem.answer):
            assert {left, right} <= known
            known.add(result)


def test_word_problems_are_made_of_whole_words():
    short = {word for problem in problems("math") for word in re.findall(r"[A-Za-z]+", problem.prompt) if len(word) < 2}
    assert short <= {"a"}


def test_word_problem_answers_are_phrased_with_variety():
    openings = {problem.answer.split()[0] for problem in problems("math")}
    assert len(openings) > 15


def test_functions_pass_their_own_asserts():
    for problem in problems("code", 200):
        scope: dict = {}
        exec(problem.record["code"], scope)
        for test in problem.record["test_list"]:
            exec(test, scope)
        assert problem.answer == f"```python\n{problem.record['code']}\n```"
        assert len(set(problem.record["test_list"])) == 3


def test_gold_answers_follow_their_instructions():
    seen = set()
    for problem in problems("instruct", 2000):
        ids, kwargs = problem.record["instruction_id_list"], problem.record["kwargs"]
        assert len(ids) == len(kwargs) == len(set(ids)) <= 2
        for name, arguments in zip(ids, kwargs, strict=True):
            assert CHECKS[name](problem.answer, **arguments), (name, arguments, problem.answer)
        seen |= set(ids)
    assert seen == set(CHECKS)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_draws_are_never_held_out(family):
    rng = Random(5)
    train = {draw(FAMILIES[family], rng, held_out=False).prompt for _ in range(500)}
    held_out = {problem.prompt for problem in held_out_set(FAMILIES[family], Random(6), 100)}
    assert len(held_out) == 100
    assert not train & held_out


class KilledTrainer(Trainer):
    updates = 0

    def update(self, *args):
        if self.updates == 3:
            raise KeyboardInterrupt
        self.updates += 1
        return super().update(*args)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="training needs torch 2.9 or newer, for torch.optim.Muon")
@pytest.mark.parametrize("form", FORMATS)
def test_a_killed_training_run_continues_as_if_it_had_not_been_killed(form, tmp_path):
    args = Namespace(format=form, size="draft", seed=0, examples=60, bf16=False, log_every=100, save_every=2)
    _, data = load_data(args)
    mixes = (("train", 0), ("train late", 3))
    stage, weights = Stage("stage2", steps=5, budget=400, decay=0.5, num_copies=2, mixes=mixes, warm_up=1), []
    for name, kinds in {"whole": [Trainer], "killed": [KilledTrainer, Trainer]}.items():
        args = Namespace(**{**vars(args), "out": tmp_path / name})
        args.out.mkdir()
        for kind in kinds:
            torch.manual_seed(0)
            trainer = kind(TinyModel(shape_of(form, "draft")), data, args)
            with contextlib.suppress(KeyboardInterrupt):
                trainer.run(stage)
        weights.append(trainer.model.model.embed_tokens.weight)
    assert torch.equal(*weights)


def prompt_of(family: str, row: dict) -> str:
    if family == "code":
        return "\n".join([row["text"], "Your code should pass these tests:", *row["test_list"]])
    return row["question" if family == "math" else "prompt"]


@pytest.mark.parametrize("family", FAMILIES)
def test_shipped_problems_are_held_out_and_different(family):
    shipped = rows(family)
    prompts = {prompt_of(family, row) for row in shipped}
    assert len(prompts) == len(shipped) == SIZES[family]
    assert all(is_held_out(prompt) for prompt in prompts)
    assert all(set(row) == KEYS[family] for row in shipped)


@pytest.fixture(scope="module")
def tokenizer():
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(TINY)


TEXT = st.text(st.characters(exclude_categories=("Cs",)))


@given(text=TEXT)
def test_tokenizer_round_trips_any_text(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text


def test_digits_stand_alone(tokenizer):
    assert tokenizer.tokenize("4096")[:4] == ["4", "0", "9", "6"]


def test_chat_template_writes_chatml(tokenizer):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    turns += [{"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Bye"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    written = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in turns)
    assert text == f"{written}<|im_start|>assistant\n"
    assert tokenizer.apply_chat_template(turns, tokenize=False) == written


def test_checkpoint_is_small_and_names_its_special_tokens(tokenizer):
    assert sum(path.stat().st_size for path in TINY.iterdir()) <= 8_000_000
    config = json.loads((TINY / "config.json").read_text())
    assert config["model_type"] == "sdar"
    assert config["vocab_size"] >= len(tokenizer)
    assert config["mask_token_id"] == tokenizer.mask_token_id == tokenizer.convert_tokens_to_ids("<|MASK|>")
    assert config["eos_token_id"] == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
