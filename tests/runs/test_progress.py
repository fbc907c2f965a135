"""Progress goes to stderr: a bar where there is a terminal that can draw one, else plain lines, and few of them."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from s2d2cli.runs import progress as module
from s2d2cli.runs.progress import Bar, Lines, progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(t=0.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.t)
    return now


def test_a_log_gets_plain_lines_now_and_then(clock, capsys):
    with progress(100, 20) as shown:
        assert isinstance(shown, Lines)
        for number in range(40):
            clock.t += 2
            shown.advance(tokens=50, correct=number % 2 == 0)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0] == "23 of 100 samples, about 3 minutes to go, accuracy 0.667, 25 tokens/s"
    assert len(lines) == 3 and "\x1b" not in err and lines[1].startswith("38 of 100 samples, about 2 minutes")


def test_a_short_run_says_nothing(clock, capsys):
    with progress(5, 0) as shown:
        for _ in range(5):
            clock.t += 1
            shown.advance()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_with_what_came_out_so_far(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    for name, value in {"TERM": "xterm", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    with progress(4, 1) as shown:
        assert isinstance(shown, Bar)
        shown.advance(tokens=10, correct=True)
        shown.advance(tokens=10, correct=False)
        shown.progress.refresh()
    assert "3/4" in screen.getvalue() and "accuracy 0.500" in screen.getvalue() and "tokens/s" in screen.getvalue()


def test_a_dumb_terminal_gets_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    with progress(4, 0) as shown:
        assert isinstance(shown, Lines)
