"""Hostile and unlucky programs: each gets its verdict in time, harms nobody and leaves nothing behind.

The fork bombs stop by themselves, in case the sandbox does not stop them.
"""

import os
import subprocess
import sys
import time

import pytest

from s2d2cli.tasks import sandbox_process
from s2d2cli.tasks.sandbox import Limits
from tests.tasks.test_sandbox import RIGHT, WRONG, both, run

LEAVE_EARLY = {
    "sys.exit": "import sys\nsys.exit(0)",
    "exit": "exit()",
    "raise": "raise SystemExit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "os._exit": "import os\nos._exit(0)",
    "in a test": "import os\ndef double(x):\n    os._exit(0)",
    "sys.exit in a test": "import sys\ndef double(x):\n    sys.exit()",
    "kill": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "kill the group": "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "alarm": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\nwhile True: pass",
    "other program": "import os\nos.execv('/bin/true', ['true'])",
    "exit handler": "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit",
    "abort": "import os\nos.abort()",
    "crash": "import ctypes\nctypes.string_at(0)",
    "close everything": f"import os\nos.closerange(0, 4096)\n{RIGHT}",
}


@both
@pytest.mark.parametrize("ending", LEAVE_EARLY.values(), ids=LEAVE_EARLY)
def test_leaving_early_is_not_passing(ending, kind):
    assert run(f"{WRONG}\n{ending}", kind=kind).status == "error"


def write_everywhere(text):
    return f"import os\nfor fd in range(3, 64):\n    try: os.write(fd, {text.encode()!r})\n    except OSError: pass"


CLAIM = '{"status": "pass", "message": "", "exit_code": 0}'
FORGERIES = {
    "print": f"print('pass')\nprint({CLAIM!r})\nimport os\nos._exit(0)",
    "claim": write_everywhere(CLAIM),
    "claim of a right program": f"{RIGHT}\n{write_everywhere(CLAIM)}",
    "claim and leave": f"{write_everywhere(CLAIM)}\nos._exit(0)",
    "guess": write_everywhere(CLAIM) + "\nimport time\ntime.sleep(0.2)\n" + write_everywhere("0" * 16),
    "unknown verdict": write_everywhere(CLAIM.replace("pass", "fine")),
    "odd exit code": write_everywhere('{"status": "error", "message": "", "exit_code": Infinity}'),
    "list": write_everywhere("[]"),
    "nested": write_everywhere("[" * 10000),
    "no JSON": write_everywhere("pass"),
}


@both
@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_verdict_is_not_believed(forgery, kind):
    assert run(f"{WRONG}\n{forgery}", kind=kind).status == "error"


TRICKS = {
    "no exec": "import builtins\nbuiltins.exec = lambda *args, **kwargs: None",
    "no compile": "import builtins\nold = compile\nbuiltins.compile = lambda *args, **kwargs: old('0', '', 'exec')",
    "no import": "import builtins\nbuiltins.__import__ = lambda *args, **kwargs: None",
    "other AssertionError": "import builtins\nbuiltins.AssertionError = type('Other', (Exception,), {})",
    "other BaseException": "import builtins\nbuiltins.BaseException = builtins.AssertionError = ZeroDivisionError",
    "harness by name": "import __main__\n__main__.exec = print\n__main__.run_tests = lambda *args: ('pass', '', 0)",
    "harness's exit": "import os\nos._exit = os.write = os.read = lambda *args: b''",
    "no tests": "import sys\nframe = sys._getframe()\nwhile frame:\n    for value in list(frame.f_locals.values()):\n"
    "        if type(value) is list: value.clear()\n    frame = frame.f_back",
    "warnings": "import warnings\nwarnings.simplefilter('error')",
    "own rlimits": "import resource\nfor kind in range(10):\n    try: resource.setrlimit(kind, (-1, -1))\n"
    "    except (OSError, ValueError): pass",
    "read everything": "import os\nfor fd in range(3, 64):\n    try:\n        os.set_blocking(fd, False)\n"
    "        os.write(fd, os.read(fd, 100))\n    except OSError: pass",
}


@both
@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_a_wrong_program_does_not_pass_by_a_trick(trick, kind):
    assert run(f"{trick}\n{WRONG}", kind=kind).status in ("assert", "error")


SLOW = {
    "catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "handles the signal": "import signal\nsignal.signal(signal.SIGXCPU, lambda *args: None)\nwhile True: pass",
    "regular expression": "import re\nre.match(r'(a+)+b', 'a' * 40)",
    "big number": "7 ** (10 ** 8)",
}


@both
@pytest.mark.parametrize("code", SLOW.values(), ids=SLOW)
def test_endless_work_runs_into_the_cpu_limit(code, kind):
    outcome = run(code, limits=Limits(cpu_s=1, wall_s=120), kind=kind)
    assert (outcome.status, outcome.exit_code) == ("timeout", None)
    assert "CPU" in outcome.message


WAITING = {
    "sleep": "import time\ntime.sleep(60)",
    "in C": "import ctypes\nctypes.CDLL(None).pause()",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "no channel": "import os, time\nos.closerange(3, 64)\ntime.sleep(60)",
    "other program": "import os\nos.execv('/bin/sleep', ['sleep', '60'])",
    "claims and waits": f"{write_everywhere(CLAIM)}\nimport time\ntime.sleep(60)",
    "ignores all signals": "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)",
}


