"""The inside of the sandbox: limits itself, runs one program and its tests, and reports what happened.

`sandbox.py` passes the text of this file to a fresh interpreter with `-c`; nothing imports it. Arguments: the job file
(JSON with code, setup, tests and limits), the descriptor that holds the nonce, the descriptor for the report.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from json import dumps, loads
from os import _exit, read, unlink, write
from types import CodeType, ModuleType
from typing import Any

MAX_MESSAGE = 300  # even escaped, a report fits into one atomic write to a pipe (4096 bytes)


def main(job_file: str, nonce_fd: int, report_fd: int) -> None:
    with open(job_file, encoding="utf-8", errors="surrogatepass") as file:
        job = loads(file.read())
    unlink(job_file)  # the program finds neither its tests nor this file's name
    apply_limits(job["limits"])
    status, message, exit_code = outcome(job)
    with suppress(BaseException):
        sys.stdout.flush()
    # Only a program whose tests all ran gets here with "pass", and only then is the nonce taken out of the pipe.
    nonce = read(nonce_fd, 64).decode() if status == "pass" else ""
    report = {"status": status, "message": message[:MAX_MESSAGE], "exit_code": exit_code, "nonce": nonce}
    write(report_fd, dumps(report).encode())
    _exit(0)  # no exit handlers, no waiting for threads that the program left behind


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


def outcome(job: dict[str, Any]) -> tuple[str, str, int]:
    """Status, message and the exit code that a plain script would have had.

    The setup follows the code because setups build objects of the code's classes.
    """
    module = ModuleType("solution")
    sys.modules["solution"] = module  # dataclasses and pickle look their module up
    try:
        program = compiled(job["code"], "<code>")
    except BaseException as error:
        return "syntax", described(error), 1
    try:
        exec(program, module.__dict__)
        exec(compiled(job["setup"], "<setup>"), module.__dict__)
    except BaseException as error:
        return failure(error), described(error), exit_code(error)
    return run_tests(job["tests"], module)


def run_tests(tests: list[str], module: ModuleType) -> tuple[str, str, int]:
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
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
