"""Files that must survive a kill: replaced as a whole, or grown by whole lines."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """In one step, on the disk when this returns: a reader sees the old text or the new one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def drop_torn_line(path: Path) -> None:
    """Cut off what a killed process left without its line end, so that the next line starts on its own."""
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
