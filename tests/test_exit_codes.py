"""What the command line leaves with: 0 done, 1 failed, 2 to be mended by the user, 3 a gate, 4 an extra, 130 Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.runs import doubles
from tests.test_cli import s2d2 as s2d2

EVAL = ("eval", "task=echo", "batch_size=2")


def stop(monkeypatch):
    """Ctrl-C in the first batch after the warm-up."""
    usual = doubles.EchoSession.batch

    def batch(self, requests):
        if len(self.decoder.calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return usual(self, requests)

    monkeypatch.setattr(doubles.EchoSession, "batch", batch)


def fall(monkeypatch):
    doubles.use(monkeypatch, fail_at="echo/5")


def hide(monkeypatch):
    """As where the extra `ifeval` is not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "langdetect"] + ["langdetect"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("s2d2cli.tasks.ifeval_language.languages", lambda: __import__("langdetect"))


def nothing(monkeypatch):
    pass


LANGUAGE = """{"key": 1, "prompt": "Antworte.", "instruction_id_list": ["language:response_language"],
"kwargs": [{"language": "de"}]}""".replace("\n", " ")


@pytest.mark.parametrize(
    ("code", "words", "before", "told"),
    [
        (0, EVAL, nothing, ""),
        (1, EVAL, fall, "error: RuntimeError: out of memory"),
        (1, ("sweep", "task=echo", "decode.max_new_tokens=3,5"), fall, "failed: "),
        (2, ("eval", "--limit", "0"), nothing, "error: limit must be at least 1"),
        (2, ("eval", "--limt", "3"), nothing, "no such option"),
        (3, ("report", "--fail-under", "accuracy=0.7"), nothing, "failed: "),
        (4, ("eval", "task=ifeval", "task.data=own.jsonl"), hide, "pip install 's2d2[ifeval]'"),
        (130, EVAL, stop, "the same command goes on from here"),
    ],
)
def test_exit_codes(s2d2, monkeypatch, tmp_path, code, words, before, told):
    doubles.use(monkeypatch)
    assert s2d2("eval", "task=echo", "limit=4") == 0  # half of it right
    (tmp_path / "own.jsonl").write_text(LANGUAGE)
    before(monkeypatch)
    assert s2d2(*words) == code
    assert told in s2d2.err
