"""`generate --show`: what is drawn, that a terminal stays sane, that a pipe gets plain text, that no clock runs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from s2d2cli.decode import Generation
from s2d2cli.runs.live import Picture, Step, Watch, play, tail
from s2d2cli.runs.order_grid import block_table, order_grid, rows, tokens_of
from s2d2cli.runs.palette import MASK, STYLES, visible
from tests.conftest import make_decoder
from tests.conftest import s2d2 as verifying
from tests.runs import doubles
from tests.test_cli import s2d2 as s2d2

PROMPT = "Eva has 6 cards. Elsa has 10 more than Eva. How many cards do they have together?"
ANSWER = "We go step by step. That makes 6+10=16 cards. That makes 6+16=22 cards.\n#### 22"


def picture(end: int = 99) -> Picture:
    return Picture(doubles.ByteModel(), low=2, end=end)


def styles(text: Text) -> dict[str, str]:
    """What stands in which style."""
    names = {style: name for name, style in STYLES.items()}
    found: dict[str, str] = {}
    for span in text.spans:
        name = names[str(span.style)]
        found[name] = found.get(name, "") + text.plain[span.start : span.end]
    return found


def decided(text: str, source: str, start: int) -> dict[int, tuple[int, str]]:
    return {start + i: (byte, source) for i, byte in enumerate(text.encode())}


# The picture


def test_a_step_is_drawn_as_drafted_and_as_decided():
    drawn = picture()
    first = Step([0, 1, 2, 3, 4, 5], dict(zip(range(2, 6), b"abcd", strict=True)), decided("ab", "accepted", 2), True)
    (drafted, _), (after, below) = drawn.frames(first, forwards=3)
    assert drafted.plain == "abcd" and styles(drafted) == {"drafted": "abcd"}
    assert after.plain == "ab" + 2 * MASK and styles(after) == {"accepted": "ab", "masked": 2 * MASK}
    assert "step 0, block 0: verified, accepted 2" in below.plain
    assert "2 tokens, 3 forwards, 0.67 tokens per forward; verified 1 of 1 steps" in below.plain
    rest = decided("x", "resampled", 4) | decided("d", "unmasked", 5)
    (between, _), (after, _) = drawn.frames(Step([0, 1, 2, 3, 4, 5], {4: ord("c"), 5: ord("d")}, rest, True), 5)
    assert styles(between) == {"accepted": "ab", "drafted": "cd"}
    assert styles(after) == {"accepted": "ab", "resampled": "x", "unmasked": "d"}
    _, (after, below) = drawn.frames(Step([6, 7], {6: 33, 7: 33}, decided("!", "unmasked", 6), False), 6)
    assert after.plain == "abxd!" + MASK and styles(after) == {"unmasked": "!", "masked": MASK}
    assert "step 2, block 3: not verified, unmasked 1" in below.plain and drawn.answer() == "abxd!"


def test_an_edit_takes_the_place_of_its_token():
    drawn = picture()
    list(drawn.frames(Step([2, 3], {}, decided("ab", "accepted", 2), True), 2))
    _, (after, below) = drawn.frames(Step([2, 3], {}, decided("x", "edited", 3), False), 3)
    assert after.plain == "ax" and styles(after) == {"accepted": "a", "edited": "x"}
    assert "not verified, edited 1" in below.plain and "2 tokens, 3 forwards" in below.plain


def test_nothing_is_drawn_behind_a_stop_token_or_the_length():
    drawn = picture(end=5)
    *_, (after, _) = drawn.frames(Step([2, 3, 4, 5], {}, decided("a", "unmasked", 2), False), 2)
    assert after.plain == "a" + 2 * MASK  # position 5 is too far
    stop = {3: (doubles.STOP, "unmasked")}
    *_, (after, _) = drawn.frames(Step([2, 3, 4, 5], {}, stop, False), 3)
    assert after.plain == "a" and drawn.answer() == "a"


def test_lines_and_indentation_are_kept_and_wide_characters_fit():
    drawn = picture()
    text = "def f():\n    return '你好🙂你好🙂'\n"
    *_, (after, _) = drawn.frames(
        Step(list(range(2, 2 + len(text.encode()))), {}, decided(text, "accepted", 2), True), 2
    )
    assert after.plain == text and styles(after)["accepted"] == text
    lines = tail(after, Console(width=12, height=40)).plain.split("\n")
    assert all(cell_len(line) <= 12 for line in lines) and "".join(lines).count("🙂") == 2
    assert lines[1].startswith("    return")
    assert len(tail(after, Console(width=12, height=7)).plain.split("\n")) == 2  # the last ones, with the block at work


def test_control_characters_do_not_reach_the_terminal():
    assert visible("a\x1b[2Jb\rc\x9b\x7f\nd\te") == "a␛[2Jb␍c\ufffd␡\nd\te"
    *_, (after, _) = picture().frames(Step([2, 3], {}, decided("\x1b[", "unmasked", 2), False), 2)
    assert after.plain == "␛["


@pytest.mark.parametrize("length", [4, 8])
def test_the_animation_tells_the_answer_and_is_not_timed(golden_model, length):
    from s2d2cli.decode import Request, StepLog

    decoder = verifying(block_length=length, max_new_tokens=12)
    golden_model.text = lambda ids: "".join(f"[{i}]" for i in ids)
    request = Request("a", list(range(20, 33)))
    log = StepLog()
    watch, drawn = Watch(log), Picture(golden_model, 13, 25)
    session = decoder.session(golden_model, [request], observer=watch)
    with open(os.devnull, "w") as nowhere:
        began = time.perf_counter()
        play(session, watch, drawn, Console(file=nowhere, width=80, height=20), pace=0.2)
        took = time.perf_counter() - began
    (plain,) = decoder.generate(golden_model, [request]).generations
    assert session.result.generations == [plain]
    assert drawn.answer() == golden_model.text(plain.token_ids)
    assert drawn.steps == plain.drafted_steps and drawn.verified == plain.verified
    assert len(log.steps["a"]) == drawn.steps
    assert took > 0.2 * drawn.steps and session.result.seconds < took - 0.19 * drawn.steps


# A terminal


class Screen:
    """Enough of a terminal: what stands on it after these bytes."""

    def __init__(self, output: str) -> None:
        self.lines, self.row, self.column, self.cursor = [""], 0, 0, True
        for control, text in re.findall(r"(\x1b\[[?\d;]*[A-Za-z]|[\r\n])|([^\x1b\r\n]+)", output):
            self.obey(control) if control else self.write(text)

    def obey(self, control: str) -> None:
        if control == "\r":
            self.column = 0
        elif control == "\n":
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif control.endswith("A"):
            self.row -= int(control[2:-1] or 1)
        elif control == "\x1b[2K":
            self.lines[self.row] = ""
        elif control in ("\x1b[?25h", "\x1b[?25l"):
            self.cursor = control.endswith("h")
        else:
            assert control.endswith("m"), control

    def write(self, text: str) -> None:
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + text + line[self.column + len(text) :]
        self.column += len(text)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


def on_a_terminal(*words: str, interrupt_at: str | None = None, **env: str) -> tuple[int, str]:
    """Run the command line on a pseudo-terminal of 80 by 24; Ctrl-C as soon as `interrupt_at` was drawn."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")}
    command = [sys.executable, "-m", "s2d2cli", *words]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean | {"TERM": "xterm-256color"} | env,
        # a shell's background jobs ignore Ctrl-C, and so would their children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            found = os.read(mine, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        output += found
        if interrupt_at and interrupt_at in output.decode(errors="replace"):
            process.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(mine)
    return process.wait(timeout=60), output.decode()


