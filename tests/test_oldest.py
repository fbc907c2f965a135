"""`make test-oldest` tests the versions that pyproject.toml promises."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_the_oldest_versions_are_those_of_the_promise():
    listed = re.findall(r"^([\w-]+)==([\w.]+)$", (HERE / "oldest.txt").read_text(), re.MULTILINE)
    block = (HERE.parent / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("]")[0]
    promised = re.findall(r'"([\w-]+)>=([\w.]+)', block)
    assert len(promised) == block.count('"') / 2 and listed == promised
