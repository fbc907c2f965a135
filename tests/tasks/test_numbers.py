"""The answer of a worked solution, read as an exact fraction."""

import json
import time
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s2d2cli.tasks.numbers import as_text, find_answer

# Published extractors get all of these wrong.
HARD = [
    ("#### 2,125", 2125),
    ("#### 1,450,000", 1450000),
    (r"\boxed{1,234}", 1234),
    ("The total is 1,234.", 1234),
    ("It costs $1,500.00 in total.", 1500),
    ("#### $1,080", 1080),
    (r"\boxed{1{,}080}", 1080),
    (r"\boxed{1\,080}", 1080),
    ("\\boxed{18}\nHowever: \\boxed{20 apples}", 20),
    (r"\boxed{18\text{ (in 2020)}}", 18),
    (r"\boxed{\frac{3}{4}}", Fraction(3, 4)),
    (r"\boxed{1/2}", Fraction(1, 2)),
    (r"\boxed{.5}", Fraction(1, 2)),
    ("\\boxed{\u22125}", -5),
    (r"\boxed{2.5 \times 10^3}", 2500),
    (r"\boxed{1e3}", 1000),
    (r"\boxed{10^6}", 1000000),
    (r"\boxed{2^{10}}", 1024),
    (r"\boxed{3 \times 10^2/4}", 300),
    (r"\fbox{18} in 3 steps", 18),
    ("total 10-3", 3),
]
BOXED = [
    (r"\boxed{\$18}", 18),
    (r"\boxed{$18.00}", 18),
    (r"\boxed{18 \text{ dollars}}", 18),
    (r"\boxed{18\%}", 18),
    (r"\boxed{x = 18}", 18),
    (r"\boxed{\text{18}}", 18),
    (r"\boxed{18} per day for 7 days", 18),
    (r"\boxed{7", 7),
    ("\\boxed{7\nand 9 more", 7),
    (r"\boxed{70000.0}", 70000),
    (r"\[ \boxed{42} \]", 42),
    (r"\boxed{1\,234}", 1234),
    ("\\boxed{1\u2009234}", 1234),
    (r"\boxed{1 234 567}", 1234567),
    (r"\boxed{1,\!234}", 1234),
    (r"\boxed{-\frac{3}{4}}", Fraction(-3, 4)),
    (r"\boxed{\frac{-3}{4}}", Fraction(-3, 4)),
    (r"\boxed{\dfrac{1,000}{3}}", Fraction(1000, 3)),
    (r"\boxed{\frac34}", Fraction(3, 4)),
    (r"\boxed{3\frac{1}{2}}", Fraction(7, 2)),
    (r"\boxed{3 1/2}", Fraction(7, 2)),
    (r"\boxed{\frac{3}{4}", Fraction(3, 4)),
    (r"\boxed{- 5}", -5),
    (r"\boxed{-\$5}", -5),
    (r"\boxed{$-5}", -5),
    (r"\boxed{2 + 3 = 5}", 5),
    (r"\boxed{2.5 \cdot 10^{-2}}", Fraction(1, 40)),
    (r"\boxed{50\text{ cm}^2}", 50),
    (r"\boxed{\mathbf{18}}", 18),
    (r"\boxed{\text{Total: } 18}", 18),
    (r"\boxed{18} is wrong because \boxed{none}", 18),  # the last box that holds a number
    (r"5 first, then \boxed{1/0}, no: \boxed{}", 5),  # no box holds a number
]
PLACES = [
    ("#### 5 (example)\nmore\n#### 12", 12),
    ("#### Step 2\nThe answer is 18. That took 3 minutes.", 18),
    ("####\n18", 18),
    ("#### **18**", 18),
    ("#### 18 dollars in 2020", 18),
    ("#### x = 18", 18),
    ("So the final answer is: **$18** per day for 7 days.", 18),
    ("**Answer**: 18 of 20", 18),
    ("Answer: 3 + 4 = 7", 7),
    ("The answer is:\n\n18 apples in 2 bags", 18),
    ("The answer is 4. Checking again, the answer is 5. Done in 2 steps", 5),
    ("$29.00.", 29),
    ("12.50", Fraction(25, 2)),
    ("The area is 50 cm^2.", 50),
    ("They have 1, 2 or 3", 3),
    ("He gave away 3/4", Fraction(3, 4)),
    ("It was -5 degrees", -5),
    ("10 - 3 = 7", 7),
    ("so 10 -3", 3),
    ("US$18", 18),
    ("3.14 m2", Fraction(157, 50)),
]


@pytest.mark.parametrize(("text", "expected"), HARD + BOXED + PLACES)
def test_reads_the_answer(text, expected):
    answer = find_answer(text)
    assert answer is not None
    assert answer.value == expected