def test_live_draws_on_a_terminal_and_leaves_the_text(tmp_path):
    trace = tmp_path / "t.jsonl"
    words = ("generate", PROMPT, "-b", "8", "--show", "live", "--pace", "0.02", "--trace", str(trace))
    code, output = on_a_terminal(*words)
    assert code == 0, output
    assert MASK in output and "accepted" in output and "38;5;" in output
    screen = Screen(output)
    assert screen.cursor and ANSWER in screen.text and MASK not in screen.text and "drafted" not in screen.text
    assert screen.text.splitlines()[-1].startswith("35 tokens, 17 forwards, 2.06 tokens per forward")
    assert trace.read_text().count('"resampled"') == 2 * output_count(trace)


def output_count(trace: Path) -> int:
    """Resampled tokens: each is named as source and as reason."""
    import json

    (line,) = map(json.loads, trace.read_text().splitlines())
    return sum(token["source"] == "resampled" for step in line["steps"] for token in step["tokens"])


def test_ctrl_c_gives_the_terminal_back():
    words = ("generate", PROMPT, "-b", "8", "--show", "live", "--pace", "0.5")
    code, output = on_a_terminal(*words, interrupt_at="step 3")
    screen = Screen(output)
    assert code == 130 and screen.cursor
    assert screen.text.splitlines()[-1] == "We go step by step. That makes", repr(output[-300:])
    assert "Traceback" not in output and MASK not in screen.text


