"""The inside of the sandbox: limits itself, runs one program and its tests, and reports what happened.

`sandbox_command.py` passes the text of this file to a fresh interpreter with `-c`; nothing imports it. Arguments: the
descriptors of the job (JSON with code, setup, tests and limits) and of the channel to the parent. On the channel go a
byte before the program starts, a report at its end, and after a pass the nonce with which the parent replies.

A program may replace what it likes in its interpreter, so what is needed afterwards is bound by name before.
"""

from __future__ import annotations

import resource
import sys
from builtins import compile, exec
from contextlib import suppress
from json import dumps, loads
from os import _exit, getpid, read, write
from sys import setprofile, settrace
from types import CodeType, ModuleType

MAX_MESSAGE = 300  # even escaped, a report is short enough to be written and read at once
RESERVE = 1 << 20  # bytes that are given back to report that memory has run out

Steps = tuple[str, ...]
Ended = tuple[str, str, int]  # status, message, and the exit code that a plain script would have had


def main(job_fd: int, channel: int) -> None:
    code, setup, tests = prepare(job_fd)
    write(channel, b"!")
    me, reserve = getpid(), bytearray(RESERVE)
    status, message, exit_code = outcome(code, setup, tests)
    del reserve
    if getpid() != me:  # a fork that ran on to the end of the program: one answer is enough
        _exit(exit_code)
    with suppress(BaseException):
        sys.stdout.flush()
    report = {"status": status, "message": message[:MAX_MESSAGE], "exit_code": exit_code}
    write(channel, dumps(report).encode())
    if status == "pass":
        write(channel, read(channel, 64))
    _exit(0)  # no exit handlers, no waiting for threads that the program left behind


def prepare(job_fd: int) -> tuple[str, str, Steps]:
    """The job, kept where a program does not stumble over it, under limits, in an interpreter that looks unused."""
    with open(job_fd, encoding="utf-8", errors="surrogatepass") as file:
        job = loads(file.read())
    apply_limits(job["limits"])
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if the machine runs out of memory, this process goes first
    sys.argv[:] = ["solution.py"]
    return job["code"], job["setup"], tuple(job["tests"])


def apply_limits(limits: dict[str, int]) -> None:
    lower(resource.RLIMIT_CPU, limits["cpu_s"], spare=1)  # SIGXCPU at the limit, SIGKILL a second later
    lower(resource.RLIMIT_FSIZE, limits["file_bytes"])
    lower(resource.RLIMIT_NPROC, limits["processes"])
    lower(resource.RLIMIT_CORE, 0)
    if sys.platform != "darwin":  # macOS refuses this limit
        lower(resource.RLIMIT_AS, limits["memory_bytes"])


def lower(kind: int, value: int, spare: int = 0) -> None:
    """Set soft and hard limit to `value`, the hard one `spare` above it, but never raise what is in force."""
    hard = resource.getrlimit(kind)[1]
    ceiling = value + spare if hard == resource.RLIM_INFINITY else min(value + spare, hard)
    resource.setrlimit(kind, (min(value, ceiling), ceiling))


def outcome(code: str, setup: str, tests: Steps) -> Ended:
    """How one run ends. The setup follows the code because setups build objects of the code's classes."""
    module = ModuleType("solution")
    sys.modules["solution"] = module  # dataclasses and pickle look their module up
    sys.modules["__main__"] = module  # not the harness
    try:
        program = compiled(code, "<code>")
    except BaseException as error:
        return "syntax", described(error), 1
    try:
        exec(program, module.__dict__)
        settrace(None)  # what the program watches itself with is not for the tests
        setprofile(None)
        exec(compiled(setup, "<setup>"), module.__dict__)
    except BaseException as error:
        return failure(error), described(error), exit_code(error)
    return run_tests(tests, module)


def run_tests(tests: Steps, module: ModuleType) -> Ended:
    for test in tests:
        try:
            exec(compiled(test, "<test>"), module.__dict__)
        except AssertionError:
            return "assert", test, 1
        except BaseException as error:
            return failure(error), f"{described(error)} in {test}", exit_code(error)
    return "pass", "", 0


def compiled(source: str, name: str) -> CodeType:
    return compile(source, name, "exec", dont_inherit=True)


def failure(error: BaseException) -> str:
    return "memory" if isinstance(error, MemoryError) else "error"


def exit_code(error: BaseException) -> int:
    """What a script that raises `error` ends with: 0 for a bare `sys.exit()`."""
    if not isinstance(error, SystemExit):
        return 1
    code = error.code
    return 0 if code is None else code & 0xFF if isinstance(code, int) else 1


def described(error: BaseException) -> str:
    """The error in one line; its text is the program's own code and may fail too."""
    text = ""
    with suppress(BaseException):
        text = str(error)[:MAX_MESSAGE]
    return f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
