"""The documented Python interface."""

from __future__ import annotations

import subprocess
import sys

import pytest

import s2d2cli
from s2d2cli.decode import Request
from s2d2cli.errors import CheckpointError, ConfigError, PromptError
from tests import published
from tests.conftest import GOLDEN


def test_everything_that_is_exported_exists():
    assert all(callable(getattr(s2d2cli, name)) for name in s2d2cli.__all__)
    with pytest.raises(AttributeError, match="no attribute 'load_modle'"):
        _ = s2d2cli.load_modle


def test_importing_the_package_is_light():
    code = "import sys, s2d2cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_generate_answers_each_prompt():
    model = s2d2cli.load_model("tiny")
    decoder = s2d2cli.build_decoder("decoder=s2d2", "decode.block_length=8", "decode.max_new_tokens=16")
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    answers = s2d2cli.generate(model, decoder, ["How many are 2 and 3 apples?", conversation])
    assert len(answers) == 2
    for answer in answers:
        assert 1 <= len(answer.generation.token_ids) <= 16
        assert answer.text == model.text(answer.generation.token_ids)
        assert answer.tokens_per_forward > 0


def test_models_that_attend_fully_take_a_decoder_built_for_them(tmp_path):
    published.llada(tmp_path)
    model = s2d2cli.load_model(str(tmp_path), "model.family=llada")
    with pytest.raises(ConfigError, match="a decoder must be built for the model .* got decode.context=block for"):
        s2d2cli.build_decoder("decoder=dynamic").generate(model, [Request("x", [5])])
    decoder = s2d2cli.build_decoder("decoder=dynamic", "model.family=llada", "decode.max_new_tokens=8")
    assert len(decoder.generate(model, [Request("x", [5])]).generations[0].token_ids) == 8
    with pytest.raises(ConfigError, match="got decode.context=full for tiny, which does not attend fully"):
        decoder.generate(s2d2cli.load_model("tiny"), [Request("x", [5])])


def test_errors_are_sentences(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'tiny'"):
        s2d2cli.load_model("tinny")
    with pytest.raises(CheckpointError, match=r"must hold config\.json"):
        s2d2cli.load_model(str(tmp_path))
    with pytest.raises(ConfigError, match="decode.block_length must be at least 1"):
        s2d2cli.build_decoder("decode.block_length=0")
    model = s2d2cli.load_model(str(GOLDEN / "sdar" / "checkpoint"))
    with pytest.raises(PromptError, match="without tokenizer files"):
        s2d2cli.generate(model, s2d2cli.build_decoder(), ["Hello"])


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        ("Hello", "prompts must be a list"),
        ([""], "prompt 0 holds none"),
        (["Hi", "  "], "prompt 1 holds none"),
        ([[]], "messages must be a list"),
        ([[{"role": "bot", "content": "x"}]], "with role system, user, assistant"),
    ],
)
def test_prompts_that_cannot_be_answered(prompts, sentence):
    with pytest.raises(PromptError, match=sentence):
        s2d2cli.generate(s2d2cli.load_model("tiny"), s2d2cli.build_decoder(), prompts)


def test_a_folder_s_own_block_length_is_the_default(tmp_path):
    from s2d2cli.choose import model_choice
    from s2d2cli.config import compose

    def length(*overrides: str) -> int | None:
        chosen, texts = model_choice(str(tmp_path))
        return compose([*chosen, *overrides], texts).decode.block_length

    assert length() == 4
    (tmp_path / "config.json").write_text('{"block_size": 16}')
    assert length() == 16
    assert length("model.block_length=8") == 8
    assert length("decode.block_length=2") == 2
