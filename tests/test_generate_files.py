"""`s2d2 generate` with files: what it reads, what it writes, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s2d2cli.errors import CheckpointError
from tests.runs import doubles
from tests.test_cli import decoders as decoders
from tests.test_cli import s2d2 as s2d2

COMMAND = ("generate", "--input", "in.jsonl", "--output", "out.jsonl", "batch_size=1")
NAMES = ("one", "two", "three")


@pytest.fixture
def three(s2d2):
    Path("in.jsonl").write_text("".join(json.dumps({"prompt": name}) + "\n" for name in NAMES))
    return s2d2


def texts() -> list[str]:
    return [json.loads(line)["text"] for line in Path("out.jsonl").read_text().split("\n")[:-1]]


def interrupt(monkeypatch, after: int, error: type[BaseException] = KeyboardInterrupt) -> None:
    usual = doubles.EchoSession.batch

    def batch(self, requests):
        if len(self.decoder.calls) == after:
            raise error
        return usual(self, requests)

    doubles.use(monkeypatch)
    monkeypatch.setattr(doubles.EchoSession, "batch", batch)


def test_a_failed_start_leaves_no_file(three, monkeypatch):
    doubles.use(monkeypatch)
    assert three(*COMMAND, "-n", "600") == 2 and "does not fit" in three.err and not Path("out.jsonl").exists()

    def load(config):
        raise CheckpointError("not to be had")

    monkeypatch.setattr("s2d2cli.models.load_model", load)
    assert three(*COMMAND) == 2 and not Path("out.jsonl").exists()
    Path("out.jsonl").touch()  # as an older version left it
    doubles.use(monkeypatch)
    assert three(*COMMAND) == 0 and texts() == ["ONE", "TWO", "THREE"]


@pytest.mark.parametrize("torn", ["", '{"id": "3", "pro', "{"])
def test_ctrl_c_and_the_same_command_again(three, monkeypatch, torn):
    with monkeypatch.context() as patch:
        interrupt(patch, after=2)
        assert three(*COMMAND) == 130
    assert three.err == "Interrupted with 2 of 3 answers in out.jsonl; the same command goes on from here.\n"
    with Path("out.jsonl").open("a") as file:
        file.write(torn)
    made = doubles.use(monkeypatch)
    assert three(*COMMAND) == 0 and texts() == ["ONE", "TWO", "THREE"] and made[0].calls == [["3"]]
    assert "2 of 3 answers are in out.jsonl already and are kept" in three.err
    assert three(*COMMAND) == 0 and "3 of 3 answers" in three.err and len(made) == 1


def test_a_traced_command_goes_on_with_its_trace(three, monkeypatch):
    for after in (0, 2):
        with monkeypatch.context() as patch:
            interrupt(patch, after, error=RuntimeError)
            assert three(*COMMAND, "--trace", "t.jsonl") == 1
    doubles.use(monkeypatch)
    assert three(*COMMAND, "--trace", "t.jsonl") == 0
    assert [json.loads(line)["id"] for line in Path("t.jsonl").read_text().splitlines()] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "content",
    [
        "my notes",
        "my notes\n",
        '{"id": "1", "prompt": "other", "text": ""}\n',
        '{"id": "9"}\n',
        "[]\n",
        '{"id": "1"}\n',
    ],
)
def test_another_file_is_not_touched(three, decoders, content):
    Path("out.jsonl").write_text(content)
    assert three(*COMMAND) == 2 and decoders == []
    assert "File exists, and holds other things" in three.err and "choose another --output" in three.err
    assert Path("out.jsonl").read_text() == content


@pytest.mark.parametrize("output", ["/proc/x", "/dev/null", "no/such/folder", "."])
def test_what_cannot_be_written_is_refused_before_the_model(three, monkeypatch, output):
    monkeypatch.setattr("s2d2cli.models.load_model", None)
    assert three("generate", "hi", "--output", output) == 2 and "choose another --output" in three.err


def test_lines_end_at_line_feeds_only(s2d2, decoders):
    rows = [{"prompt": "a\u2028b\u0085c"}, {"prompt": "d"}]
    Path("in.jsonl").write_text("\ufeff" + "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    assert s2d2(*COMMAND) == 0 and texts() == ["A\u2028B\u0085C", "D"]
    assert s2d2(*COMMAND) == 0 and "2 of 2" in s2d2.err


def test_a_byte_order_mark_is_no_text(s2d2, decoders, monkeypatch):
    import io

    turns = [{"role": "user", "content": "a"}]
    Path("turns.json").write_text("\ufeff" + json.dumps(turns))
    assert s2d2("generate", "--messages", "turns.json") == 0 and s2d2.out == "A\n"
    lines = "\ufeff" + "".join(json.dumps({"messages": turns}) + "\n" for _ in range(2))
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert s2d2("generate", "--messages", "-") == 0 and s2d2.out.count('"text": "A"') == 2


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"prompt": "a\\ud800"}', "character 2 is half a surrogate pair, '\\ud800'; remove it"),
        ('{"messages": [{"role": "user", "content": "\\udfff"}]}', "half a surrogate pair"),
        ('{"messages": [{"role": "user", "content": 1, "\\ud800": 2}]}', "messages must be a list"),
        ('{"id": "\\ud800", "prompt": "x"}', "half a surrogate pair"),
        ('{"id": null, "prompt": "x"}', '"id" must be text or a number, got null'),
        ('{"id": true, "prompt": "x"}', '"id" must be text or a number, got true'),
        ('{"id": [1], "prompt": "x"}', '"id" must be text or a number, got [1]'),
    ],
)
def test_bad_rows(s2d2, decoders, line, sentence):
    Path("in.jsonl").write_text(line + "\n")
    assert s2d2("generate", "--input", "in.jsonl") == 2
    assert sentence in s2d2.err and s2d2.err.count("\n") == 1 and decoders == []


def test_a_system_prompt_that_has_no_place(s2d2, decoders):
    assert s2d2("generate", "hi", "--raw", "--system", "be brief") == 2 and "no place for --system" in s2d2.err
    turns = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    Path("turns.json").write_text(json.dumps(turns))
    assert s2d2("generate", "--messages", "turns.json", "--system", "c") == 2
    assert "turns.json holds a system message already" in s2d2.err and decoders == []
    assert s2d2("generate", "hi", "--system", "\ud800") == 2 and "--system: a prompt must be Unicode" in s2d2.err
