"""Dream#34: what a scorer takes out of a reply can be looked at without a run."""

import subprocess
import sys

import pytest

from tests.test_cli import s2d2  # noqa: F401  the fixture

REPLY = (
    "Sure:\n```python\nimport math\n\ndef area(r):\n    return math.pi * r * r\n\nprint(area(2))\n```\nThat is 12.57.\n"
)


def test_the_code_of_a_reply(s2d2, tmp_path):  # noqa: F811
    (tmp_path / "reply.txt").write_text(REPLY)
    assert s2d2("extract", "reply.txt", "--defines", "area") == 0
    assert s2d2.out == "import math\n\ndef area(r):\n    return math.pi * r * r\n\n"
    assert s2d2("extract", "reply.txt", "--kind", "number") == 0 and s2d2.out == "12.57\n"


def test_from_a_pipe():
    command = [sys.executable, "-m", "s2d2cli", "extract", "--kind", "number"]
    found = subprocess.run(command, input=b"\\boxed{1{,}080}", capture_output=True, check=True)
    assert found.stdout == b"1080\n"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["empty.txt"], 1, "no code in this reply"),
        (["empty.txt", "--kind", "number"], 1, "no number in this reply"),
        (["empty.txt", "--kind", "x"], 2, "--kind must be code or number, got 'x'"),
        (["missing.txt"], 2, "cannot read the reply 'missing.txt': No such file"),
    ],
)
def test_nothing_to_be_found_is_told(s2d2, tmp_path, words, code, sentence):  # noqa: F811
    (tmp_path / "empty.txt").touch()
    assert s2d2("extract", *words) == code and sentence in s2d2.err
