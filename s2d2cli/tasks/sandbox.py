"""Runs generated programs in a fresh Python process with limits, and believes only a proof that their tests ran.

Covered: endless loops and slow code (CPU and wall limits, enforced from outside), memory (Linux), huge files and
output, core dumps, waiting for input, processes left behind (killed by group, and on Linux by folder and by a mark in
their environment), leaving early in whatever way (`sys.exit`, `os._exit`, `raise SystemExit`), catching every
exception, and printing what a passing program would print: "pass" needs a random nonce that is handed out only after
the last test.

Not covered: this is a guard against accidents, not against an attacker. The program has the rights of the user who runs
s2d2: it can use the network, read and write that user's files, signal that user's processes, and fill the disk with
many files. A program that looks for the nonce in its own process can find it, and one that keeps forking out of its
group faster than it is swept up can escape. The process limit does not bind root. Run untrusted models in a container.

Not `python -I`: that would ignore PYTHONHASHSEED, and sets would be ordered differently in every run. The environment
is built here from nothing, the working directory is new and empty, and `-s` leaves out the user's packages, which
is all that `-I` would add.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

from s2d2cli.errors import SandboxError

CHILD = Path(__file__).with_name("sandbox_child.py")
FAILURES = ("assert", "error", "syntax", "memory")
MAX_REPORT = 65536
MAX_OUTPUT = 2000
POLL_S = 0.02
QUIET_SWEEPS = 2  # one can miss a process that is born while its parent, seen last, has just gone
MAX_SWEEP_S = 2.0


@dataclass(frozen=True)
class Limits:
    """What one program may use. The wall limit is generous: a busy machine must not fail a right program."""

    cpu_s: int = 10
    wall_s: float = 30.0
    memory_bytes: int = 4 << 30
    file_bytes: int = 16 << 20
    processes: int = 1024  # of the user, not only of the program


@dataclass(frozen=True)
class Program:
    """Code, then set-up, then tests one by one, all in one namespace."""

    code: str
    tests: list[str]
    setup: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Outcome:
    """`status` is pass, assert, error, syntax, memory or timeout; `output` is the end of what the program printed.

    `exit_code` is what the program, run as a plain script with its tests at the end, would leave with: 0 if it passes,
    but also if it leaves before its tests by `sys.exit()` or `os._exit(0)`. It is the program's own word. Negative:
    ended by that signal. None: ended by a time limit, or unknown.
    """

    status: str
    message: str = ""
    output: str = ""
    exit_code: int | None = None


def ensure_sandbox() -> None:
    """Refuse a system on which programs cannot be run under limits, before anything depends on it."""
    if not hasattr(os, "killpg"):
        raise SandboxError(
            f"generated code runs only where process groups and resource limits exist (Linux, macOS), "
            f"this is {sys.platform}; use a Linux container, or a task that runs no code"
        )
    outcome = run_program(Program("x = 1", ["assert x == 1"]))
    if outcome.status != "pass":
        raise SandboxError(
            f"a trivial program must pass in the sandbox, it ended with {outcome.status} "
            f"({outcome.message} {' '.join(outcome.output.split())}); check the limits of this shell (ulimit -a)"
        )


def run_program(program: Program) -> Outcome:
    """Run `program` in its own process and folder; whatever it does, it and its children are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="s2d2-", ignore_cleanup_errors=True) as folder:
        work = Path(folder) / "work"
        work.mkdir()
        job = {**asdict(program), "limits": asdict(program.limits)}
        job_file = Path(folder) / "job.json"
        job_file.write_text(json.dumps(job), encoding="utf-8")
        return run_job(job_file, work, program.limits.wall_s)


