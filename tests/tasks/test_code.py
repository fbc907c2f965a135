"""Finding the program in a reply, and the verdict on it."""

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s2d2cli.errors import ConfigError, SandboxError, TaskDataError
from s2d2cli.tasks.code import extract_code, wanted_names
from s2d2cli.tasks.mbpp import MBPP, TinyCode

CODE = "def area(r):\n    return PI * r * r"
WHOLE = f"PI = 3\n{CODE}"


def value(program, expression="area(2)"):
    namespace = {}
    exec(program, namespace)
    return eval(expression, namespace)


def fenced(code, language="python"):
    return f"```{language}\n{code}\n```"


REPLIES = {
    "plain": WHOLE,
    "fence": fenced(WHOLE),
    "no language": fenced(WHOLE, ""),
    "py": fenced(WHOLE, "py"),
    "capital": fenced(WHOLE, "Python"),
    "tildes": f"~~~python\n{WHOLE}\n~~~",
    "unclosed fence": f"Here:\n```python\n{WHOLE}",
    "unclosed fence, cut off": f"```python\n{WHOLE}\n\ndef other(x):\n    return (x +",
    "prose around a fence": f"Here is the function:\n{fenced(WHOLE)}\nIt multiplies.",
    "prose around plain code": f"Here is the function, for you:\n\n{WHOLE}\n\nIt multiplies r by itself.",
    "one word behind": f"{WHOLE}\n\nExplanation",
    "begin and done": f"[BEGIN]\n{WHOLE}\n[DONE]\nanything",
    "done": f"{WHOLE}\n[DONE]",
    "begin": f"Sure! [BEGIN]\n{WHOLE}",
    "windows lines": fenced(WHOLE).replace("\n", "\r\n"),
    "list item": f"1. First:\n   ```python\n   PI = 3\n{'   ' + CODE.replace(chr(10), chr(10) + '   ')}\n   ```",
    "helper in the first fence": f"{fenced('PI = 3')}\nand then\n{fenced(CODE)}",
    "helper in the last fence": f"{fenced(CODE)}\nwhere\n{fenced('PI = 3')}",
    "helper in plain text": f"PI = 3\n\nThen we multiply:\n\n{CODE}\n",
    "longer example": f"{fenced(WHOLE)}\nUse it:\n{fenced('for r in range(100):' + chr(10) + '    area(r) + unknown')}",
    "example first": f"We want {fenced('area(2) == unknown')}\nso\n{fenced(WHOLE)}",
    "output": f"{fenced(WHOLE)}\nOutput:\n{fenced('>>> area(2)' + chr(10) + '12', '')}",
    "shell": f"{fenced('pip install math', 'bash')}\n{fenced('python x.py', '')}\n{fenced(WHOLE)}",
    "wrong attempt first": f"{fenced('def area(r):' + chr(10) + '    return 0')}\nBetter:\n{fenced(WHOLE)}",
    "broken attempt first": f"{fenced('def area(r:' + chr(10) + '    return 0')}\nBetter:\n{fenced(WHOLE)}",
    "fence in a docstring": fenced(
        f'PI = 3\ndef area(r):\n    """Such as\n\n    ```\n    area(2)\n    ```\n    """\n{CODE[13:]}'
    ),
    "fence at the margin of a docstring": fenced(
        f'PI = 3\ndef area(r):\n    """Such as\n```\narea(2)\n```\n    """\n{CODE[13:]}'
    ),
    "fence in a line": fenced(f"PI = 3\ndef area(r):\n    '''Use ```area(2)```.'''\n{CODE[13:]}"),
    "another name": fenced("PI = 3\ndef circle(r):\n    return PI * r * r\narea = circle"),
    "lambda": "area = lambda r: 3 * r * r",
    "method of the class": f"{WHOLE}\nclass area_of: pass",
    "in a branch": "try:\n    from nothing import area\nexcept ImportError:\n    area = lambda r: 3 * r * r",
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_the_program_is_found(reply):
    program = extract_code(reply, {"area"})
    assert program is not None
    assert value(program) == 12


EXAMPLES = {
    "call": "area(fail)",
    "print": "print(area(fail))",
    "assert": "assert area(2) == fail",
    "loop": "for x in [1]:\n    area(fail)",
    "result": "result = area(2)\nresult.fail()",
    "main": "def main():\n    area(fail)\nmain()",
    "main that asks": "def main():\n    n = int(input())\n    area(n)\nif True:\n    main()",
    "input": "n = int(input('?'))\nprint(fail(n))".replace("fail(n)", "n.fail"),
    "test class": "class Tests:\n    def run(self):\n        area(fail)\nTests().run()",
    "name": "fail",
}


@pytest.mark.parametrize("usage", EXAMPLES.values(), ids=EXAMPLES)
def test_examples_behind_the_function_are_dropped(usage):
    assert value(extract_code(f"{WHOLE}\n\n{usage}\n", {"area"})) == 12


INITIALISERS = {
    "call": "table = []\ndef fill():\n    table.append(12)\nfill()\ndef area(r): return table[0]",
    "loop": "table = {}\nfor r in range(5):\n    table[r] = 3 * r * r\ndef area(r): return table[r]",
    "own result": "def area(r): return 3 * r * r if r < 2 else cache[r]\ncache = {2: 12 * area(1) // 3}",
    "chain": "def area(r): return 12\nfirst = area(2)\nsecond = first\ndef other(): return second",
    "global": "PI = 0\ndef start():\n    global PI\n    PI = 3\nstart()\ndef area(r): return PI * r * r",
    "wrapper": "def area(r): return 2 * r * r\ndef more(f): return lambda r: f(r) + r * r\narea = more(area)",
    "decorator": "from functools import lru_cache\n@lru_cache(None)\ndef area(r): return 3 * r * r",
    "settings": "import sys\nsys.setrecursionlimit(12)\ndef area(r): return sys.getrecursionlimit()",
}


@pytest.mark.parametrize("code", INITIALISERS.values(), ids=INITIALISERS)
def test_what_the_function_needs_is_kept(code):
    program = extract_code(code, {"area"})
    assert program == code


def test_a_shared_line_is_kept_whole():
    code = "PI = 3; print(PI)\ndef area(r): return PI * r * r"
    assert extract_code(code, {"area"}) == code


@pytest.mark.parametrize(
    "reply", ["", " \n", "I cannot do that.", "For a circle, the area is what you want.", "```\n```"]
)
def test_no_code(reply):
    assert extract_code(reply, {"area"}) is None


NOT_MENDED = "def area(r):\n    return r\n    this is wrong"


@pytest.mark.parametrize(
    ("reply", "guess"),
    [
        (fenced("def surface(r):\n    return r"), "def surface(r):\n    return r"),  # runs into a NameError
        (fenced("def area(r:\n    return r"), "def area(r:\n    return r"),
        ("def area(r:\n    return r", "def area(r:\n    return r"),
        (NOT_MENDED, NOT_MENDED),
        ("import math\ndef area(r):\n    return (r *", "import math\ndef area(r):\n    return (r *"),  # cut off
    ],
)
def test_a_reply_without_a_right_program_is_still_judged(reply, guess):
    assert extract_code(reply, {"area"}) == guess


HEAD = 'from typing import List\n\ndef helper(x):\n    return 3 * x\n\ndef area(r: int) -> int:\n    """The area."""\n'
COMPLETIONS = {
    "body": "    return helper(r * r)\n",
    "body in a fence": fenced("    return helper(r * r)"),
    "body and prose": "    return helper(r * r)\n\nThis multiplies, as asked.",
    "body, fence and example": f"{fenced('    return helper(r * r)')}\nFor example:\n{fenced('print(area(unknown))')}",
    "function without its helper": fenced("def area(r):\n    return helper(r * r)"),
    "function without its imports": "def area(r: List) -> int:\n    return helper(r * r)",
    "prose, then the function": "Here you are, a function:\n\ndef area(r):\n    return helper(r * r)\n",
}


@pytest.mark.parametrize("reply", COMPLETIONS.values(), ids=COMPLETIONS)
def test_replies_may_continue_a_prompt(reply):
    assert value(extract_code(reply, {"area"}, HEAD)) == 12


def test_wanted_names_are_what_tests_call():
    tests = ["assert sorted(find(3)) == [1]", "assert math.isclose(area(Point(1)), 2)", "assert check(made) == 'x'"]
    assert wanted_names(tests) == {"find", "area", "Point", "check"}
    assert wanted_names(tests, "made = Node(1)\ndef check(x): pass") == {"find", "area", "Point", "Node"}
    assert wanted_names(["assert find(3) == ("]) == set()


PIECES = ["```", "```python\n", "\n", "def area(r):", "    return r", "'''", "(", "area(1)", "[DONE]", "\\", "\0", "@"]


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=20).map("".join))
@example("(" * 5000)
@example("-" * 50000)
def test_any_reply_is_read_without_an_error(reply):
    program = extract_code(reply, {"area"})
    assert program is None or program.strip()


