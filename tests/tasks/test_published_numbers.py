"""The published reading of numbers, fault for fault, beside the right one."""

import json
from fractions import Fraction

import pytest

from s2d2cli.tasks.gsm8k import GSM8K
from s2d2cli.tasks.numbers import find_answer
from s2d2cli.tasks.published_numbers import published_answer, published_gold

# text, the published reading, the right one: known faults
FAULTS = [
    (r"\boxed{1,234}", 234, 1234),
    ("The total is 1,234.", 234, 1234),
    ("It costs $1,500.00 in total.", 500, 1500),
    ("#### $1,080", 80, 1080),
    (r"\boxed{1{,}080}", 80, 1080),
    (r"\boxed{1\,080}", 80, 1080),
    ("\\boxed{18}\nHowever: \\boxed{20 apples}", 18, 20),
    (r"\boxed{18\text{ (in 2020)}}", 2020, 18),
    (r"\boxed{\frac{3}{4}}", 4, Fraction(3, 4)),
    (r"\boxed{1/2}", 2, Fraction(1, 2)),
    (r"\boxed{.5}", 5, Fraction(1, 2)),
    ("\\boxed{\u22125}", 5, -5),
    (r"\boxed{2.5 \times 10^3}", 3, 2500),
    (r"\boxed{1e3}", 3, 1000),
    (r"\fbox{18} in 3 steps", 3, 18),
    ("total 10-3", -3, 3),
]
GOLD_FAULTS = [("so 2,125 in all\n#### 2,125", 2, 2125), ("#### 1,450,000", 1, 1450000)]
AGREED = [
    (r"\boxed{\$18}", 18),
    (r"\boxed{$18.00}", 18),
    (r"\boxed{18 \text{ dollars}}", 18),
    (r"\boxed{18\%}", 18),
    (r"\boxed{x = 18}", 18),
    (r"\boxed{\text{18}}", 18),
    (r"\boxed{18} per day for 7 days", 18),
    (r"\boxed{7", 7),
    (r"\boxed{70000.0}", 70000),
    (r"\boxed{-10}", -10),
    ("#### 5", 5),
    ("$29.00.", 29),
    (r"\[ \boxed{42} \]", 42),
    ("none", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "published", "right"), FAULTS)
def test_known_faults_of_replies(text, published, right):
    assert published_answer(text) == published
    assert find_answer(text).value == right


@pytest.mark.parametrize(("text", "published", "right"), GOLD_FAULTS)
def test_known_faults_of_gold_answers(text, published, right):
    assert published_gold(text) == published
    assert find_answer(text).value == right


@pytest.mark.parametrize(("text", "number"), AGREED)
def test_where_both_agree(text, number):
    found = find_answer(text)
    assert published_answer(text) == (None if found is None else found.value) == number


def test_a_box_comes_before_hashes_and_hashes_before_the_last_number():
    assert published_answer(r"#### 1 then \boxed{2} then 3") == 2
    assert published_answer("#### 1 then 3") == 1
    assert published_answer(r"\boxed{no} 3") == 3


def test_any_length_of_digits_is_read():
    assert published_answer("9" * 5000) == float("inf")


WRONG_GOLDS = [146, 201, 230, 249, 505, 610, 611, 640, 642, 819, 829, 997, 1009, 1206]


@pytest.fixture(scope="module")
def problems(real_data):
    task = GSM8K(data=str(real_data / "gsm8k_test.jsonl"))
    task.prepare(allow_code_execution=False)
    return [(task, sample, int(find_answer(sample.record["answer"]).value)) for sample in task.samples(None)]


def test_the_golds_that_the_published_scripts_misread(problems):
    answers = [(published_gold(sample.record["answer"]), right) for _, sample, right in problems]
    assert [index for index, (gold, right) in enumerate(answers) if gold != right] == WRONG_GOLDS


@pytest.mark.parametrize(
    ("form", "right"),
    [(r"so \boxed{{{}}}", 1305), (r"so \boxed{{{:,}}}", 1188), ("#### {:,}", 1202), ("so it is {:,}.", 1188)],
)
def test_what_a_perfect_model_scores_by_the_published_rules(problems, form, right):
    scores = [task.score(sample, form.format(number)) for task, sample, number in problems]
    assert sum(score.measures["paper"][0] for score in scores) == right
    assert sum(score.measures["fixed"][0] for score in scores) == sum(score.correct for score in scores) == 1319
    assert {score.measures[name][1] for score in scores for name in ("fixed", "paper")} == {1}


def test_one_counts_as_one_million_and_a_half(problems):
    task, sample, number = problems[611]
    assert number == 1450000
    assert json.dumps(task.score(sample, r"\boxed{1}").measures) == '{"fixed": [0, 1], "paper": [1, 1]}'
