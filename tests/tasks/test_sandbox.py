"""Hostile and unlucky programs: each gets its verdict in time and leaves nothing behind."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from s2d2cli.errors import SandboxError
from s2d2cli.tasks import sandbox
from s2d2cli.tasks.sandbox import Limits, Program, ensure_sandbox, run_program

QUICK = Limits(cpu_s=1, wall_s=20, memory_bytes=1 << 30)
TESTS = ["assert double(2) == 4", "assert double(3) == 6"]
RIGHT = "def double(x):\n    return 2 * x\n"
WRONG = "def double(x):\n    return 4\n"


def run(code, tests=TESTS, setup="", limits=QUICK):
    return run_program(Program(code, tests, setup, limits))


def test_a_right_program_passes():
    assert run(RIGHT).status == "pass"


def test_a_wrong_program_names_the_test_it_fails():
    outcome = run(WRONG)
    assert (outcome.status, outcome.message) == ("assert", "assert double(3) == 6")


LEAVE_EARLY = {
    "sys.exit": "import sys\nsys.exit(0)",
    "exit": "exit()",
    "raise": "raise SystemExit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "os._exit": "import os\nos._exit(0)",
    "in a test": "import os\ndef double(x):\n    os._exit(0)",
    "sys.exit in a test": "import sys\ndef double(x):\n    sys.exit()",
    "kill": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "other program": "import os\nos.execv('/bin/true', ['true'])",
    "exit handler": "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit",
}


@pytest.mark.parametrize("ending", LEAVE_EARLY.values(), ids=LEAVE_EARLY)
def test_leaving_early_is_not_passing(ending):
    assert run(f"{WRONG}\n{ending}").status == "error"


def write_everywhere(text):
    return f"import os\nfor fd in range(3, 64):\n    try: os.write(fd, {text.encode()!r})\n    except OSError: pass"


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
    "endless": ("while True: pass", None),
    "forged": ("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'pass')\n    except OSError: pass", None),
}


@pytest.mark.parametrize(("code", "exit_code"), EXIT_CODES.values(), ids=EXIT_CODES)
def test_the_exit_code_is_that_of_a_plain_script(code, exit_code):
    assert run(code).exit_code == exit_code


FORGED = '{"status": "pass", "message": "", "exit_code": 0, "nonce": "' + "0" * 32 + '"}'
FORGERIES = {
    "print": f"print('pass')\nprint({FORGED!r})\nimport os\nos._exit(0)",
    "report": write_everywhere(FORGED),
    "unknown verdict": write_everywhere(FORGED.replace("pass", "fine")),
    "list": write_everywhere("[]"),
    "no JSON": write_everywhere("pass"),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_verdict_is_not_believed(forgery):
    assert run(f"{WRONG}\n{forgery}").status == "error"


IGNORE_SIGNAL = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
CATCH_EVERYTHING = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"


def test_an_endless_loop_runs_into_the_cpu_limit():
    assert run(CATCH_EVERYTHING).status == "timeout"


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.sleep(60)",
        IGNORE_SIGNAL,
        "import os\nos.closerange(3, 64)\nimport time\ntime.sleep(60)",  # closes the sandbox's own channel
    ],
)
def test_the_wall_limit_is_enforced_from_outside(code):
    begin = time.monotonic()
    assert run(code, limits=Limits(cpu_s=5, wall_s=0.3)).status == "timeout"
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("bomb", ["bytearray(1 << 40)", "x = [0]\nwhile True: x = x + x"])
def test_memory_is_limited(bomb):
    assert run(bomb, limits=Limits(cpu_s=10, wall_s=20, memory_bytes=1 << 28)).status == "memory"


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


def test_big_output_is_cut_and_small_output_is_kept():
    assert run(RIGHT + "print('hello')").output == "hello\n"
    outcome = run("while True: print('x' * 100000)", limits=Limits(cpu_s=5, wall_s=20, file_bytes=1 << 20))
    assert (outcome.status, "OSError" in outcome.message, len(outcome.output)) == ("error", True, sandbox.MAX_OUTPUT)


LEAVE_BEHIND = {
    "child": "subprocess.Popen(['sleep', '60'])",
    "child in its own session": "subprocess.Popen(['sleep', '60'], start_new_session=True)",
    "child that forgets its origin": "subprocess.Popen(['sleep', '60'], start_new_session=True, env={})",
    "child elsewhere": "subprocess.Popen(['sleep', '60'], start_new_session=True, cwd='/')",
    "fork that keeps all descriptors": "os.fork() or time.sleep(60)",
    "daemon": "os.fork() or (os.setsid(), os.fork() or time.sleep(60), os._exit(0))",
}


@pytest.mark.parametrize("leave", LEAVE_BEHIND.values(), ids=LEAVE_BEHIND)
@pytest.mark.parametrize("ending", ["", "os._exit(0)"], ids=["passes", "leaves early"])
@pytest.mark.skipif(sys.platform != "linux", reason="processes outside the group are found through /proc")
def test_no_process_survives(leave, ending, monkeypatch):
    runs = []
    kill_all = sandbox.kill_all
    monkeypatch.setattr(sandbox, "kill_all", lambda *args: runs.append(args[1:]) or kill_all(*args))
    outcome = run(f"import os, subprocess, time\n{RIGHT}\n{leave}\n{ending}")
    assert outcome.status == ("error" if ending else "pass")
    assert sandbox.stray_processes(*runs[0]) == []


def test_the_process_group_is_killed_where_strays_cannot_be_seen(monkeypatch):
    monkeypatch.setattr(sandbox, "stray_processes", lambda *run: [])
    pid = int(run(f"import subprocess\n{RIGHT}\nprint(subprocess.Popen(['sleep', '60']).pid)").output)
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


def is_running(pid):
    """Whether the process exists and is more than an entry that its parent has not collected yet."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_processes_of_a_run_are_found_by_folder_and_by_mark(tmp_path):
    marked = {"env": {"S2D2_SANDBOX": "some-mark"}, "cwd": "/"}
    with (
        subprocess.Popen(["sleep", "60"], env={}, cwd=tmp_path) as inside,
        subprocess.Popen(["sleep", "60"], **marked) as out,
    ):
        try:
            assert set(sandbox.stray_processes(tmp_path, "some-mark")) == {inside.pid, out.pid}
        finally:
            inside.kill()
            out.kill()


