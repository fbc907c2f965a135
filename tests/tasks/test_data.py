"""Rows from files and from the hub: what is read, what is refused, and what is said about their origin."""

import gzip
import hashlib
import json
import logging
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from s2d2cli.errors import TaskDataError
from s2d2cli.tasks.data import KNOWN_SHA256, Hub, load, load_file, load_hub, published_as

FIELDS = {"question": str, "answer": str}
ROWS = [{"question": "Ann has\u2028two", "answer": "#### 2"}, {"question": "Bo has", "answer": "#### 3"}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
PART = Hub("main")


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "unit"),
    [
        ("rows.jsonl", LINES, "line"),
        ("rows.jsonl", LINES.replace("\n", "\r\n").rstrip(), "line"),
        ("rows.jsonl", "\ufeff" + LINES, "line"),  # as Windows writes it
        ("rows.json", json.dumps(ROWS, indent=1), "row"),
        ("rows.json", LINES, "line"),
        ("rows.jsonl.gz", gzip.compress(LINES.encode()), "line"),
        ("rows.json.gz", gzip.compress(json.dumps(ROWS).encode()), "row"),
    ],
)
def test_files_of_every_form_hold_the_same_rows(tmp_path, name, content, unit):
    path = written(tmp_path, name, content)
    loaded = load(path, FIELDS, PART)
    assert loaded.rows == ROWS
    assert loaded.places == [f"{path}, {unit} 1", f"{path}, {unit} 2"]
    with open(path, "rb") as file:
        assert loaded.source.sha256 == hashlib.sha256(file.read()).hexdigest()
    plain = load_file(written(tmp_path, "plain.jsonl", LINES), FIELDS)
    assert loaded.source.content == plain.source.content
    assert (loaded.source.origin, loaded.source.rows, loaded.source.published) == (path, 2, None)


