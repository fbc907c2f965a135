"""Runs generated programs in a fresh Python process with limits, and believes only a proof that their tests ran.

Two sandboxes. "process" is there on every Linux and macOS; "bwrap" puts bubblewrap around it, where that is installed
and user namespaces are allowed.

Covered by both: endless loops and slow code, also in C (CPU and wall limits, enforced from outside), memory (Linux),
huge files and output, core dumps, waiting for input, too many processes and processes left behind (Linux), leaving
early in whatever way (`sys.exit`, `os._exit`, another program), catching every exception, printing what a passing
program would print, replacing `exec`, `compile` and other builtins, and finding the tests or the harness by name.
"Pass" needs the answer to a nonce that does not exist for the program before a claim that the last test has run.

Covered by bwrap only: the network; all files outside the program's own folder (what Python needs is there to be read,
the rest is not there at all); processes of others, and every process left behind; root's freedom to raise its limits.

Not covered: this is a guard against accidents and cheap tricks, not against an attacker. Code and tests share one
interpreter, so a program that speaks the harness's protocol, or searches its frames and objects, can claim a pass; so
can an object that equals everything. Many small files can fill the disk. In "process" a program has the rights of the
user who runs s2d2, the limits do not bind root, a process that forks out of its group faster than it is swept up
escapes, and one that waits outlives an s2d2 that is itself killed. Run untrusted models in a container.

Not `python -I`: that would ignore PYTHONHASHSEED, and sets would be ordered differently in every run. The environment
is built from nothing, the working directory is new and empty, and `-s` leaves out the user's packages, which
is all that `-I` would add.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, BinaryIO

from s2d2cli.errors import SandboxError
from s2d2cli.tasks.sandbox_process import Child, Stopped, child_process, work_folder

SANDBOXES = ("auto", "bwrap", "process")
FAILURES = ("assert", "error", "syntax", "memory")
MAX_REPORT = 65536
MAX_OUTPUT = 2000
CPU_LIMIT = (-24, 128 + 24)  # exit codes after SIGXCPU, as Python and as bwrap tell them
KILLED = (-9, 128 + 9)


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
    sandbox: str = "process"  # or "bwrap", see choose_sandbox


@dataclass(frozen=True)
class Outcome:
    """`status` is pass, assert, error, syntax, memory or timeout; `output` is the end of what the program printed.

    `exit_code` is what the program, run as a plain script with its tests at the end, would leave with: 0 if it passes,
    but also if it leaves before its tests by `sys.exit()` or `os._exit(0)`. It is the program's own word. Negative or
    above 128: ended by a signal. None: ended by a limit, or unknown.
    """

    status: str
    message: str = ""
    output: str = ""
    exit_code: int | None = None


def choose_sandbox(wanted: str) -> str:
    """The sandbox to use, "bwrap" or "process", after a trial; "auto" is bwrap where it works. Record the answer."""
    if wanted not in SANDBOXES:
        raise SandboxError(f"sandbox must be one of {', '.join(SANDBOXES)}, got {wanted!r}")
    if wanted != "auto":
        ensure_sandbox(wanted)
        return wanted
    try:
        ensure_sandbox("bwrap")
        return "bwrap"
    except SandboxError:
        ensure_sandbox("process")
        return "process"


def ensure_sandbox(kind: str = "process") -> None:
    """Refuse a system on which programs cannot be run under limits, before anything depends on it."""
    if not hasattr(os, "killpg"):
        raise SandboxError(
            f"generated code runs only where process groups and resource limits exist (Linux, macOS), "
            f"this is {sys.platform}; use a Linux container, or a task that runs no code"
        )
    if kind == "bwrap" and not shutil.which("bwrap"):
        raise SandboxError(
            "sandbox=bwrap needs bubblewrap, and there is no bwrap on the PATH; "
            "install it (apt install bubblewrap), or use sandbox=process"
        )
    outcome = run_program(Program("x = 1", ["assert x == 1"], sandbox=kind))
    if outcome.status != "pass":
        raise SandboxError(
            f"a trivial program must pass in sandbox={kind}, it ended with {outcome.status} "
            f"({outcome.message} {' '.join(outcome.output.split())}); check the limits of this shell (ulimit -a)"
        )


def run_program(program: Program) -> Outcome:
    """Run `program` in its own process and folder; whatever it does, it and its children are gone afterwards.

    Raises SandboxError if the sandbox itself does not start: that is no verdict on the program.
    """
    with work_folder() as work, tempfile.TemporaryFile() as job, tempfile.TemporaryFile() as output:
        job.write(json.dumps(asdict(program)).encode())
        job.seek(0)
        with child_process(program.sandbox, work, (job, output), program.limits.wall_s) as child:
            if not child.started():
                raise SandboxError(
                    f"sandbox={program.sandbox} must start, it ended before it ran the program "
                    f"({' '.join(tail(output).split())}); check the limits of this shell (ulimit -a), "
                    f"or use another sandbox"
                )
            outcome = judged(child, program.limits)
        return replace(outcome, output=tail(output))


def judged(child: Child, limits: Limits) -> Outcome:
    """The verdict on a program that has just started."""
    begin = time.monotonic()
    try:
        report = child.hear(MAX_REPORT)
        if not report:
            return left_early(child.exit_code(), time.monotonic() - begin >= limits.cpu_s)
        outcome = told(report)
        return proved(child) if outcome.status == "pass" else outcome
    except Stopped as stopped:
        return Outcome(stopped.status, str(stopped))


def left_early(exit_code: int, long: bool) -> Outcome:
    """Without a report. A process that ignores SIGXCPU is killed by the kernel, and then it has run for `long`."""
    if exit_code in CPU_LIMIT or (exit_code in KILLED and long):
        return Outcome("timeout", "the CPU time limit was reached")
    return Outcome("error", f"the program ended before its last test (exit code {exit_code})", exit_code=exit_code)


def told(report: bytes) -> Outcome:
    """What a report says, which may be the program's invention."""
    try:
        said: dict[str, Any] = json.loads(report)
        status, message, code = said["status"], storable(said["message"]), said["exit_code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return Outcome("error", "the program wrote to the sandbox's own channel")
    if status not in ("pass", *FAILURES):
        return Outcome("error", "the program wrote to the sandbox's own channel")
    return Outcome(status, message, exit_code=code if isinstance(code, int) else None)


def proved(child: Child) -> Outcome:
    """A pass, if the harness answers the nonce that it gets only now. All that it may still say is the answer."""
    nonce = secrets.token_bytes(16)
    child.say(nonce)
    if child.hear(MAX_REPORT) == nonce:
        return Outcome("pass", exit_code=0)
    return Outcome("error", "the program claimed to pass without proof")


def storable(message: object) -> str:
    """Text that can be written to a UTF-8 file: a lone surrogate becomes an escape."""
    return str(message).encode("utf-8", "backslashreplace").decode("utf-8")


def tail(file: BinaryIO) -> str:
    """The end of a file, as text. The file has no name, so that the program cannot have removed it."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_OUTPUT))
    return file.read().decode("utf-8", "replace")
