"""Verdicts, limits and surroundings of programs, in both sandboxes."""

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from s2d2cli.errors import SandboxError
from s2d2cli.tasks import sandbox_process
from s2d2cli.tasks.sandbox import Limits, Program, choose_sandbox, ensure_sandbox, run_program

QUICK = Limits(cpu_s=1, wall_s=20, memory_bytes=1 << 30)
TESTS = ["assert double(2) == 4", "assert double(3) == 6"]
RIGHT = "def double(x):\n    return 2 * x\n"
WRONG = "def double(x):\n    return 4\n"


def reason_against(kind):
    """Why this machine cannot run the sandbox `kind`; "" if it can."""
    try:
        ensure_sandbox(kind)
    except SandboxError as error:
        return str(error)
    return ""


NO_BWRAP = reason_against("bwrap")
KINDS = ["process", pytest.param("bwrap", marks=pytest.mark.skipif(bool(NO_BWRAP), reason=NO_BWRAP))]
both = pytest.mark.parametrize("kind", KINDS)


def run(code, tests=TESTS, setup="", limits=QUICK, kind="process"):
    return run_program(Program(code, tests, setup, limits, kind))


@both
def test_a_right_program_passes(kind):
    assert run(RIGHT, kind=kind).status == "pass"


@both
def test_a_wrong_program_names_the_test_it_fails(kind):
    outcome = run(WRONG, kind=kind)
    assert (outcome.status, outcome.message) == ("assert", "assert double(3) == 6")


EXIT_CODES = {
    "passes": (RIGHT, 0),
    "fails": (WRONG, 1),
    "no program": ("def double(x) return", 1),
    "raises": ("1 / 0", 1),
    "sys.exit()": ("import sys\nsys.exit()", 0),
    "sys.exit(0)": ("import sys\nsys.exit(0)", 0),
    "sys.exit(3)": ("import sys\nsys.exit(3)", 3),
    "sys.exit(-1)": ("import sys\nsys.exit(-1)", 255),
    "sys.exit(text)": ("import sys\nsys.exit('bye')", 1),
    "raise SystemExit": ("raise SystemExit", 0),
    "sys.exit() in a test": ("import sys\ndef double(x): sys.exit()", 0),
    "os._exit(0)": ("import os\nos._exit(0)", 0),
    "os._exit(7)": ("import os\nos._exit(7)", 7),
    "other program": ("import os\nos.execv('/bin/true', ['true'])", 0),
    "forged": ("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'pass')\n    except OSError: pass", None),
}


@pytest.mark.parametrize(("code", "exit_code"), EXIT_CODES.values(), ids=EXIT_CODES)
@both
def test_the_exit_code_is_that_of_a_plain_script(code, exit_code, kind):
    assert run(code, kind=kind).exit_code == exit_code


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def double(x): return 2 * y", "NameError"),
        ("", "NameError: name 'double' is not defined in assert double(2) == 4"),
        ("def double(x): return double(x)", "RecursionError"),
        ("class E(Exception):\n    def __str__(self): raise self\ndef double(x): raise E", "E: "),
        ("double = input", "EOFError"),  # standard input is empty, not a terminal
    ],
)
def test_errors_are_described(code, message):
    outcome = run(code)
    assert outcome.status == "error"
    assert message in outcome.message


@pytest.mark.parametrize("code", ["def double(x) return", "return 5", "x = '\ud800'", "a\0b"])
def test_text_that_is_no_program(code):
    assert run(code).status == "syntax"


def test_messages_can_be_stored():
    message = run("def double(x): raise ValueError('\\ud800')").message
    assert "ud800" in json.dumps(message, ensure_ascii=False).encode("utf-8").decode()


@both
def test_big_output_is_cut_and_small_output_is_kept(kind):
    assert run(RIGHT + "print('hello')", kind=kind).output == "hello\n"
    limits = Limits(cpu_s=5, wall_s=20, file_bytes=1 << 20)
    outcome = run("while True: print('x' * 100000)", limits=limits, kind=kind)
    assert (outcome.status, "OSError" in outcome.message, len(outcome.output)) == ("error", True, 2000)


