"""Who has which point in hand: a file per claimed point, made in one step or not at all.

A claim appears under its name by a hard link, which, like O_EXCL, succeeds for one process only, and with its content
already in it: a process that is killed meanwhile leaves no empty claim. A thread keeps its time fresh. A claim is stale
at once when its process on this host is dead, and elsewhere when it has not been refreshed for TTL_S; then it is
replaced by a rename. Should two workers hold a point after all, the lock of the run folder keeps them apart.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

TTL_S = 120.0


@dataclass(frozen=True)
class Holder:
    """The process behind a claim. The time it started tells it from a later process of the same number."""

    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: started(os.getpid()))
    since: float = field(default_factory=time.time)
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def dead(self) -> bool:
        """Known to be dead. Of another host's process nothing is known."""
        return self.here and started(self.pid) != self.started


def started(pid: int) -> str:
    """When this process started, in the system's own words; "" when it is not alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
        listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
        return listed.stdout.strip()


@dataclass
class Claim:
    """A point that this process holds; `died` is the holder that it was taken from."""

    path: Path
    mine: Holder
    died: Holder | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Refreshed while inside, released at the end, whatever ends it."""
        with self.path.open("rb") as file:  # by its descriptor: a claim that was taken from us is not refreshed by us
            beat = threading.Thread(target=self.beat, args=(file.fileno(),), daemon=True)
            beat.start()
            try:
                yield
            finally:
                self.ended.set()
                beat.join()
                self.release()

    def beat(self, descriptor: int) -> None:
        while not self.ended.wait(TTL_S / 4):
            with suppress(OSError):
                os.utime(descriptor)

    def release(self) -> None:
        if holder_of(self.path) == self.mine:
            self.path.unlink(missing_ok=True)


def take(folder: Path, name: str) -> Claim | None:
    """The claim on this point, or None when somebody holds it."""
    path, mine = folder / name, Holder()
    draft = folder / f".{mine.token}"
    draft.write_text(json.dumps(asdict(mine)), encoding="utf-8")
    try:
        os.link(draft, path)
        return Claim(path, mine)
    except FileExistsError:
        return steal(path, mine, draft)
    finally:
        draft.unlink(missing_ok=True)


def steal(path: Path, mine: Holder, draft: Path) -> Claim | None:
    """Put ours in place of a stale one. Only one process at a time looks and replaces."""
    with (path.parent / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holder = holder_of(path)
        if holder is None or not (holder.dead or silent(path, draft)):
            return None  # released meanwhile, or alive
        os.replace(draft, path)
        return Claim(path, mine, holder)


def silent(path: Path, fresh: Path) -> bool:
    """Not refreshed for too long, by the clock of the file system: `fresh` was written just now."""
    try:
        return fresh.stat().st_mtime - path.stat().st_mtime > TTL_S
    except OSError:
        return False


def holder_of(path: Path) -> Holder | None:
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def holders(folder: Path) -> dict[str, Holder]:
    """Every claim there is, by its point."""
    found = {path.name: holder_of(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    return {name: holder for name, holder in found.items() if holder is not None}


def break_all(folder: Path) -> list[Holder]:
    """Remove all claims, of living workers too; who held them."""
    broken = holders(folder)
    for name in broken:
        (folder / name).unlink(missing_ok=True)
    return list(broken.values())