def test_a_blank_line_is_no_row_and_counts_as_a_line(tmp_path):
    path = written(tmp_path, "rows.jsonl", "\n" + LINES.replace("\n", "\n\n"))
    assert load_file(path, FIELDS).places == [f"{path}, line 2", f"{path}, line 4"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", "", "must hold at least one row"),
        ("a.json", "[]", "must hold at least one row"),
        ("a.jsonl", LINES + '{"question": ', "line 3: every line must be one JSON object .*is this a JSONL file"),
        ("a.json", '[{"question": ', "must be one JSON array .*is this a JSON file"),
        ("a.jsonl", "[" * 100_000, "must be one JSON array"),
        ("a.jsonl", '{"question": "q"}', "line 1: a row must have 'answer' .str., it has question"),
        ("a.jsonl", '{"question": "q", "answer": 5}', "line 1: a row must have 'answer' .str."),
        ("a.json", '[{"question": "q", "answer": "a"}, 5]', "row 2: a row must have 'question' .str., it has no field"),
        ("a.jsonl", r'{"question": "\ud800", "answer": "a"}', "line 1: .* half a surrogate pair, '.ud800'"),
        ("a.jsonl", b"\xff\xfe", "UTF-8, byte 0 is not"),
        ("a.jsonl.gz", LINES, "whole gzip file"),
        ("a.jsonl.gz", gzip.compress(LINES.encode())[:-9], "whole gzip file"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, name, content, sentence):
    path = written(tmp_path, name, content)
    with pytest.raises(TaskDataError, match=sentence) as error:
        load_file(path, FIELDS)
    assert path in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(TaskDataError, match=f"{path} cannot be read .*task.data=PATH"):
            load_file(str(path), FIELDS)


@pytest.mark.parametrize("name", KNOWN_SHA256)
def test_a_file_under_a_published_name_must_be_the_published_file(tmp_path, name):
    with pytest.raises(TaskDataError, match=f"published file with sha256 {KNOWN_SHA256[name]}.*rename it"):
        load_file(written(tmp_path, name, LINES), FIELDS)


class Table(list):
    """What `load_dataset` returns, as far as it is used."""

    info = SimpleNamespace(download_checksums=None)
    cache_files = [{"filename": f"/cache/openai___gsm8k/main/0.0.0/{'ab12' * 10}/gsm8k-test.arrow"}]


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for `datasets` that records the calls; set `hub.answer` to rows or to an error."""
    module = ModuleType("datasets")
    module.calls, module.answer = [], Table(ROWS)

    def load_dataset(*args, **kwargs):
        module.calls.append((*args, kwargs))
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        if isinstance(module.answer, Exception):
            raise module.answer
        return module.answer

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


def test_hub_data_carry_the_commit_that_was_fetched(hub, tmp_path):
    loaded = load("openai/gsm8k", FIELDS, PART)
    assert hub.calls == [("openai/gsm8k", "main", {"split": "test", "revision": None})]
    origin = f"openai/gsm8k@{'ab12' * 10}"
    assert (loaded.source.origin, loaded.source.rows, loaded.rows) == (origin, 2, ROWS)
    assert loaded.places == [f"{origin}, row 1", f"{origin}, row 2"]
    assert loaded.source.content == load_file(written(tmp_path, "a.jsonl", LINES), FIELDS).source.content


def test_a_tag_is_recorded_as_the_commit_it_stood_for(hub):
    assert load("openai/gsm8k@v1", FIELDS, PART).source.origin == f"openai/gsm8k@{'ab12' * 10}"
    assert hub.calls[0][-1]["revision"] == "v1"
    hub.answer.cache_files = []
    assert load("openai/gsm8k@v1", FIELDS, PART).source.origin == "openai/gsm8k@v1"
    assert load("openai/gsm8k", FIELDS, PART).source.origin == "openai/gsm8k@unknown"
    older = {f"hf://datasets/openai/gsm8k@{'cd34' * 10}/main/t.parquet": {}}
    hub.answer.info = SimpleNamespace(download_checksums=older)  # where older versions of the library say it
    assert load("openai/gsm8k", FIELDS, PART).source.origin == f"openai/gsm8k@{'cd34' * 10}"


def test_another_commit_than_the_one_asked_for_is_refused(hub):
    for revision in ("ab12" * 10, "ab12ab1"):
        assert load(f"openai/gsm8k@{revision}", FIELDS, PART).source.origin == f"openai/gsm8k@{'ab12' * 10}"
    with pytest.raises(TaskDataError, match=f"of revision {'cd34' * 10}, the copy in the cache is of {'ab12' * 10};"):
        load(f"openai/gsm8k@{'cd34' * 10}", FIELDS, PART)


def test_a_changed_hub_copy_is_used_and_said_to_be_one(hub):
    assert load("openai/gsm8k", FIELDS, PART).source.published is False
    assert load("somebody/else", FIELDS, PART).source.published is None


def test_columns_that_no_task_reads_change_the_hash_but_not_the_content(hub):
    plain = load("openai/gsm8k", FIELDS, PART).source
    hub.answer = Table({**row, "note": None, "when": SimpleNamespace()} for row in ROWS)
    noted = load("openai/gsm8k", FIELDS, PART).source
    assert (noted.content == plain.content, noted.sha256 == plain.sha256) == (True, False)
    hub.answer = Table(reversed(ROWS))
    assert load("openai/gsm8k", FIELDS, PART).source.content != plain.content


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Couldn't reach\nthe hub"),
        ValueError("Unknown split"),
        RuntimeError("Dataset scripts are no longer supported, but found gsm8k.py"),
        ImportError("no pyarrow"),
    ],
)
def test_a_hub_that_fails_points_at_local_files(hub, error, caplog):
    hub.answer = error
    reason = " ".join(str(error).split())
    with pytest.raises(TaskDataError, match=rf"openai/gsm8k \(main, test\).*\({reason}\).*task.data=PATH.jsonl"):
        load("openai/gsm8k", FIELDS, PART)
    assert caplog.text == ""  # nothing of the attempts
    logging.getLogger("huggingface_hub").warning("later")
    assert "later" in caplog.text


def test_hub_rows_are_checked_too(hub):
    hub.answer = Table([*ROWS, {"question": "q"}])
    with pytest.raises(TaskDataError, match="@ab12.*, row 3: a row must have 'answer'"):
        load("openai/gsm8k", FIELDS, PART)


def test_a_file_with_the_form_of_a_hub_id_is_a_file(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("data")
    for name in ("data/rows", "data/rows.jsonl", "data/rows.jsonl.gz", "data/rows.json"):
        with open(name, "wb") as file:
            file.write(gzip.compress(LINES.encode()) if name.endswith("gz") else LINES.encode())
        assert load(name, FIELDS, PART).source.origin == name
    for name in ("data/missing.jsonl", "data/missing.jsonl.gz"):
        with pytest.raises(TaskDataError, match="cannot be read"):
            load(name, FIELDS, PART)
    assert hub.calls == []


def test_the_library_itself_reads_rows_with_null_for_what_is_missing(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    rows = [{"key": 1, "kwargs": [{"num": 3}]}, {"key": 2, "kwargs": [{"relation": "at least"}, {}]}]
    (tmp_path / "set").mkdir()
    table = datasets.Dataset.from_list([{**row, "kwargs": [filled(one) for one in row["kwargs"]]} for row in rows])
    table.to_parquet(tmp_path / "set" / "test-0.parquet")
    fields = {"key": int, "kwargs": list}
    loaded = load_hub(str(tmp_path / "set"), Hub(None), None, fields)
    file = load_file(written(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), fields)
    assert loaded.rows[0]["kwargs"] == [{"num": 3, "relation": None}]
    assert loaded.source.content == file.source.content
    assert loaded.source.rows == 2


def filled(arguments):
    return {"num": None, "relation": None} | arguments


PUBLISHED = [
    ("gsm8k_test.jsonl", "GSM8K, test", "answer"),
    ("HumanEval.jsonl", "HumanEval", "test"),
    ("HumanEval.jsonl.gz", "HumanEval", "entry_point"),
    ("mbpp.jsonl", "MBPP", "test_list"),
    ("sanitized-mbpp.json", "MBPP sanitized", "prompt"),
    ("ifeval_input_data.jsonl", "IFEval", "kwargs"),
]


@pytest.mark.parametrize(("name", "title", "read"), PUBLISHED)
def test_published_files_are_known_by_their_content(real_data, hub, name, title, read):
    loaded = load_file(str(real_data / name), {})
    assert loaded.source.published is True
    assert published_as(loaded.rows) == title
    hub.answer = Table({"extra": 1, **row} for row in loaded.rows)
    assert load("openai/gsm8k", {}, PART).source.published is True
    hub.answer[7] = {**hub.answer[7], read: type(loaded.rows[7][read])()}
    assert load("openai/gsm8k", {}, PART).source.published is False


@pytest.mark.parametrize(
    ("name", "title"), [("mbpp.jsonl", "MBPP, test"), ("sanitized-mbpp.json", "MBPP sanitized, test")]
)
def test_the_test_split_of_mbpp_on_the_hub_is_known_too(real_data, hub, name, title):
    hub.answer = Table(row for row in load_file(str(real_data / name), {}).rows if 11 <= row["task_id"] <= 510)
    loaded = load("google-research-datasets/mbpp", {}, PART)
    assert loaded.source.published is True
    assert published_as(loaded.rows).startswith(title)