def test_the_surroundings_are_clean(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "helper.py").write_text("x = 1")
    tests = [
        "assert 'HF_TOKEN' not in os.environ",
        "assert os.listdir() == []",
        "assert os.getcwd() == os.environ['HOME']",
    ]
    assert run("import os", tests).status == "pass"
    assert "ModuleNotFoundError" in run("import helper").message


def test_files_of_a_program_are_removed():
    outcome = run("import os\nopen('x', 'w').write('y')\nprint(os.getcwd())" + "\n" + RIGHT)
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


def test_several_programs_at_once_do_not_mix():
    codes = [RIGHT, WRONG, "import os\nos._exit(0)"] * 3
    with ThreadPoolExecutor(4) as pool:
        statuses = [outcome.status for outcome in pool.map(run, codes)]
    assert statuses == ["pass", "assert", "error"] * 3


def test_no_descriptor_is_leaked():
    run(RIGHT)
    before = len(os.listdir("/dev/fd"))
    run(RIGHT)
    assert len(os.listdir("/dev/fd")) == before


def test_a_system_without_a_working_sandbox_is_refused(monkeypatch):
    ensure_sandbox()
    monkeypatch.setattr(sandbox, "sandbox_argv", lambda *args: ["/bin/echo", "no permission"])
    with pytest.raises(SandboxError, match="no permission"):
        ensure_sandbox()