def test_no_color_is_respected_on_a_terminal():
    words = ("generate", PROMPT, "-b", "8", "--show", "live", "--pace", "0")
    code, output = on_a_terminal(*words, NO_COLOR="1")
    assert code == 0 and MASK in output and "38;5;" not in output and "38;2;" not in output
    assert ANSWER in Screen(output).text


def test_a_dumb_terminal_gets_the_order():
    code, output = on_a_terminal("generate", PROMPT, "-b", "8", "--show", "live", TERM="dumb")
    assert code == 0 and "\x1b" not in output and "The number is the step that decided" in output


# A pipe


def test_without_a_terminal_live_is_the_order_without_control_characters(s2d2):
    assert s2d2("generate", PROMPT, "-b", "8", "--show", "live") == 0
    assert "\x1b" not in s2d2.out and MASK not in s2d2.out and s2d2.out.startswith(ANSWER)
    assert "u unmasked; a accepted; r resampled" in s2d2.out
    live = s2d2.out
    assert s2d2("generate", PROMPT, "-b", "8", "--show", "order") == 0 and s2d2.out == live


def test_blocks(s2d2):
    assert s2d2("generate", PROMPT, "-b", "8", "--show", "blocks") == 0
    head = next(line for line in s2d2.out.splitlines() if line.startswith("block"))
    assert head.split() == ["block", "steps", "tokens", "unmasked", "accepted", "resampled", "text"]
    assert "\x1b" not in s2d2.out and "cards.⏎####" in s2d2.out


@pytest.mark.parametrize("words", [["--json"], ["--output", "x.jsonl"], ["--input", "two.jsonl"]])
def test_show_is_for_one_answer_on_a_screen(s2d2, words):
    Path("two.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    prompt = [] if "--input" in words else ["hi"]
    assert s2d2("generate", *prompt, *words, "--show", "order") == 2
    assert "--show draws one answer on the screen" in s2d2.err and not Path("x.jsonl").exists()


# The grid


def generation(text: str, steps: list[int], sources: list[str], finish: str = "length") -> Generation:
    return Generation("a", list(text.encode()), finish, steps, sources, {}, 0, 0, 0)


def test_the_grid_puts_the_step_under_each_token():
    texts = ["你好", "a", "b\n", "  c", ""]
    found = generation(
        "xxxxx", [10, 1, 2, 0, 3], ["unmasked", "accepted", "resampled", "threshold", "unmasked"], "stop"
    )
    tokens = tokens_of(found, texts)
    assert [token.text for token in tokens] == ["你好", "a", "b⏎", "  c", "∎"]
    assert [[token.label for token in row] for row in rows(tokens, 80)] == [["10u", "1a", "2r"], ["0t", "3u"]]
    console = Console(width=40)
    with console.capture() as capture:
        console.print(order_grid(found, texts, 40))
    lines = capture.get().splitlines()
    assert lines[:4] == ["你好 a  b⏎", "10u  1a 2r", "  c ∎", "0t  3u"]
    assert len(rows(tokens, 8)) == 3 and all(sum(t.width for t in row) <= 9 for row in rows(tokens, 8))


def test_the_block_table_counts_by_block():
    found = generation("abcdef", [0, 0, 1, 2, 2, 2], ["unmasked"] * 2 + ["accepted"] * 4)
    table = block_table(found, list("abcdef"), in_front=3, block_length=4)
    cells = [list(column.cells) for column in table.columns]
    assert cells[:5] == [["0", "1", "2"], ["1", "3", "1"], ["1", "4", "1"], ["1", "1", ""], ["", "3", "1"]]


def test_plain_diffusion_is_watched_too(golden_model):
    """No verifier: the verdict is empty and everything is unmasked."""
    from s2d2cli.decode import Request

    decoder = make_decoder(block_length=4, max_new_tokens=8)
    watch = Watch(make_log := _Steps())
    session = decoder.session(golden_model, [Request("a", [1, 2, 3])], observer=watch)
    for _ in session.run():
        step = watch.step()
        assert not step.verified and {source for _, source in step.decided.values()} == {"unmasked"}
    assert make_log.count == session.result.generations[0].drafted_steps


class _Steps:
    count = 0

    def observe(self, *_: object) -> None:
        self.count += 1


def test_a_conversation_is_shown_turn_by_turn(s2d2, monkeypatch):
    from tests.test_cli import Terminal

    doubles.use(monkeypatch)
    monkeypatch.setattr("sys.stdin", Terminal("first\nsecond\n\n"))
    assert s2d2("generate", "--show", "order") == 0
    assert s2d2.out.count("The number is the step") == 2 and "FIRST\n" in s2d2.out and "SECOND\n" in s2d2.out
