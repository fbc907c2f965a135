"""HumanEval: its prompts word for word, and the verdicts of both protocols on the replies that models give."""

import json

import pytest

from s2d2cli.errors import ConfigError, SandboxError, TaskDataError
from s2d2cli.tasks.humaneval import HumanEval

HELPER = "from typing import List\n\n\ndef tripled(number: int) -> int:\n    return 3 * number\n\n\n"
DOCSTRING = '    """Three times the product of two sides.\n    >>> area([1, 2])\n    6\n    """\n'
HEAD = f"def area(sides: List[int]) -> int:\n{DOCSTRING}"
BODY = "    first, second = sides\n    return tripled(first * second)\n"
ROW = {
    "task_id": "HumanEval/7",
    "prompt": HELPER + HEAD,
    "entry_point": "area",
    "canonical_solution": BODY,
    "test": "\nM = {}\ndef check(candidate):\n    assert candidate([1, 2]) == 6\n    assert candidate([2, 2]) == 12\n",
}
WHOLE = ROW["prompt"] + BODY


def fenced(code, language="python"):
    return f"```{language}\n{code}\n```"


@pytest.fixture
def make(tmp_path):
    def build(*rows, **settings):
        path = tmp_path / "functions.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows or [ROW]))
        task = HumanEval(data=str(path), cpu_limit_s=1, **settings)
        task.validate()
        return task

    return build


def test_the_published_prompt(make):
    (sample,) = make().samples(None)
    assert sample.id == "HumanEval/7"
    assert sample.raw is None
    assert sample.messages == [
        {
            "role": "system",
            "content": "You are an expert Python programmer. Write a correct implementation. Return only Python code.",
        },
        {"role": "user", "content": f"Complete the following Python function:\n{ROW['prompt']}"},
    ]
    assert make().max_new_tokens == 512


def test_the_prompt_that_is_continued_is_bare(make):
    (sample,) = make(style="completion").samples(None)
    assert sample.raw == ROW["prompt"]


USAGE = "print(area([1, 2]))\n" * 20
OWN_HELPER = "def scaled(number):\n    return 3 * number"
FAST = "def area_fast(sides):\n    return 3 * sides[0] * sides[1]"
VERDICTS = {  # what the published scripts think of it comes last
    "C0 whole": (fenced(WHOLE), "pass", True),
    "C1 body": (BODY, "pass", False),
    "C1 body in a fence": (fenced(BODY), "pass", False),
    "C2 without imports": (fenced(HELPER.partition("\n")[2] + HEAD + BODY), "pass", False),
    "C3 longer example": (f"{fenced(WHOLE)}\nFor example:\n{fenced(USAGE)}", "pass", False),
    "C4 fence not closed": (f"```python\n{WHOLE}", "pass", True),
    "C4 py": (fenced(WHOLE, "py"), "pass", True),
    "C4 Python": (fenced(WHOLE, "Python"), "pass", True),
    "C5 body that calls a longer name": (f"    return area_fast(sides)\n\n\n{FAST}", "pass", False),
    "C5 only a longer name": (fenced(FAST), "error", False),
    "C6 sys.exit": (fenced(f"import sys\n{WHOLE}\nsys.exit()"), "error", True),
    "C6 SystemExit": (fenced(f"{HELPER}def area(sides):\n    raise SystemExit(0)"), "error", True),
    "C6 os._exit": (fenced(f"import os\n{HELPER}def area(sides):\n    os._exit(0)"), "error", True),
    "C7 helper in the first fence": (
        f"{fenced(OWN_HELPER)}\n{fenced('def area(sides):' + chr(10) + '    return scaled(sides[0] * sides[1])')}",
        "pass",
        False,
    ),
    "C8 fence in the docstring": (
        fenced(WHOLE.replace("    >>>", "    ```\n    >>>").replace("6\n", "6\n```\n")),
        "pass",
        False,
    ),
    "C9 without the helper": (fenced(f"from typing import List\n{HEAD}{BODY}"), "pass", False),
    "chat": (f"Here is:\n{fenced(WHOLE)}\nExplanation", "pass", True),
    "imports first": (f"from typing import List\n\n{HEAD}{BODY}", "pass", False),
    "explanation first": (f"{fenced('area([1, 2]) == 6')}\nso\n{fenced(WHOLE)}", "pass", True),
    "explanation last": (f"{fenced(WHOLE)}\nso\n{fenced('area([1, 2]) == 6')}", "pass", True),
    "slow example": (fenced(f"{WHOLE}\nwhile area([1, 2]): pass"), "pass", False),
    "wrong": (fenced(f"{HELPER}{HEAD}    return 6"), "assert", False),
    "wrong body": ("    return 6", "assert", False),
    "endless": ("    while True: pass", "timeout", False),
    "does not compile": (fenced("def area(sides) return 6"), "syntax", False),
    "prose": ("I would multiply.", "no_code", False),
    "nothing": ("", "no_code", False),
}


