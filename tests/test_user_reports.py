"""tests/user_reports.md: no reported fault without an entry, and no entry that names a test that is not there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REPORTS = ROOT.parent / "shared" / "docs" / "user-reports.md"
CLASSES = {"C1", "C3", "C4", "C5", "C6", "C7", "C8", "C10", "C11", "C14"}
TEXT = (ROOT / "tests" / "user_reports.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^\| (\d+\.\d+) \| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)
NAMED = re.compile(r"`(tests/[^`]+\.py)::(\w+)`")


def announced() -> dict[str, list[str]]:
    """The rows that the headings promise, by class."""
    headings = re.findall(r"^## (C\d+): (\d+)\.1 to \2\.(\d+)$", TEXT, re.MULTILINE)
    return {name: [f"{number}.{row}" for row in range(1, int(last) + 1)] for name, number, last in headings}


@cache
def names_in(path: str) -> set[str]:
    file = ROOT / path
    if not file.is_file():
        return set()
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_each_row_has_one_entry():
    rows = announced()
    assert rows.keys() == CLASSES
    assert [row for row, _, _ in ENTRIES] == [row for some in rows.values() for row in some]


def test_each_named_test_exists():
    named = [(row, *test) for row, _, entry in ENTRIES for test in NAMED.findall(entry)]
    assert len(named) > 100
    assert [place for place in named if place[2] not in names_in(place[1])] == []


def test_each_entry_names_a_test_or_gives_a_reason():
    for row, fault, entry in ENTRIES:
        rest = NAMED.sub("", entry)
        assert fault.strip() and "tests/" not in rest, f"{row}: what is named must read `tests/file.py::test_name`"
        assert NAMED.search(entry) or len(entry.split()) >= 4, f"{row}: neither a test nor a reason"


def test_the_rows_are_those_of_the_reports():
    if not REPORTS.is_file():
        pytest.skip("needs shared/docs/user-reports.md beside the checkout")
    found = re.findall(r"^\| (\d+\.\d+) \|", REPORTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert {row for some in announced().values() for row in some} == {
        row for row in found if f"C{row.partition('.')[0]}" in CLASSES
    }
