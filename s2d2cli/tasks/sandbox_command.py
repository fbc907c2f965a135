"""The command that runs a job in either sandbox, and the environment it sees."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path

CHILD = Path(__file__).with_name("sandbox_child.py").read_text(encoding="utf-8")  # now, as it fits this process
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
ISOLATION = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


def command(kind: str, work: Path, descriptors: tuple[int, ...]) -> list[str]:
    python = [sys.executable, "-s", "-B", "-c", CHILD, *map(str, descriptors)]
    return [*bwrap(work), *python] if kind == "bwrap" else python


def environment(work: Path, mark: str) -> dict[str, str]:
    """Nothing is inherited: no keys, no proxies, no PYTHONPATH. The mark identifies the processes of this run."""
    fixed = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    fixed["MALLOC_ARENA_MAX"] = "2"  # else each thread reserves address space, which is what the memory limit counts
    return {**fixed, **one_thread, "HOME": str(work), "TMPDIR": str(work), "S2D2_SANDBOX": mark}


def bwrap(work: Path) -> list[str]:
    """No network, no other processes, and a file system of what Python needs, of which only two folders are writable.

    The environment is the one that bwrap itself is given. The last word makes the root that holds the mounts read-only.
    """
    system = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    own = ["--bind", str(work), str(work), "--chdir", str(work)]
    return [shutil.which("bwrap") or "bwrap", *ISOLATION, *system, *readable(), *own, "--remount-ro", "/", "--"]


@cache
def readable() -> list[str]:
    """What Python needs to run: the system's libraries, the interpreter's folders, and the links that lead to it."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    paths = sorted(path for path in {*SYSTEM, *SETTINGS, *prefixes} - {"/"} if os.path.exists(path))
    words = [word for path in paths for word in ("--ro-bind", path, path)]
    for link, target in links(sys.executable):
        if not any(within(link, path) or within(path, link) for path in paths):
            words += ["--symlink", target, link]
    return words


def links(path: str) -> list[tuple[str, str]]:
    """Each link on the way to the file that `path` stands for, with its target: a virtual environment has several."""
    for part in [*reversed(Path(path).parents), Path(path)]:
        if part.is_symlink():
            target = os.readlink(part)
            rest = Path(path).relative_to(part)
            return [(str(part), target), *links(os.path.normpath(part.parent / target / rest))]
    return []


def within(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)
