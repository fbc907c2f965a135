"""Word problems: prompts, refusals, verdicts by both protocols."""

import json

import pytest

from s2d2cli.errors import ConfigError, TaskDataError
from s2d2cli.tasks.gsm8k import GSM8K, WORKED, TinyMath
from s2d2cli.tasks.numbers import find_answer
from s2d2cli.tasks.published_numbers import published_answer

ROWS = [
    {"question": "Ann has 3 bags of 6. How many?", "answer": "3*6=<<3*6=18>>18\n#### 18"},
    {"question": "And 100 of 12 {each}?", "answer": "100*12\n#### 1,200"},
]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def data(tmp_path):
    return write_rows(tmp_path / "problems.jsonl", ROWS)


@pytest.fixture
def task(data):
    return GSM8K(data=data)


def only_turn(sample):
    (turn,) = sample.messages
    assert (turn["role"], sample.raw) == ("user", None)
    return turn["content"]


BOXED = "Solve the following math problem concisely and clearly and put your final answer within \\boxed{}."
COT = (
    "Solve the following math problem step by step. Show your reasoning clearly. "
    "Put your final answer within \\boxed{}."
)


def test_the_published_prompt(task):
    first, second = task.samples(None)
    assert only_turn(first) == f"{BOXED}\n\nQuestion: Ann has 3 bags of 6. How many?"
    assert only_turn(second) == f"{BOXED}\n\nQuestion: And 100 of 12 {{each}}?"
    assert (first.id, second.id, second.record) == ("gsm8k/0", "gsm8k/1", ROWS[1])


def test_the_published_prompt_for_reasoning(data):
    prompt = only_turn(GSM8K(data=data, style="cot").samples(1)[0])
    assert prompt == f"{COT}\n\nQuestion: Ann has 3 bags of 6. How many?\nAnswer: Let's think step by step."


@pytest.mark.parametrize("shots", [1, 2, 3])
@pytest.mark.parametrize(("style", "task_text"), [("boxed", BOXED), ("cot", COT)])
def test_worked_examples_stand_between_the_task_and_the_question(data, style, task_text, shots):
    plain = only_turn(GSM8K(data=data, style=style).samples(1)[0])
    prompt = only_turn(GSM8K(data=data, style=style, shots=shots).samples(1)[0])
    parts = prompt.split("\n\n")
    assert "\n\n".join([parts[0], parts[-1]]) == plain
    assert parts[0] == task_text
    assert len(parts) == shots + 2
    assert all(part.startswith("Question: ") and "\nAnswer: " in part for part in parts[1:-1])


def test_worked_examples_arrive_at_the_published_answers():
    for (question, answer), number in zip(WORKED, (6, 39, 8), strict=True):
        assert question.endswith("?")
        assert answer.endswith(rf"\boxed{{{number}}}")
        assert find_answer(answer).value == published_answer(answer) == number


def test_a_prompt_of_ones_own(data):
    task = GSM8K(data=data, style="Q: {question} {question}\nA:")
    task.validate()
    assert only_turn(task.samples(None)[1]) == "Q: And 100 of 12 {each}? And 100 of 12 {each}?\nA:"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"style": "Solve it"}, "task.style must be boxed or cot, or a text with {question}.*got 'Solve it'"),
        ({"style": ""}, "task.style must be"),
        ({"shots": 4}, "task.shots must lie between 0 and 3 .*got 4"),
        ({"shots": -1}, "task.shots must lie between 0 and 3 .*got -1"),
        ({"style": "{question}", "shots": 1}, "task.shots must lie between 0 and 0 with this task.style, got 1"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        GSM8K(**settings).validate()


def test_a_limit_takes_the_first_rows(task):
    assert task.samples(1) == task.samples(None)[:1]


@pytest.mark.parametrize(
    ("completion", "correct", "paper", "extracted", "status"),
    [
        (r"so \boxed{1200}", 1, 0, "1200", "correct"),  # the published gold is 1
        ("#### $1,200.00", 1, 0, "1200", "correct"),
        ("#### 1,200", 1, 1, "1200", "correct"),  # both sides misread alike
        (r"\boxed{1}", 0, 1, "1", "wrong"),
        ("I do not know.", 0, 0, None, "no_answer"),
        ("", 0, 0, None, "no_answer"),
    ],
)
def test_verdicts(task, completion, correct, paper, extracted, status):
    score = task.score(task.samples(None)[1], completion)
    assert (score.correct, score.extracted, score.detail["status"]) == (bool(correct), extracted, status)
    assert score.measures == {"fixed": (correct, 1), "paper": (paper, 1)}
    assert json.loads(json.dumps(score.detail))["gold"] == "1200"


def test_both_readings_are_kept_beside_the_verdict(task):
    score = task.score(task.samples(None)[0], r"It is \boxed{1,800}")
    assert score.detail == {"status": "wrong", "gold": "18", "source": "box", "published": "800.0"}
    endless = task.score(task.samples(None)[0], "9" * 5000)
    assert (endless.extracted, endless.detail["published"]) == (None, "inf")


def test_the_shipped_problems_are_asked_without_a_frame():
    task = TinyMath()
    task.validate()
    assert (task.name, task.max_new_tokens, task.shots) == ("tiny_math", 128, 0)
    source = task.prepare(allow_code_execution=False)
    assert (source.origin, source.rows >= 200) == ("package:tiny_math.jsonl", True)  # not where this machine has it
    samples = task.samples(None)
    assert all(only_turn(sample) == sample.record["question"] for sample in samples)
    scores = [task.score(sample, sample.record["answer"]) for sample in samples]
    assert all(score.measures == {"fixed": (1, 1), "paper": (1, 1)} for score in scores)


def test_an_answer_without_a_number_is_refused_with_its_line(tmp_path):
    path = write_rows(tmp_path / "bad.jsonl", [*ROWS, {"question": "q", "answer": "none"}])
    with pytest.raises(TaskDataError, match=f"{path}, line 3: the answer must end in a number .*'none'"):
        GSM8K(data=path).prepare(allow_code_execution=False)


def test_a_row_without_a_question_is_refused(tmp_path):
    path = write_rows(tmp_path / "bad.jsonl", [{"answer": "#### 1"}])
    with pytest.raises(TaskDataError, match="line 1: a row must have 'question'"):
        GSM8K(data=path).prepare(allow_code_execution=False)


def test_the_real_test_set(real_data):
    task = GSM8K(data=str(real_data / "gsm8k_test.jsonl"))
    source = task.prepare(allow_code_execution=False)
    assert (source.rows, source.published) == (1319, True)
    samples = task.samples(None)
    assert all(task.score(sample, sample.record["answer"]).correct for sample in samples)
