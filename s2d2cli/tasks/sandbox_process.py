"""The process of a sandboxed program as seen from outside: started, listened to, ended with all its descendants."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from s2d2cli.tasks.sandbox_command import command, environment

POLL_S = 0.02
MAX_PROCESSES = 100  # counted from outside, because root is exempt from RLIMIT_NPROC
QUIET_SWEEPS = 2  # one can miss a process that is born while its parent, seen last, has just gone
MAX_SWEEP_S = 2.0


class Stopped(Exception):
    """The program reached a limit that is enforced from outside."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Child:
    """A process with a socket to it, the folder and the mark that its descendants share, and its last moment."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    work: Path
    mark: str
    deadline: float
    tasks: int  # of the whole machine, before the program could add its own

    def started(self) -> bool:
        """Whether the harness has said its first byte, which it does before the program begins."""
        try:
            return self.hear(1) != b""
        except Stopped:
            return False

    def say(self, text: bytes) -> None:
        with suppress(OSError):  # it has ended, and then there will be no answer
            self.channel.sendall(text)

    def hear(self, size: int) -> bytes:
        """What is said next; b"" if the child has ended without a word. Raises Stopped at a limit."""
        while True:
            ended = self.process.poll() is not None  # asked first: a child that has ended has said all it had to say
            self.channel.settimeout(0.0 if ended else POLL_S)
            with suppress(TimeoutError, BlockingIOError):
                return self.heard(size)
            if ended:  # and a grandchild keeps the channel open
                return b""
            self.check_limits()

    def heard(self, size: int) -> bytes:
        with suppress(ConnectionError):
            if said := self.channel.recv(size):
                return said
        while self.process.poll() is None:  # the channel is closed, but its exit code is still to come
            self.check_limits()
            time.sleep(POLL_S / 10)
        return b""

    def check_limits(self) -> None:
        """Looks for the program's processes only if the machine has many more: a fork bomb must be seen at once."""
        if time.monotonic() > self.deadline:
            raise Stopped("timeout", "the time limit was reached")
        if tasks() > self.tasks + MAX_PROCESSES:
            if len(family(self.work, self.mark)) > MAX_PROCESSES:
                raise Stopped("error", f"the program started more than {MAX_PROCESSES} processes")
            self.tasks = tasks()

    def exit_code(self) -> int:
        return self.process.wait()

    def end(self) -> None:
        """End the process group, then what left the group but can still be told to belong to the run."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        quiet = 0
        deadline = time.monotonic() + MAX_SWEEP_S
        while quiet < QUIET_SWEEPS and time.monotonic() < deadline:
            left = family(self.work, self.mark)
            quiet = 0 if left else quiet + 1
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def child_process(kind: str, work: Path, files: tuple[BinaryIO, BinaryIO], wall_s: float) -> Iterator[Child]:
    """The harness on its job file, printing to the output file; ended on leaving, whatever happened."""
    job, output = files
    mark = secrets.token_hex(16)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:  # closed here, so that the end of the child is the end of the channel
            descriptors = (job.fileno(), theirs.fileno())
            process = subprocess.Popen(
                command(kind, work, descriptors),
                cwd=work,
                env=environment(work, mark),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                start_new_session=True,
            )
        child = Child(process, ours, work, mark, time.monotonic() + wall_s, tasks())
        try:
            yield child
        finally:
            child.end()


def family(work: Path, mark: str) -> list[int]:
    """Processes in the run's folder or with its mark, both inherited by children; empty where there is no /proc.

    Neither alone is enough: a process can change its folder, and shows no environment while it is starting a program.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            in_folder = os.readlink(process / "cwd").startswith(str(work))
            if in_folder or mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def tasks() -> int:
    """How many processes and threads the machine has; 0 where that is not told."""
    with suppress(OSError, LookupError, ValueError):
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return 0


@contextmanager
def work_folder() -> Iterator[Path]:
    """A new, empty folder, removed with whatever a program has put there."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="s2d2-"))
    try:
        yield Path(folder)
    finally:
        with suppress(RecursionError):  # rmtree's, on folders nested a thousand deep
            shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            force = 'chmod -R u+rwX "$0"; rm -rf "$0"'
            subprocess.run(["sh", "-c", force, folder], stderr=subprocess.DEVNULL, check=False)