@pytest.mark.parametrize("text", ["", "no number", r"\boxed{}", "####", "x2", "\u0661\u0662", "9" * 61, "1e999999999"])
def test_no_answer(text):
    assert find_answer(text) is None


@pytest.mark.parametrize(
    ("text", "source"),
    [(r"\boxed{1} #### 2", "box"), ("the answer is 1 #### 2", "hash"), ("answer: 1, not 2", "phrase"), ("1 2", "last")],
)
def test_says_where_the_answer_stood(text, source):
    answer = find_answer(text)
    assert answer is not None
    assert answer.source == source


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(2125), "2125"),
        (Fraction(-3, 4), "-0.75"),
        (Fraction(1, 3), "1/3"),
        (Fraction(1, 40), "0.025"),
        (Fraction(1001, 10), "100.1"),
        (Fraction(1, 2**199), str(5**199).rjust(199, "0").join(["0.", ""])),
    ],
)
def test_numbers_are_printed_exactly(value, text):
    assert as_text(value) == text
    assert Fraction(text) == value


FRAGMENTS = [
    "\\boxed{",
    "}",
    "####",
    "answer is",
    "\\frac{",
    "{",
    "1",
    "0",
    "/",
    ".",
    ",",
    "-",
    "e9",
    " ",
    "\n",
    "\\text{",
    "=",
]


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=40).map("".join))
@example("1,111" * 2000)
@example("5" + " " * 20000)
@example("\\frac{1}{" * 500)
@example("1" * 5000)
@example("9" * 60 + "^" + "9" * 60)
@example("99^9999 0^0 0^9")
@example("." + "0" * 58 + f"1/{2**199}")
def test_any_text_is_read_without_an_error(text):
    answer = find_answer(text)
    assert answer is None or Fraction(answer.text) == answer.value


NASTY = {
    "digits": "1" * 100_000,
    "groups of three": "1," + "234," * 5_000 + "x",
    "braces that nest": "\\boxed{" + "{" * 20_000 + "}" * 20_000,
    "a box that is never closed": "\\boxed{" + "{" * 20_000,
    "thousands of boxes": "\\boxed{x}" * 5_000,
    "boxes that nest": "\\boxed{" * 4_000 + "1" + "}" * 4_000,
    "hashes on lines": "#### x\n" * 5_000,
    "boxes that are never closed": "\\boxed{" * 4_000,
    "hashes on one line": "#### x" * 5_000,
    "hashes and nothing else": "#" * 40_000,
    "answers in one sentence": "answer is " * 5_000,
    "spaces": "1" + " " * 30_000 + "x",
    "fractions": "\\frac{1}{" * 3_000,
    "powers of powers": "9^" * 20_000 + "99999999",
    "units": "\\boxed{" + "\\text{a}" * 5_000 + "}",
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_no_text_takes_long(text):
    """opencompass#2478: the parser of answers hung, and the run with it."""
    began = time.process_time()
    find_answer(text)
    assert time.process_time() - began < 1


FORMATS = {
    "plain box": lambda n: rf"so \boxed{{{n}}}",
    "box with separators": lambda n: rf"so \boxed{{{n:,}}} as asked",
    "box with braced commas": lambda n: r"\boxed{" + f"{n:,}".replace(",", "{,}") + "}",
    "box with thin spaces": lambda n: r"\boxed{" + f"{n:,}".replace(",", r"\,") + "}",
    "box with unicode minus": lambda n: r"\boxed{" + f"{n:,}".replace("-", "\u2212") + "}",
    "box with dollars and cents": lambda n: rf"\boxed{{\${n:,}.00}}",
    "box with unit": lambda n: rf"\boxed{{{n}\text{{ apples}}}} in 2020",
    "box with an equation": lambda n: rf"\boxed{{x = {n}}}",
    "hashes": lambda n: f"work\n#### {n}",
    "hashes with separators": lambda n: f"work\n#### {n:,}",
    "hashes with dollars": lambda n: f"work\n#### ${n:,}",
    "phrase": lambda n: f"The answer is {n:,}. It took 2 steps.",
    "prose": lambda n: f"In total that makes {n:,}.",
    "prose with cents": lambda n: f"In total that makes {n:,}.00.",
}


@pytest.fixture(scope="module")
def golds(real_data):
    with open(real_data / "gsm8k_test.jsonl", encoding="utf-8") as lines:
        return [json.loads(line)["answer"] for line in lines]


@pytest.mark.parametrize("style", FORMATS)
def test_every_gsm8k_answer_is_read_in_every_format(golds, style):
    assert len(golds) == 1319
    for gold in golds:
        number = int(gold.rpartition("####")[2].replace(",", ""))
        assert find_answer(gold).value == number
        assert find_answer(FORMATS[style](number)).value == number