@both
def test_the_surroundings_are_clean(kind, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "helper.py").write_text("x = 1")
    tests = [
        "assert 'HF_TOKEN' not in os.environ",
        "assert os.listdir() == []",
        "assert os.getcwd() == os.environ['HOME']",
        "assert len(sys.argv) == 1",
        "assert sys.stdin.read() == ''",
    ]
    assert run("import os, sys", tests, kind=kind).status == "pass"
    assert "ModuleNotFoundError" in run("import helper", kind=kind).message


@both
def test_files_of_a_program_are_removed(kind):
    outcome = run("import os\nopen('x', 'w').write('y')\nprint(os.getcwd())" + "\n" + RIGHT, kind=kind)
    assert outcome.status == "pass"
    assert not Path(outcome.output.strip()).exists()


def test_sets_are_ordered_alike_in_every_run():
    outputs = {run("print(list(set('abcdefgh')), hash('x'))").output for _ in range(2)}
    assert len(outputs) == 1


def test_setup_follows_the_code_and_modules_work():
    code = "from dataclasses import dataclass\n@dataclass\nclass Node:\n    value: 'int'\n" + RIGHT.replace(
        "* x", "* x.value"
    )
    assert run(code, tests=["assert double(root) == 6"], setup="root = Node(3)").status == "pass"


LIBRARIES = {
    "standard library": "import asyncio, ctypes, decimal, hashlib, sqlite3, ssl\nasyncio.run(asyncio.sleep(0))",
    "numpy": "import numpy\nassert numpy.linalg.inv(numpy.eye(3)).trace() == 3",
    "temporary file": "import tempfile\nwith tempfile.NamedTemporaryFile('w') as file: file.write('x')",
    "other program": "import subprocess\nassert subprocess.run(['echo', 'a'], capture_output=True).stdout == b'a\\n'",
    "many threads": "from threading import Barrier, Thread\nbarrier = Barrier(61, timeout=20)\n"
    "for _ in range(60): Thread(target=barrier.wait).start()\nbarrier.wait()",
    "pool": "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n"
    "    assert pool.map(abs, [-1, 2]) == [1, 2]",
}


@both
@pytest.mark.parametrize("code", LIBRARIES.values(), ids=LIBRARIES)
def test_what_right_programs_use_is_there(code, kind):
    outcome = run(f"{RIGHT}\n{code}", limits=Limits(memory_bytes=1 << 30), kind=kind)
    assert outcome.status == "pass", (outcome.message, outcome.output)


@both
def test_several_programs_at_once_do_not_mix(kind):
    codes = [RIGHT, WRONG, "import os\nos._exit(0)"] * 3
    with ThreadPoolExecutor(4) as pool:
        statuses = [outcome.status for outcome in pool.map(lambda code: run(code, kind=kind), codes)]
    assert statuses == ["pass", "assert", "error"] * 3


def test_scoring_works_in_spawned_processes():
    programs = [Program(code, TESTS, limits=QUICK) for code in (RIGHT, WRONG)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert [outcome.status for outcome in pool.map(run_program, programs)] == ["pass", "assert"]


@both
def test_a_right_program_passes_on_a_busy_machine(kind):
    """It needs most of the CPU time it may use, and gets less than half a core."""
    work = "import time\nwhile time.process_time() < 0.7: pass\n"
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert run(work + RIGHT, kind=kind).status == "pass"
    finally:
        for other in others:
            other.kill()
            other.wait()


@both
def test_no_descriptor_is_leaked(kind):
    run(RIGHT, kind=kind)
    before = len(os.listdir("/dev/fd"))
    run(RIGHT, kind=kind)
    assert len(os.listdir("/dev/fd")) == before


def test_a_system_without_a_working_sandbox_is_refused(monkeypatch):
    assert choose_sandbox("process") == "process"
    monkeypatch.setattr(sandbox_process, "command", lambda *args: ["/bin/echo", "no permission"])
    with pytest.raises(SandboxError, match="no permission"):
        choose_sandbox("process")


def test_a_sandbox_that_does_not_start_is_no_verdict(monkeypatch):
    monkeypatch.setattr(sandbox_process, "command", lambda *args: [sys.executable, "-c", "1 / 0"])
    with pytest.raises(SandboxError, match="sandbox=process must start.*ZeroDivisionError"):
        run(RIGHT)