@pytest.mark.parametrize("line", ["```\n", "```\n(", "x = [\n", "[BEGIN]", "def area(r):\n", "@", "if x:\n  "])
def test_a_line_repeated_without_end_takes_no_time(line):
    begin = time.process_time()
    extract_code(line * 300, {"area"})
    assert time.process_time() - begin < 5


ROW = {
    "task_id": 7,
    "text": "Write a function to double a number.",
    "code": "def double(x): return 2 * x",
    "test_list": ["assert double(2) == 4", "assert double(3) == 6", "assert double(root.value) == 2"],
    "test_setup_code": "root = Node(1)",
    "challenge_test_list": [],
}
NODE = "class Node:\n    def __init__(self, value): self.value = value\n"


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "functions.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    return MBPP(data=str(path), system="Write Python.", cpu_limit_s=1)


def test_the_published_prompt(task):
    (sample,) = task.samples(None)
    assert sample.id == "mbpp/7"
    assert sample.messages == [
        {"role": "system", "content": "Write Python."},
        {
            "role": "user",
            "content": "Write a function to double a number.\nYour code should pass these tests:\n"
            "assert double(2) == 4\nassert double(3) == 6\nassert double(root.value) == 2",
        },
    ]


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        (fenced(NODE + ROW["code"]), "pass"),
        (NODE + ROW["code"] + "\nprint(double(unknown))", "pass"),
        (NODE + "def double(x): return 4", "assert"),
        (NODE + "def triple(x): return 4", "error"),
        (NODE + "import os\ndef double(x): os._exit(0)", "error"),
        (NODE + "def double(x): return bytearray(1 << 45)", "memory"),
        (fenced("def double(x) return 2 * x"), "syntax"),
        ("I would multiply by two.", "no_code"),
        ("", "no_code"),
    ],
)
def test_verdicts(task, completion, status):
    score = task.score(task.samples(None)[0], completion)
    assert score.detail["status"] == status
    assert score.correct == (status == "pass")
    assert (score.extracted is None) == (status == "no_code")


