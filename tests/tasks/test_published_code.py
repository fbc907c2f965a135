"""The published rules: which part of a reply they take, and when a script need not be run a second time."""

import ast

import pytest

from s2d2cli.tasks.published_code import published_extract, same_run
from s2d2cli.tasks.sandbox import Program

SHORT, LONG = "def f(x): return x", "def f(x):\n    return x + 1 - 1"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (f"```python\n{SHORT}\n```\n```python\n{LONG}\n```\n```\n{LONG}{LONG}\n```", LONG),
        (f"```\n{SHORT}\n```\n[BEGIN]{LONG}[DONE]", SHORT),
        (f"[BEGIN]\n{SHORT}\n[DONE]\n{LONG}", SHORT),
        (f"Sure.\n{SHORT}\n\n{LONG}\nThat is it.\ndef g(): pass", f"{SHORT}\n\n{LONG}"),
        ("import re\nA = 1\n" + LONG, LONG),  # the constant is lost, and with it what stands before it
        ("Sure.", "Sure."),
        ("    return x\n", "return x"),
        ("", ""),
    ],
)
def test_the_program_as_the_published_scripts_find_it(reply, code):
    assert published_extract(reply) == code


CODE = "import math\ndef f(x):\n    return math.floor(x)  # round\n"


@pytest.mark.parametrize(
    ("script", "same"),
    [
        (f"{CODE}\nassert f(1.5) == 1", True),
        (f"\n{CODE.replace('  # round', '')}\n\nassert f(1.5) == 1\n", True),
        (f"{CODE}\nassert f(1.5) == 2", False),
        (f"x = 1\n{CODE}\nassert f(1.5) == 1", False),
    ],
)
def test_a_script_with_the_same_statements_fares_alike(script, same):
    assert same_run(ast.parse(script), Program(CODE, ["assert f(1.5) == 1"])) is same


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "from random import random",
        "from collections import _sys",
        "exit()",
        "raise SystemExit",
        "print(__name__)",
        "x = math.__loader__",
        "class A: pass",
        "try:\n    f(1)\nexcept RecursionError:\n    pass",
        "x = input()",
        "x = getattr(math, 'sys')",
    ],
)
def test_what_may_tell_a_script_from_a_module_is_run_again(line):
    code = f"{CODE}{line}\n"
    script = f"{code}assert f(1.5) == 1"
    assert not same_run(ast.parse(script), Program(code, ["assert f(1.5) == 1"]))
