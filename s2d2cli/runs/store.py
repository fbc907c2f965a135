"""A run on disk: `results/<label>-<run id>/` with config.yaml, run.json and samples.jsonl, from its first second.

samples.jsonl grows by one line per sample, each synchronised to disk before the next sample is scored, so a killed run
loses at most the samples in hand. run.json is replaced as a whole. The last line of a sample counts.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from s2d2cli.config import RunConfig, run_id
from s2d2cli.errors import BusyError, ConfigError
from s2d2cli.plain_yaml import as_yaml
from s2d2cli.runs import files

SCHEMA = 2
Record = dict[str, Any]
NUMBER = (int, float)
NAMED = ("s2d2_single", "s2d2_adaptive", "ssd", "draft_target", "simsd")  # presets that verify under their own name
RECORD = {  # what the readers of run.json rely on
    **dict.fromkeys(("run_id", "status", "config.task.kind", "config.router.kind", "config.model.name"), str),
    **dict.fromkeys(("config.decoder", "environment.backend", "data.origin", "data.sha256"), str),
    **dict.fromkeys(("samples", "n", "data.rows", "config.batch_size", "alarms.errors"), int),
    **dict.fromkeys(("config.decode.block_length", "config.decode.denoising_steps"), int),
    **dict.fromkeys(("config.decode.temperature", "config.decode.top_k", "config.decode.top_p"), NUMBER),
    **dict.fromkeys(("config.model.source", "config.model.revision", "error"), object),
    "resumed_with": list,
    "facts": dict,
}
RESULT = {"accuracy": NUMBER, "mean_tokens": NUMBER, "interval": list, "speed": dict}  # of a finished run besides
ROW = {
    **dict.fromkeys(("id", "text", "finish", "problem", "prompt_sha256"), str),
    **dict.fromkeys(("tokens", "accepted", "verified", "drafted_steps", "repeat"), int),
    **dict.fromkeys(("correct", "masked"), bool),
    **dict.fromkeys(("forwards", "sources", "measures", "cost.seconds", "detail"), dict),
    **dict.fromkeys(("extracted", "error"), object),
    **dict.fromkeys(("cost.latency_s", "cost.forwards", "cost.query_rows"), NUMBER),
    "alarms": list,
}


def lacking(entry: Any, needed: Mapping[str, Any]) -> list[str]:
    """The dotted names of `needed` that `entry` does not have, or not as the type given for them."""
    return [name for name, kind in needed.items() if not has(entry, name.split("."), kind)]


def has(entry: Any, names: list[str], kind: Any) -> bool:
    for name in names:
        if not isinstance(entry, dict) or name not in entry:
            return False
        entry = entry[name]
    return isinstance(entry, kind)


def damage(record: Record) -> str:
    """What is wrong with a run.json of our schema, in a few words; "" when nothing is."""
    found = lacking(record, RECORD | (RESULT if record.get("status") == "success" else {}))
    return f"has no {found[0]!r}, or none of the right kind" if found else ""


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

    def kept(self) -> Record | None:
        """run.json to go on with; None when there is none, or a torn one. One that says too little is refused."""
        record = self.record()
        if record is None or record.get("schema", SCHEMA) != SCHEMA or not damage(record):
            return record
        raise ConfigError(
            f"{self.path / 'run.json'} is damaged, it {damage(record)}; delete that file to have it made again from "
            f"samples.jsonl, or move the folder away"
        )

    def write(self, record: Record) -> None:
        """Replace run.json in one step: a reader sees the old one or the new one."""
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        files.replace(self.path / "run.json", text + "\n")

    def rows(self) -> dict[str, Record]:
        """The samples written so far by id; a line that is torn or lacks something does not count."""
        rows: dict[str, Record] = {}
        file = self.path / "samples.jsonl"
        for line in file.read_bytes().split(b"\n") if file.is_file() else []:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if not lacking(row, ROW):
                rows[row["id"]] = row
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
        make_writable(self.path, "--results")
        with (self.path / "samples.jsonl").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    f"{self.path} is being written by another process; wait for it, or use another --results folder"
                ) from None
            files.drop_torn_line(self.path / "samples.jsonl")
            yield


def make_writable(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(
            f"{str(folder)!r} must be a folder that can be written to: {error.strerror}; choose another {option}"
        ) from error


def need_writable(folder: Path, option: str = "--out") -> None:
    """Refuse a folder that cannot be made or written to before any work is done for it; leaves no new folder behind."""
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        make_writable(folder, option)
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()


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
    """What decodes, for tables: whoever verifies is S2D2 with its router, whatever plain preset it was typed under."""
    plain = router == "never" and preset not in ("s2d2", "d2f_s2d2")
    if plain or preset in NAMED:
        return preset
    return f"{'d2f_s2d2' if preset.startswith('d2f') else 's2d2'} {router}"


def start(folder: RunFolder, record: Record) -> None:
    """Write what is known before the first token: settings, data, machine, status "started"."""
    (folder.path / "config.yaml").write_text(as_yaml(record["config"]), encoding="utf-8")
    folder.write(record)
