"""Which code runs: what a row or a record notes, so that results of two versions are not taken for one."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import s2d2cli


def version() -> str:
    """The package's version, and the revision of the checkout where there is one."""
    return described(s2d2cli.__version__, revision())


def described(release: str | None, commit: str | None) -> str:
    return f"s2d2 {release or 'of an unknown version'}{f' at {commit}' if commit else ''}"


@cache
def revision() -> str | None:
    """The git revision of the checkout that runs, "+" when it was edited; None outside a checkout."""
    folder = Path(s2d2cli.__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None
    head = git(folder, "rev-parse", "--short=12", "HEAD")
    edited = git(folder, "status", "--porcelain", "--untracked-files=no", "--", "s2d2cli", "conf")
    return f"{head}{'+' if edited else ''}" if head else None


def git(folder: Path, *words: str) -> str | None:
    try:
        command = ["git", "-C", os.fspath(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