@pytest.mark.parametrize(("completion", "status", "paper"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts(make, completion, status, paper):
    verdict(make(), completion, status, paper)


@pytest.mark.parametrize(
    ("completion", "status", "paper"),
    [
        (BODY, "pass", True),
        (BODY + "\n\ndef main():\n    area([1", "pass", True),
        *((f"{BODY}\n{stop} (", "pass", True) for stop in ("class", "#", "if", "print")),
        (f"{BODY}```\n\nThis multiplies.", "pass", False),
        ("    raise SystemExit(0)", "error", False),  # lm-eval counts leaving early as a failure
        (f"import math\n{HEAD}{BODY}", "error", False),  # the stop string `def` leaves nothing of it
    ],
)
def test_verdicts_on_completions(make, completion, status, paper):
    verdict(make(style="completion"), completion, status, paper)


def verdict(task, completion, status, paper):
    score = task.score(task.samples(None)[0], completion)
    assert score.detail["status"] == status
    assert score.measures == {"fixed": (int(status == "pass"), 1), "paper": (int(paper), 1)}
    assert score.correct == (status == "pass")


def test_a_failure_names_the_check(make):
    score = make().score(make().samples(None)[0], "    return 6")
    assert score.detail["message"] == "check(area)"


def test_a_style_must_exist(make):
    with pytest.raises(ConfigError, match="task.style must be one of instruct, completion, got 'chat'"):
        make(style="chat")


def test_running_code_needs_consent_before_anything_else():
    with pytest.raises(SandboxError, match="humaneval .*--allow-code-execution"):
        HumanEval(data="/nowhere.jsonl").prepare(allow_code_execution=False)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ROW | {"entry_point": "are"}, "the prompt of HumanEval/7 must hold the head of are"),
        (ROW | {"test": "def check(candidate):\n    pass"}, "always pass"),
        (ROW | {"test": "assert area([1, 2]) == 6"}, "always pass"),
    ],
)
def test_bad_rows_are_refused(make, row, words):
    with pytest.raises(TaskDataError, match=words):
        make(row).prepare(allow_code_execution=True)


@pytest.mark.parametrize("name", ["HumanEval.jsonl", "HumanEval.jsonl.gz"])
def test_the_published_set(real_data, name):
    task = HumanEval(data=str(real_data / name))
    source = task.prepare(allow_code_execution=True)
    assert (source.rows, source.published) == (164, True)


@pytest.mark.parametrize("number", [10, 32, 38, 50])
def test_published_prompts_with_helpers(real_data, number):
    task = HumanEval(data=str(real_data / "HumanEval.jsonl"))
    sample = task.samples(None)[number]
    code = sample.record["prompt"] + sample.record["canonical_solution"]
    only = code[code.index(f"def {sample.record['entry_point']}") :]
    assert task.score(sample, fenced(f"import math\n{only}")).measures == {"fixed": (1, 1), "paper": (0, 1)}
