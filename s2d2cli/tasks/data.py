"""Rows of a benchmark: from a JSONL file, from the package, or from the Hugging Face hub."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from s2d2cli.errors import TaskDataError
from s2d2cli.tasks.base import DataSource

PACKAGE_PREFIX = "package:"

# Published files, by the name they are known under. A file with such a name must be that file.
KNOWN_SHA256 = {
    "gsm8k_test.jsonl": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    "mbpp.jsonl": "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f",
    "ifeval_input_data.jsonl": "67ffeee0fcb87c317c5b08a2de85557b4a7e96ada6178aa645b4954fe4b53d49",
}

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?")

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of a data set in file order, and where they came from."""

    rows: list[Row]
    source: DataSource


@dataclass(frozen=True)
class Hub:
    """Which part of a hub data set is meant."""

    config: str | None
    split: str = "test"


def load(data: str, fields: Mapping[str, type], hub: Hub) -> Rows:
    """The rows that `data` names: a file, or a part of a hub data set given as `id` or `id@revision`."""
    if HUB_ID.fullmatch(data) and not data.endswith((".json", ".jsonl")) and not Path(data).exists():
        dataset, _, revision = data.partition("@")
        return load_hub(dataset, hub, revision or None, fields)
    return load_file(data, fields)


def load_file(data: str, fields: Mapping[str, type]) -> Rows:
    """The rows of a JSONL file; `package:NAME` is a file that ships with s2d2. Every row must have `fields`."""
    path = locate(data)
    content = read(path)
    digest = hashlib.sha256(content).hexdigest()
    expected = KNOWN_SHA256.get(path.name, digest)
    if digest != expected:
        raise TaskDataError(
            f"{path} must be the published file with sha256 {expected}, its sha256 is {digest}; "
            f"fetch it again, or rename it if it was changed on purpose"
        )
    rows = [parse_row(line, f"{path}, line {number}", fields) for number, line in numbered_lines(content, path)]
    if not rows:
        raise TaskDataError(f"{path} must hold at least one row, it is empty; check the path")
    origin = data if data.startswith(PACKAGE_PREFIX) else str(path)
    return Rows(rows, DataSource(origin, digest, len(rows)))


def locate(data: str) -> Path:
    if data.startswith(PACKAGE_PREFIX):
        return Path(str(files("s2d2cli"))) / "assets" / "data" / data.removeprefix(PACKAGE_PREFIX)
    return Path(data).expanduser()


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TaskDataError(
            f"the data file {path} cannot be read ({error.strerror}); give the path of a JSONL file as task.data=PATH"
        ) from error


def numbered_lines(content: bytes, path: Path) -> list[tuple[int, str]]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskDataError(
            f"{path} must be a text file in UTF-8, byte {error.start} is not; check the path"
        ) from error
    return [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def parse_row(line: str, where: str, fields: Mapping[str, type]) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise TaskDataError(f"{where}: every line must be one JSON object ({error}); is this a JSONL file?") from error
    check_fields(row, where, fields)
    return dict(row)


def check_fields(row: Any, where: str, fields: Mapping[str, type]) -> None:
    """Refuse a row that lacks a field or has another type in it."""
    present = row if isinstance(row, dict) else {}
    for name, kind in fields.items():
        if not isinstance(present.get(name), kind):
            raise TaskDataError(
                f"{where}: a row must have '{name}' ({kind.__name__}), it has {', '.join(present) or 'no fields'}; "
                f"is this file of another benchmark?"
            )


def load_hub(dataset: str, hub: Hub, revision: str | None, fields: Mapping[str, type]) -> Rows:
    """A part of a data set of the Hugging Face hub, through `datasets` and its cache."""
    try:
        from datasets import load_dataset

        table = load_dataset(dataset, hub.config, split=hub.split, revision=revision)
    except (ImportError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise TaskDataError(
            f"the data set {dataset} ({hub.config}, {hub.split}) must come from the Hugging Face hub, which failed ({reason}); "
            f"go online once, or give a local file as task.data=PATH.jsonl"
        ) from error
    rows = [dict(row) for row in table]
    origin = f"{dataset}@{revision or resolved_revision(table.info.download_checksums)}"
    for index, row in enumerate(rows):
        check_fields(row, f"{origin}, row {index}", fields)
    return Rows(rows, DataSource(origin, digest_of_rows(rows), len(rows)))


def resolved_revision(download_checksums: dict[str, Any] | None) -> str:
    """The commit that `datasets` fetched: it stands in the addresses of the downloaded files."""
    found = re.search(r"@([0-9a-f]{40})/", " ".join(download_checksums or ()))
    return found.group(1) if found else "unknown"


def digest_of_rows(rows: list[Row]) -> str:
    """A hub data set has no single file: hash its rows as JSON lines with sorted keys."""
    lines = (json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def check_unique(ids: list[str], source: DataSource) -> None:
    """A run resumes by sample id, so no two rows may share one."""
    seen: set[str] = set()
    for sample_id in ids:
        if sample_id in seen:
            raise TaskDataError(
                f"{source.origin}: ids must be unique, {sample_id} occurs twice; remove one of the rows"
            )
        seen.add(sample_id)