@both
@pytest.mark.parametrize("code", WAITING.values(), ids=WAITING)
def test_the_wall_limit_is_enforced_from_outside(code, kind):
    begin = time.monotonic()
    assert run(code, limits=Limits(cpu_s=5, wall_s=0.5), kind=kind).status == "timeout"
    assert time.monotonic() - begin < 6


MEMORY = {
    "at once": "bytearray(1 << 40)",
    "doubling": "x = [0]\nwhile True: x = x + x",
    "in small pieces": "x = []\nwhile True: x.append([])",
}


@both
@pytest.mark.parametrize("bomb", MEMORY.values(), ids=MEMORY)
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no limit of address space")
def test_memory_is_limited(bomb, kind):
    limits = Limits(cpu_s=10, wall_s=30, memory_bytes=1 << 28)
    assert run(bomb, limits=limits, kind=kind).status == "memory"


HARMLESS = {
    "removes its folder": "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)",
    "leaves its folder": "import os\nos.chdir('/')",
    "nests folders": "import os\nfor _ in range(1200):\n    os.mkdir('a')\n    os.chdir('a')",
    "locks its folder": "import os\nos.mkdir('a')\nopen('a/b', 'w').close()\nos.chmod('a', 0)\nos.chmod('.', 0)",
    "threads left behind": "import threading, time\n"
    "for _ in range(9): threading.Thread(target=time.sleep, args=(60,)).start()",
    "loops in a thread": "import threading\ndef loop():\n    while True: pass\nthreading.Thread(target=loop).start()",
    "exit handler": "import atexit, time\natexit.register(time.sleep, 60)",
    "closed output": "import sys\nsys.stdout.close()\nsys.stderr = None",
    "both halves of a fork run on": "import os\nos.fork()",
    "tracer left on": "import sys\ndef trace(frame, event, arg): raise SystemExit(0)\nsys.settrace(trace)",
    "command line": "import argparse\nargparse.ArgumentParser().parse_args()",
}


@both
@pytest.mark.parametrize("oddity", HARMLESS.values(), ids=HARMLESS)
def test_oddities_do_not_fail_a_right_program(oddity, kind, monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox_process.tempfile, "tempdir", str(tmp_path))
    outcome = run(f"{RIGHT}\n{oddity}", limits=Limits(cpu_s=5, wall_s=30), kind=kind)
    assert outcome.status == "pass", (outcome.message, outcome.output)
    assert os.listdir(tmp_path) == []


def test_a_fork_answers_only_once():
    code = "import os, time\nchild = os.fork() == 0\ndef double(x): return 2 * x if child else time.sleep(0.3)"
    assert run(code).status == "assert"  # the child is done first, but it is not the one that was asked


BOMBS = {
    "doubling": "import os, time\nfor _ in range(11): os.fork()\ntime.sleep(20)",
    "one by one": "import os, time\nfor _ in range(400): os.fork() or (time.sleep(20), os._exit(0))\ntime.sleep(20)",
}


@both
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.skipif(sys.platform != "linux", reason="processes are counted through /proc")
def test_a_fork_bomb_is_stopped(bomb, kind, monkeypatch):
    runs = ended(monkeypatch)
    outcome = run(bomb, kind=kind)
    assert (outcome.status, outcome.message) == ("error", "the program started more than 100 processes")
    assert sandbox_process.family(*runs[0]) == []


def ended(monkeypatch):
    """The folder and the mark of each run that has ended."""
    runs = []
    end = sandbox_process.Child.end
    monkeypatch.setattr(sandbox_process.Child, "end", lambda child: runs.append((child.work, child.mark)) or end(child))
    return runs


LEAVE_BEHIND = {
    "child": "subprocess.Popen(['sleep', '60'])",
    "child in its own session": "subprocess.Popen(['sleep', '60'], start_new_session=True)",
    "child that forgets its origin": "subprocess.Popen(['sleep', '60'], start_new_session=True, env={})",
    "child elsewhere": "subprocess.Popen(['sleep', '60'], start_new_session=True, cwd='/')",
    "fork that keeps all descriptors": "os.fork() or time.sleep(60)",
    "daemon": "os.fork() or (os.setsid(), os.fork() or time.sleep(60), os._exit(0))",
}


@both
@pytest.mark.parametrize("leave", LEAVE_BEHIND.values(), ids=LEAVE_BEHIND)
@pytest.mark.parametrize("ending", ["", "os._exit(0)"], ids=["passes", "leaves early"])
@pytest.mark.skipif(sys.platform != "linux", reason="processes outside the group are found through /proc")
def test_no_process_survives(leave, ending, kind, monkeypatch):
    runs = ended(monkeypatch)
    outcome = run(f"import os, subprocess, time\n{RIGHT}\n{leave}\n{ending}", kind=kind)
    assert outcome.status == ("error" if ending else "pass")
    assert sandbox_process.family(*runs[0]) == []


def test_the_process_group_is_killed_where_strays_cannot_be_seen(monkeypatch):
    monkeypatch.setattr(sandbox_process, "family", lambda *run: [])
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
            assert set(sandbox_process.family(tmp_path, "some-mark")) == {inside.pid, out.pid}
        finally:
            inside.kill()
            out.kill()
