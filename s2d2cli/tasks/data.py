"""Rows of a benchmark: from a file, from the package, or from the Hugging Face hub.

A file is known by its sha256. A hub copy of it has other bytes, so the content of both (the fields that the task reads)
has a digest too: equal rows have equal ones, wherever they come from.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from s2d2cli.errors import TaskDataError
from s2d2cli.tasks.base import DataSource
from s2d2cli.tasks.hub import Hub as Hub
from s2d2cli.tasks.hub import fetch

PACKAGE_PREFIX = "package:"

# Published files, by the name they are known under. A file with such a name must be that file.
KNOWN_SHA256 = {
    "gsm8k_test.jsonl": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    "HumanEval.jsonl": "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2",
    "HumanEval.jsonl.gz": "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    "mbpp.jsonl": "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f",
    "sanitized-mbpp.json": "7fec016546acaee11dbe14f9f0bb670e59f41919f7b522a59fba34871da78551",
    "ifeval_input_data.jsonl": "67ffeee0fcb87c317c5b08a2de85557b4a7e96ada6178aa645b4954fe4b53d49",
}

# Where the hub has published sets, what is read of each, and the digests of that in the published files.
HUB_COPIES = ("openai/gsm8k", "openai/openai_humaneval", "google-research-datasets/mbpp", "google/IFEval")
PUBLISHED_FIELDS = (
    ("question", "answer"),
    ("task_id", "prompt", "entry_point", "test"),
    ("task_id", "text", "test_list"),
    ("task_id", "prompt", "test_list"),
    ("key", "prompt", "instruction_id_list", "kwargs"),
)
PUBLISHED_CONTENT = {
    "51b901a6559b123df91167acbe3ed6d6d5d404ee6fa0773a4da19fd9d44c767a": "GSM8K, test",
    "f4a01b6815fecf524379f4b777552145b04c290dceaadb3d6d1a5b3808bf856b": "HumanEval",
    "b743ca408766445442ce62af9d5fef429f5b09b339cf2e702ededdd54776d252": "MBPP",
    "5ce5b5d1593b3ea52ea7dcd5218aa052cae5c2e4e937a4f63b72b9af83d6a600": "MBPP, test (task ids 11 to 510)",
    "8f1c86d1c10135c299d5c3a7bb7abee860f2ff032bdf77758c75b717567ac6f6": "MBPP sanitized",
    "7c89d8091f71973bdc82f0066d97c8fcfacbb899e9c218c786d6810e1166fbf8": "MBPP sanitized, test",
    "ab5aa137ad7b1e0f647390281b517f3ea93a12cc8870ee76513252ec6d6881e6": "IFEval",
}

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?")
FILE_ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of a data set in file order, and where they came from."""

    rows: list[Row]
    source: DataSource
    places: list[str] = field(default_factory=list)  # of each row, for errors about it: "FILE, line 3"


def load(data: str, fields: Mapping[str, type], hub: Hub) -> Rows:
    """The rows that `data` names: a file, or a part of a hub data set given as `id` or `id@revision`."""
    if HUB_ID.fullmatch(data) and not data.endswith(FILE_ENDINGS) and not Path(data).exists():
        dataset, _, revision = data.partition("@")
        return load_hub(dataset, hub, revision or None, fields)
    return load_file(data, fields)


def load_file(data: str, fields: Mapping[str, type]) -> Rows:
    """The rows of a JSONL file or a JSON array, either perhaps gzipped; `package:NAME` is a file that ships with s2d2.

    Every row must have `fields`.
    """
    path = locate(data)
    content = read(path)
    digest = hashlib.sha256(content).hexdigest()
    expected = KNOWN_SHA256.get(path.name, digest)
    if digest != expected:
        raise TaskDataError(
            f"{path} must be the published file with sha256 {expected}, its sha256 is {digest}; "
            f"fetch it again, or rename it if it was changed on purpose"
        )
    origin = data if data.startswith(PACKAGE_PREFIX) else str(path)
    placed = list(placed_rows(text_of(content, path), str(path)))
    return checked(placed, fields, DataSource(origin, digest, len(placed)))


