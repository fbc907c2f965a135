"""Verifiable instructions: each id with replies that follow it and replies that do not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2d2cli.errors import TaskDataError
from s2d2cli.tasks.base import Sample
from s2d2cli.tasks.ifeval import IFEval, TinyInstruct, variants
from s2d2cli.tasks.ifeval_checks import CHECKS

# (id, arguments, reply, followed)
FIXTURES = [
    ("punctuation:no_comma", {}, "One. Two; three!", True),
    ("punctuation:no_comma", {}, "One, two.", False),
    ("keywords:existence", {"keywords": ["rain", "Sun"]}, "The SUN and a train.", True),  # substrings count
    ("keywords:existence", {"keywords": ["rain", "sun"]}, "Only rain here.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["rain", "sun"]}, "A train on Sunday.", True),  # whole words only
    ("keywords:forbidden_words", {"forbidden_words": ["rain", "sun"]}, "The Sun!", False),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": "at least"}, "start smart", True),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": "at least"}, "art", False),
    ("keywords:frequency", {"keyword": " art ", "frequency": 2, "relation": "less than"}, "ART.", True),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": "less than"}, "Art, art", False),
    ("keywords:letter_frequency", {"letter": "Q", "let_frequency": 2, "let_relation": "at least"}, "Qq", True),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "at least"}, "Quiet", False),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 1, "let_relation": "less than"}, "none", True),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 1, "let_relation": "less than"}, "Quiet", False),
    ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}, "It's one-two.", True),
    ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}, "One two three.", False),
    ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, "One two three.", True),
    ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, "One two three four.", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "List:\n* a\n  * b\n- c", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* b\n* c", False),  # exactly, not at least
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n**bold** b", False),
    ("detectable_format:title", {}, "A <<good title>> here", True),
    ("detectable_format:title", {}, "<< >> and <title>", False),
    ("detectable_format:title", {}, "<<two\nlines>>", False),
    ("detectable_format:constrained_response", {}, "Well. My answer is maybe. Yes.", True),
    ("detectable_format:constrained_response", {}, "My answer is yes", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and *two words*", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "**one** and *two*", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and * * and *a\nb*", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name], [date]", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name\n], [date]", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Text.\n\np. s. More", True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Text.\nPS: more", False),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P. S more", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.S. more", False),
    ("detectable_content:postscript", {"postscript_marker": "Note:"}, "Text. note: more", True),
    ("detectable_content:postscript", {"postscript_marker": "Note:"}, "Text. Notes", False),
    ("startend:end_checker", {"end_phrase": "That is all. "}, '"Text. That is ALL." \n', True),
    ("startend:end_checker", {"end_phrase": "That is all."}, "That is all. Bye", False),
    ("startend:quotation", {}, ' "Text" \n', True),
    ("startend:quotation", {}, '"', False),
    ("startend:quotation", {}, '"Text".', False),
    ("combination:two_responses", {}, "One\n******\nTwo", True),
    ("combination:two_responses", {}, "******One******Two******", True),
    ("combination:two_responses", {}, "One******One", False),
    ("combination:two_responses", {}, "One****** ******Two", False),
    ("combination:two_responses", {}, "One******Two******Three", False),
    ("combination:two_responses", {}, "One", False),
]


@pytest.mark.parametrize(("name", "arguments", "reply", "followed"), FIXTURES)
def test_verdict_of_each_instruction(name, arguments, reply, followed):
    assert CHECKS[name](reply, **arguments) is followed


def test_each_instruction_has_replies_of_both_kinds():
    assert {(name, followed) for name, _, _, followed in FIXTURES} == {
        (name, f) for name in CHECKS for f in (True, False)
    }


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
    assert json.loads(json.dumps(score.detail)) == score.detail
    assert score.extracted == (None if status == "empty" else reply)


def test_no_reading_makes_an_empty_reply_right(tmp_path):
    """Without commas and without anything else: removing the only line must not leave a passing reply."""
    task = task_of(tmp_path, ROW | {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})
    assert not task.score(task.samples(None)[0], "one, line").detail["loose"]


def test_the_eight_readings():
    assert variants("a*\nb\nc") == ["a*\nb\nc", "b\nc", "a*\nb", "b", "a\nb\nc", "b\nc", "a\nb", "b"]


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
        (of("keywords:letter_frequency", letter="#", let_frequency=1, let_relation="at least"), "letter must be"),
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


@settings(deadline=None)
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


def test_published_prompts_of_known_kinds_can_be_scored(real_data):
    with open(real_data / "ifeval_input_data.jsonl", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    known = [row for row in rows if set(row["instruction_id_list"]) <= set(CHECKS)]
    assert len(known) > 200
    task = IFEval()
    assert any(task.score(sample_of(row), "A *word* and [more]. " * 100).correct for row in known)
