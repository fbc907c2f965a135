"""A run on disk: `results/<label>-<run id>/` with config.yaml, run.json and samples.jsonl, from its first second.

samples.jsonl grows by one line per sample, each synchronised to disk before the next sample is scored, so a killed run
loses at most the batch in hand. run.json is replaced as a whole. The last line of a sample counts.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2d2cli.config import RunConfig, run_id
from s2d2cli.errors import ConfigError
from s2d2cli.plain_yaml import as_yaml

SCHEMA = 1
Record = dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    path: Path

    def record(self) -> Record | None:
        """run.json; None when there is none that can be read."""
        try:
            record = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def write(self, record: Record) -> None:
        """Replace run.json in one step: a reader sees the old one or the new one."""
        draft = self.path / "run.json.tmp"
        draft.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(draft, self.path / "run.json")

    def rows(self) -> dict[str, Record]:
        """The samples written so far by id; a line torn by a crash does not count."""
        rows: dict[str, Record] = {}
        file = self.path / "samples.jsonl"
        for line in file.read_bytes().splitlines() if file.is_file() else []:
            try:
                row = json.loads(line)
                rows[row["id"]] = row
            except (ValueError, KeyError, TypeError):
                continue
        return rows

    def append(self, row: Record) -> None:
        """One line, in one write, on the disk when this returns."""
        line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with (self.path / "samples.jsonl").open("ab", buffering=0) as file:
            file.write(line)
            os.fsync(file.fileno())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process writes a run; the lock goes with the process, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "samples.jsonl").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"{self.path} is being written by another process; wait for it, or use another --results folder"
                ) from None
            self.drop_torn_line()
            yield

    def drop_torn_line(self) -> None:
        """Cut off what a killed process left without its line end, so that the next line starts on its own."""
        file = self.path / "samples.jsonl"
        content = file.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(file, content.rfind(b"\n") + 1)


def folder_of(config: RunConfig) -> RunFolder:
    """Where this run is, or will be: the run id finds it, whatever label it was started under."""
    name = run_id(config)
    found = sorted(Path(config.results).glob(f"*-{name}"))
    return RunFolder(found[0] if found else Path(config.results) / f"{label(config)}-{name}")


def label(config: RunConfig) -> str:
    """A few words for people; the run id after it is what counts."""
    words = [config.model.name, config.task.kind, decoder_name(config.decoder, config.router.kind).replace(" ", "-")]
    text = "-".join([*words, f"b{config.decode.block_length}"])
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def decoder_name(preset: str, router: str) -> str:
    """What decodes, for tables: whoever verifies is S2D2 with its router, whatever preset it was typed under."""
    return preset if router == "never" and preset != "s2d2" else f"s2d2 {router}"


def start(folder: RunFolder, record: Record) -> None:
    """Write what is known before the first token: settings, data, machine, status "started"."""
    (folder.path / "config.yaml").write_text(as_yaml(record["config"]), encoding="utf-8")
    folder.write(record)