def run_job(job_file: Path, work: Path, wall_s: float) -> Outcome:
    nonce, mark = secrets.token_hex(16), secrets.token_hex(16)
    output_file = job_file.with_name("output")
    with pipe() as (nonce_out, nonce_in), pipe() as (report_out, report_in), open(output_file, "wb") as output:
        nonce_in.write(nonce.encode())
        process = subprocess.Popen(
            sandbox_argv(job_file, nonce_out.fileno(), report_in.fileno()),
            cwd=work,
            env=environment(work, mark),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(nonce_out.fileno(), report_in.fileno()),
            start_new_session=True,
        )
        report_in.close()  # so that the end of the child is the end of the pipe
        try:
            report = wait_for_report(process, report_out, wall_s)
        finally:
            kill_all(process, work, mark)
    status, message, exit_code = verdict(report, process.returncode, nonce)
    return Outcome(status, message, tail(output_file), exit_code)


def sandbox_argv(job_file: Path, nonce_fd: int, report_fd: int) -> list[str]:
    """The command that runs a job: the one place where a stronger container would wrap itself around it."""
    source = CHILD.read_text(encoding="utf-8")
    return [sys.executable, "-s", "-B", "-c", source, str(job_file), str(nonce_fd), str(report_fd)]


def environment(work: Path, mark: str) -> dict[str, str]:
    """Nothing is inherited: no keys, no proxies, no PYTHONPATH. The mark identifies the processes of this run."""
    fixed = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**fixed, **one_thread, "HOME": str(work), "TMPDIR": str(work), "S2D2_SANDBOX": mark}


@contextmanager
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as reader, open(write_end, "wb", buffering=0) as writer:
        yield reader, writer


def wait_for_report(process: subprocess.Popen[bytes], pipe_end: BinaryIO, wall_s: float) -> bytes | None:
    """The first thing written to the pipe; b"" if the child ended without a word, None if its time ran out."""
    deadline = time.monotonic() + wall_s
    with selectors.DefaultSelector() as selector:
        selector.register(pipe_end, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            ended = process.poll() is not None  # asked first: a child that has ended has written all it had to say
            if selector.select(0 if ended else min(left, POLL_S)):
                return os.read(pipe_end.fileno(), MAX_REPORT) or wait_for_end(process, deadline)
            if ended:  # and a grandchild keeps the pipe open
                return b""
    return None


def wait_for_end(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """After the pipe was closed: b"" once the child has ended, so that its own exit code is seen."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
        return b""
    return None


def kill_all(process: subprocess.Popen[bytes], work: Path, mark: str) -> None:
    """End the child's process group, then what left the group but can still be told to belong to the run."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    quiet = 0
    deadline = time.monotonic() + MAX_SWEEP_S
    while quiet < QUIET_SWEEPS and time.monotonic() < deadline:
        strays = stray_processes(work, mark)
        quiet = 0 if strays else quiet + 1
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def stray_processes(work: Path, mark: str) -> list[int]:
    """Processes in the run's folder or with its mark, both inherited by children; empty where there is no /proc.

    Neither alone is enough: a process can change its folder, and shows no environment while it is starting a program.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            in_folder = os.readlink(process / "cwd").startswith(os.path.realpath(work))
            if in_folder or mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def verdict(report: bytes | None, exit_code: int, nonce: str) -> tuple[str, str, int | None]:
    """Status, message and exit code. No claim to have passed is believed except with the nonce."""
    if report is None or (not report and exit_code == -signal.SIGXCPU):
        return "timeout", "the time limit was reached", None
    if not report:
        return "error", f"the program ended before its last test (exit code {exit_code})", exit_code
    try:
        said = json.loads(report)
        status, message, code, proof = said["status"], storable(said["message"]), said["exit_code"], said["nonce"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "error", "the program wrote to the sandbox's own channel", None
    if status == "pass" and proof == nonce:
        return "pass", "", 0
    if status in FAILURES:
        return status, message, code if isinstance(code, int) else None
    return "error", "the program claimed to pass without proof", None


def storable(message: object) -> str:
    """Text that can be written to a UTF-8 file: a lone surrogate becomes an escape."""
    return str(message).encode("utf-8", "backslashreplace").decode("utf-8")


def tail(path: Path) -> str:
    """The end of a file, as text."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_OUTPUT))
        return file.read().decode("utf-8", "replace")
