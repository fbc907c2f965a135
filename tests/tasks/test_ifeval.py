"""Prompts with verifiable instructions: which rows are accepted, and what comes of a reply."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2d2cli.errors import TaskDataError
from s2d2cli.tasks import ifeval
from s2d2cli.tasks.base import DataSource, Sample
from s2d2cli.tasks.data import Hub, Rows
from s2d2cli.tasks.ifeval import IFEval, TinyInstruct, variants
from tests.tasks.test_ifeval_checks import FIXTURES, nth

ROW = {
    "key": 12,
    "prompt": "Write without commas, in quotation marks.",
    "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
    "kwargs": [{}, {"num_words": None}],
}


def task_of(tmp_path, *rows):
    path = tmp_path / "instructions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return IFEval(data=str(path))


@pytest.fixture
def task(tmp_path):
    return task_of(tmp_path, ROW)


def test_the_prompt_is_the_rows_own(task):
    assert task.prepare(allow_code_execution=False).rows == 1
    (sample,) = task.samples(None)
    assert (sample.id, sample.messages) == ("ifeval/12", [{"role": "user", "content": ROW["prompt"]}])
    assert sample.raw is None


def test_without_chat_the_prompt_is_sent_as_it_is(task):
    task.chat = False
    assert [sample.raw for sample in task.samples(None)] == [ROW["prompt"]]


def test_the_published_set_is_the_default(monkeypatch):
    asked = []
    monkeypatch.setattr(ifeval, "load", lambda *what: asked.append(what) or Rows([], DataSource("hub", "", 0)))
    assert IFEval().samples(None) == []
    assert asked == [("google/IFEval", ifeval.FIELDS, Hub(config=None, split="train"))]
    assert IFEval().max_new_tokens == 1280


@pytest.mark.parametrize(
    ("reply", "status", "strict", "loose"),
    [
        ('"One two"', "followed", [True, True], [True, True]),
        ('"One, two"', "not_followed", [False, True], [False, True]),
        ('Sure, here:\n"One"', "not_followed", [False, False], [True, True]),  # the first line is a preface
        ('"One"\nGlad to help, as ever', "not_followed", [False, False], [True, True]),
        ('Sure,\n"One"\nBye,', "not_followed", [False, False], [True, True]),
        ('**"One"**', "not_followed", [True, False], [True, True]),
        ("", "empty", [False, False], [False, False]),
        (" \n", "empty", [False, False], [False, False]),
    ],
)
def test_strict_and_loose_verdicts(task, reply, status, strict, loose):
    score = task.score(task.samples(None)[0], reply)
    assert score.correct is score.detail["strict"] is all(strict)
    assert (score.detail["status"], score.detail["loose"]) == (status, all(loose))
    assert [verdict["strict"] for verdict in score.detail["instructions"]] == strict
    assert [verdict["loose"] for verdict in score.detail["instructions"]] == loose
    assert [verdict["id"] for verdict in score.detail["instructions"]] == ROW["instruction_id_list"]
    assert score.measures == {
        "fixed": (int(all(strict)), 1),
        "paper": (int(all(strict)), 1),
        "prompt_loose": (int(all(loose)), 1),
        "instruction_strict": (sum(strict), 2),
        "instruction_loose": (sum(loose), 2),
    }
    assert json.loads(json.dumps(score.detail)) == score.detail
    assert score.extracted == (None if status == "empty" else reply)


def test_no_reading_makes_an_empty_reply_right(tmp_path):
    """Without commas and without anything else: removing the only line must not leave a passing reply."""
    task = task_of(tmp_path, ROW | {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})
    assert not task.score(task.samples(None)[0], "one, line").detail["loose"]


def test_the_eight_readings():
    assert variants("a*\nb\nc") == ["a*\nb\nc", "b\nc", "a*\nb", "b", "a\nb\nc", "b\nc", "a\nb", "b"]


def test_a_repaired_check_counts_in_one_measure_only(tmp_path):
    task = task_of(tmp_path, of("detectable_format:number_bullet_lists", num_bullets=2))
    score = task.score(task.samples(None)[0], "* a\n* b\n---\nBye")
    assert (score.correct, score.measures["paper"], score.measures["fixed"]) == (False, (0, 1), (1, 1))
    assert score.detail["instructions"][0]["fixed"]


def of(name, **arguments):
    return ROW | {"instruction_id_list": [name], "kwargs": [arguments]}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (of("detectable_format:jsn_format"), "key 12 asks for detectable_format:jsn_format, .*startend:quotation"),
        (of("keywords:existence"), "keywords:existence cannot be checked with {} .*keywords"),
        (of("keywords:existence", keywords=None), "keywords:existence cannot be checked with {}"),
        (of("keywords:existence", keywords="rain"), "type list"),
        (of("keywords:existence", keywords=["a", "("]), "cannot be checked"),
        (of("keywords:forbidden_words", forbidden_words=["("]), "cannot be checked"),
        (of("startend:quotation", end_phrase="x"), "end_phrase"),
        (of("detectable_format:number_bullet_lists", num_bullets="3"), "type int"),
        (of("length_constraints:number_words", num_words=3, relation="around"), "'less than' or 'at least'"),
        (of("keywords:letter_frequency", letter="ab", let_frequency=1, let_relation="at least"), "must be one sign"),
        (of("length_constraints:number_words", num_words=0, relation="at least"), "missing .* 'num_words'"),
        (
            of("length_constraints:number_words", num_words=-3, relation="at least"),
            "num_words must be at least 1, got -3",
        ),
        (of("length_constraints:nth_paragraph_first_word", **nth(2, 3, "a")), "must be one of 2 paragraphs, got 3"),
        (of("detectable_format:multiple_sections", section_spliter="(", num_sections=2), "cannot be checked"),
        (of("language:response_language", language="xx"), "must be one of af, ar, .*; got 'xx'"),
        (ROW | {"instruction_id_list": [3, "startend:quotation"]}, "asks for 3, which"),
        (ROW | {"kwargs": [{}]}, "one kwargs object per instruction"),
        (ROW | {"kwargs": [{}, 5]}, "one kwargs object per instruction"),
        (ROW | {"instruction_id_list": [], "kwargs": []}, "one kwargs object per instruction"),
        (ROW | {"prompt": None}, "'prompt'"),
    ],
)
def test_rows_that_cannot_be_scored_are_refused_before_any_model_loads(tmp_path, row, words):
    with pytest.raises(TaskDataError, match=words):
        task_of(tmp_path, row).prepare(allow_code_execution=False)


def test_ids_must_be_unique(tmp_path):
    with pytest.raises(TaskDataError, match="ifeval/12 occurs twice"):
        task_of(tmp_path, ROW, ROW).prepare(allow_code_execution=False)


PIECES = ["*", "******", "<<", ">>", "\n", '"', "[", "]", "- ", "p.s.", ","]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=20).map("".join))
def test_any_reply_is_scored_and_loose_is_no_stricter(reply):
    rows = [of(name, **arguments) for name, arguments, _, _ in FIXTURES]
    task = IFEval()
    for row in rows:
        (verdict,) = task.score(sample_of(row), reply).detail["instructions"]
        assert verdict["loose"] or not verdict["strict"]


def sample_of(row):
    return Sample("x", [], row)


def test_the_shipped_prompts_can_all_be_scored():
    task = TinyInstruct()
    assert task.prepare(allow_code_execution=False).rows >= 200
    followed = [task.score(sample, "x,").correct for sample in task.samples(None)]
    assert sum(followed) < len(followed) / 4  # only "less than N words" is that easy


def test_all_published_prompts_can_be_scored(real_data):
    task = IFEval(data=str(real_data / "ifeval_input_data.jsonl"))
    assert task.prepare(allow_code_execution=False).rows == 541
    samples = task.samples(None)
    for reply, followed in [("", 0), ("A *word*. " * 100, 1)]:
        scores = [task.score(sample, reply) for sample in samples]
        assert sum(score.measures["instruction_strict"][1] for score in scores) == 834
        assert any(score.correct for score in scores) is bool(followed)