def checked(placed: list[tuple[str, Any]], fields: Mapping[str, type], source: DataSource) -> Rows:
    """The rows, each of which must have `fields`; the source also says whether they are those of a published set."""
    if not placed:
        raise TaskDataError(f"{source.origin} must hold at least one row, it is empty; check the path")
    for place, row in placed:
        check_row(row, place, fields)
    rows = [dict(row) for _, row in placed]
    claimed = source.origin.partition("@")[0] in HUB_COPIES
    published = True if published_as(rows) else False if claimed else None
    source = replace(source, content=digest_of_content(rows, fields), published=published)
    return Rows(rows, source, [place for place, _ in placed])


def published_as(rows: list[Row]) -> str | None:
    """The published set that these rows are, whatever else is in them."""
    readable = [names for names in PUBLISHED_FIELDS if set(names) <= rows[0].keys()]
    found = (PUBLISHED_CONTENT.get(digest_of_content(rows, names)) for names in readable)
    return next((name for name in found if name), None)


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


def text_of(content: bytes, path: Path) -> str:
    """The file as text; a byte order mark before it is none of its text."""
    try:
        plain = gzip.decompress(content) if path.suffix == ".gz" else content
        return plain.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskDataError(
            f"{path} must be a text file in UTF-8, byte {error.start} is not; check the path"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise TaskDataError(f"{path} must be a whole gzip file, as its name says ({error}); fetch it again") from error


def placed_rows(text: str, path: str) -> Iterator[tuple[str, Any]]:
    """Each row with where it stands: the lines of a JSONL file, or the items of a JSON array."""
    if text.lstrip().startswith("["):
        array = parsed(text, path, "what begins with [ must be one JSON array; is this a JSON file?")
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(array, start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: JSON strings may hold U+2028 as it is
        if line.strip():
            place = f"{path}, line {number}"
            yield place, parsed(line, place, "every line must be one JSON object; is this a JSONL file?")


def parsed(text: str, place: str, what_must_hold: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        rule, _, question = what_must_hold.partition("; ")
        raise TaskDataError(f"{place}: {rule} ({error}); {question}") from error


def check_row(row: Any, place: str, fields: Mapping[str, type]) -> None:
    """Refuse a row that lacks a field, has another type in it, or holds text that no file and no tokenizer takes."""
    present = row if isinstance(row, dict) else {}
    for name, kind in fields.items():
        if not isinstance(present.get(name), kind):
            raise TaskDataError(
                f"{place}: a row must have '{name}' ({kind.__name__}), it has {', '.join(present) or 'no fields'}; "
                f"is this file of another benchmark?"
            )
    try:
        json_line(row).encode()
    except UnicodeEncodeError as error:
        raise TaskDataError(
            f"{place}: a row must be Unicode text, this one holds half a surrogate pair, "
            f"{error.object[error.start]!r}; remove it"
        ) from error


def load_hub(dataset: str, hub: Hub, revision: str | None, fields: Mapping[str, type]) -> Rows:
    """A part of a data set of the Hugging Face hub."""
    rows, origin = fetch(dataset, hub, revision)
    placed = [(f"{origin}, row {number}", row) for number, row in enumerate(rows, start=1)]
    return checked(placed, fields, DataSource(origin, digest_of_rows(rows), len(rows)))


def json_line(row: Any) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False, default=str) + "\n"


def digest_of_rows(rows: list[Row]) -> str:
    """A hub data set has no single file: hash its rows as JSON lines with sorted keys."""
    return hashlib.sha256("".join(map(json_line, rows)).encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_content(rows: list[Row], fields: Iterable[str]) -> str:
    """The digest of these fields of the rows. Table formats fill up with null, which is no content."""
    return digest_of_rows([without_null({name: row.get(name) for name in fields}) for row in rows])


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(item) for key, item in value.items() if item is not None}
    return [without_null(item) for item in value] if isinstance(value, list) else value


def check_unique(ids: Sequence[str], source: DataSource, places: Sequence[str] = ()) -> None:
    """A run resumes by sample id, so no two rows may share one."""
    seen: set[str] = set()
    for index, sample_id in enumerate(ids):
        if sample_id in seen:
            where = places[index] if places else source.origin
            raise TaskDataError(f"{where}: ids must be unique, {sample_id} occurs twice; remove one of the rows")
        seen.add(sample_id)