def test_a_hanging_program_gets_the_tasks_limit(task):
    score = task.score(task.samples(None)[0], NODE + "def double(x):\n    while True: pass")
    assert score.detail["status"] == "timeout"


def test_running_code_needs_consent_before_anything_else():
    with pytest.raises(SandboxError, match="tiny_code .*--allow-code-execution"):
        TinyCode(data="/nowhere.jsonl").prepare(allow_code_execution=False)


def test_the_time_limit_is_checked():
    with pytest.raises(ConfigError, match="cpu_limit_s"):
        TinyCode(cpu_limit_s=0).validate()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROW | {"test_list": []}], "always pass"),
        ([ROW | {"test_list": [5]}], "task_id 7"),
        ([ROW, ROW], "mbpp/7 occurs twice"),
    ],
)
def test_bad_rows_are_refused(tmp_path, rows, words):
    path = tmp_path / "functions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(TaskDataError, match=words):
        MBPP(data=str(path)).prepare(allow_code_execution=True)


def test_published_solutions_are_found_in_every_style(real_data):
    task = MBPP(data=str(real_data / "mbpp.jsonl"))
    for sample in task.samples(None)[::10]:
        code = sample.record["code"].replace("\r\n", "\n")
        names = wanted_names(sample.record["test_list"], sample.record["test_setup_code"])
        for reply in (code, fenced(code), f"Here it is:\n\n{code}\n\nThat does the job.", f"```\n{code}"):
            assert extract_code(reply, names).strip() == code.strip(), sample.id


def test_a_published_setup_that_needs_the_code(real_data):
    """Task 367 can only pass if its setup follows the code: it builds objects of the code's class."""
    task = MBPP(data=str(real_data / "mbpp.jsonl"))
    sample = task.samples(None)[366]
    assert sample.id == "mbpp/367"
    assert task.score(sample, fenced(sample.record["code"])).correct


@pytest.mark.slow
def test_every_published_solution_passes(real_data):
    task = MBPP(data=str(real_data / "mbpp.jsonl"))
    assert task.prepare(allow_code_execution=True).rows == 974
    assert [s.id for s in task.samples(None)[10:510] if not task.score(s, fenced(s.record["code"])).correct] == []


def test_shipped_solutions_pass():
    task = TinyCode()
    assert task.prepare(allow_code_execution=True).rows >= 200
    samples = task.samples(None)
    assert len({sample.id for sample in samples}) == len(samples)
    assert [s.id for s in samples[::20] if not task.score(s, s.record["code"]).correct] == []
