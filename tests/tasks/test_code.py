"""Finding the program in a reply."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s2d2cli.tasks.code import extract_code, wanted_names
from s2d2cli.tasks.published_code import published_extract

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
    "done, then the next problem": f"{WHOLE}\n[DONE]\n\nAnother task.\n[BEGIN]\ndef other(r):\n    return 0\n[DONE]",
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


IMPORT, HELPER = "from typing import List\n\n", "def helper(x):\n    return 3 * x\n\n"
HEAD = f'{IMPORT}{HELPER}def area(r: int) -> int:\n    """The area."""\n'
BODY = "    return helper(r * r)"
COMPLETIONS = {
    "body": f"{BODY}\n",
    "body behind an empty line": f"\n{BODY}",
    "body in a fence": fenced(BODY),
    "body in a fence that is not closed": f"```python\n{BODY}",
    "body in a list item": f"1. Like this:\n   ```python\n   {BODY}\n   ```",
    "body and prose": f"{BODY}\n\nThis multiplies, as asked.",
    "body and a lone fence": f"{BODY}\n```\n\nThis multiplies.",
    "body, fence and example": f"{fenced(BODY)}\nFor example:\n{fenced('print(area(unknown))')}",
    "body and an example that is cut off": f"```python\n{BODY}\n\nprint(area(",
    "body and a helper with a longer name": "    return area_of(r)\n\ndef area_of(r):\n    return helper(r * r)",
    "function without its helper": fenced("def area(r):\n    return helper(r * r)"),
    "function without its imports": "def area(r: List) -> int:\n    return helper(r * r)",
    "function with imports, without its helper": f"{IMPORT}def area(r: List):\n    return helper(r * r)",
    "function with another import": "import math\ndef area(r: List):\n    return math.floor(helper(r * r))",
    "function with a helper of its own": fenced("def helper(x):\n    return 12\ndef area(r):\n    return helper(r)"),
    "helper in a fence of its own": f"{fenced('def x3(x): return 3 * x')}\n{fenced('def area(r): return x3(r * r)')}",
    "whole": fenced(f"{HEAD}{BODY}"),
    "whole, in the future": f"from __future__ import annotations\n{HEAD}{BODY}",
    "prose, then the function": "Here you are, a function:\n\ndef area(r):\n    return helper(r * r)\n",
    "function in the text, example in a fence": f"def area(r):\n{BODY}\n\nUse it:\n{fenced('print(area(2))')}",
    "explanation first": f"{fenced('area(2) == 12')}\nso\n{fenced('def area(r):' + chr(10) + BODY)}",
    "explanation last": f"{fenced('def area(r):' + chr(10) + BODY)}\nso\n{fenced('area(2) == 12')}",
    "fence in the docstring": fenced(f'def area(r):\n    """As in\n```\narea(2)\n```\n    """\n{BODY}'),
}


@pytest.mark.parametrize("reply", COMPLETIONS.values(), ids=COMPLETIONS)
def test_replies_may_repeat_or_continue_a_prompt(reply):
    assert value(extract_code(reply, {"area"}, HEAD)) == 12


def test_what_a_reply_has_itself_is_not_put_in_front_again():
    assert extract_code(fenced(HEAD + BODY), {"area"}, HEAD) == HEAD + BODY
    assert extract_code(fenced(f"def area(r):\n{BODY}"), {"area"}, HEAD) == f"{IMPORT}{HELPER}def area(r):\n{BODY}"


@pytest.mark.parametrize(
    ("reply", "guess"),
    [
        ("def area_of(r):\n    return r", f"{IMPORT}{HELPER}def area_of(r):\n    return r"),
        ("    return (r *", f"{HEAD}    return (r *"),
        ("I cannot do that.", None),
        ("", None),
    ],
)
def test_a_wrong_completion_is_judged_as_it_is(reply, guess):
    assert extract_code(reply, {"area"}, HEAD) == guess


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
    for prompt in ("", HEAD):
        program = extract_code(reply, {"area"}, prompt)
        assert program is None or program.strip()
    assert len(published_extract(reply)) <= len(reply)


@pytest.mark.parametrize("prompt", ["", HEAD], ids=["bare", "prompt"])
@pytest.mark.parametrize(
    "line", ["```\n", "```\n(", "x = [\n", "[BEGIN]", "def area(r):\n", "@", "if x:\n  ", "    x\n```\n"]
)
def test_a_line_repeated_without_end_takes_no_time(line, prompt):
    begin = time.process_time()
    extract_code(line * 300, {"area"}, prompt)
    published_extract(line * 300)
    assert time.process_time() - begin < 5
