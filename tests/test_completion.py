"""What a TAB gives, from the function that finds the words to real shells at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from s2d2cli.cli.completion import SCRIPTS, offered, split_line
from s2d2cli.config import compose
from s2d2cli.errors import ConfigError
from s2d2cli.values import VALUES
from tests.test_cli import s2d2 as s2d2

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a run in it, and a user's folder with a model and a sweep."""
    for file in (
        "results/tiny-one/run.json",
        "results/sweeps/grid/manifest.json",
        "conf/model/tidy.yaml",
        "conf/sweeps/parade.yaml",
        "prompts.jsonl",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    monkeypatch.setenv("S2D2_CONFIG_DIR", str(tmp_path / "conf"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


NEEDED = {
    "decode.context=full": ["model=llada-8b", "decoder=dynamic"],
    "decode.boundary=published": ["decode.commit=separate"],
}


@pytest.mark.parametrize("key", VALUES)
def test_what_is_offered_is_what_is_taken(key):
    words = [word.strip() for word in offered(["eval", f"{key}="])]
    assert words == [f"{key}={value}" for value in VALUES[key]]
    assert all(compose([*NEEDED.get(word, []), word]) for word in words)
    with pytest.raises(ConfigError, match=f"{key} must be one of {', '.join(VALUES[key])}, got '{VALUES[key][0]}x'"):
        compose([f"{words[0]}x"])


CASES = {
    "ev": ["eval "],
    "--qui": ["--quiet "],
    "eval rout": ["router="],
    "eval router=hy": ["router=hysteresis "],
    "eval draft_model=tiny-d": ["draft_model=tiny-draft "],
    "sweep router=never,hy": ["router=never,hysteresis "],
    "sweep seed=1,2 decoder=s2d2,dyn": ["decoder=s2d2,dynamic "],
    "eval deco": ["decoder=", "decode."],
    "eval decode.bl": ["decode.block_length="],
    "eval router=min_span router.t": ["router.tau_span="],
    "eval router.tau_o": ["router.tau_on=", "router.tau_off="],
    "eval router.reset_per_block=f": ["router.reset_per_block=false "],
    "generate hi dtype=fl": ["dtype=float32 ", "dtype=float16 "],
    "eval --model tid": ["tidy "],
    "eval --model tin": ["tiny ", "tiny-draft ", "tiny-fast ", "tiny-llada2 "],
    "--debug eval -m sdar-8": ["sdar-8b "],
    "eval --model=sdar-8": ["--model=sdar-8b "],
    "sweep --model tiny,sdar-1": ["tiny,sdar-1.7b "],
    "eval --task tiny_m": ["tiny_math "],
    "eval --check": ["--check-verifier "],
    "sweep pa": ["parade ", "pareto_tiny "],
    "sweep parade rou": ["router="],
    "search pa": ["parade ", "pareto_tiny "],
    "search parade rou": ["router="],
    "report r": ["results/"],
    "report results/": ["results/sweeps/", "results/tiny-one "],
    "score results/ti": ["results/tiny-one "],
    "compare results/tiny-one results/ti": ["results/tiny-one "],
    "status results/sw": ["results/sweeps/"],
    "status results/sweeps/": ["results/sweeps/grid "],
    "list ro": ["routers "],
    "list routers u": ["ucb "],
    "completion z": ["zsh "],
    "generate --input ": [],  # files: the shell knows them
    "generate --input pr": [],
    "eval nothing.of=": [],
    "nothing x": [],
}


@pytest.mark.parametrize("line", CASES)
def test_what_is_offered(folder, line):
    assert offered(line.split(" ")) == CASES[line]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("s2d2 eval rou", ["eval", "rou"]),
        ("s2d2 eval ", ["eval", ""]),
        ("s2d2", [""]),
        ("s2d2 generate 'two words' rou", ["generate", "two words", "rou"]),
        ("s2d2 generate 'it is", ["generate", "it is"]),
        ('s2d2 generate "a=', ["generate", "a="]),
    ],
)
def test_a_line_is_read_as_a_shell_reads_it(line, words):
    assert split_line([line]) == words


def test_a_plugin_on_the_line_is_known(folder):
    (folder / "mine.py").write_text("@register('router', 'mine')\nclass Mine:\n    field: bool = True\n")
    assert offered(["eval", "--plugins", "mine.py", "router=mi"]) == ["router=min_span ", "router=mine "]
    assert offered(["eval", "--plugins", "mine.py", "router=mine", "router.f"]) == ["router.field="]
    assert offered(["eval", "--plugins", "mine.py", "router.field=t"]) == ["router.field=true "]


def test_scripts_are_printed_and_others_refused(s2d2):
    for shell, script in SCRIPTS.items():
        assert s2d2("completion", shell) == 0 and s2d2.out == script
    assert s2d2("completion", "csh") == 2 and "for bash, zsh, fish; got 'csh'" in s2d2.err


def test_it_is_quick_and_imports_nothing_heavy(folder):
    script = (
        "import sys\nfrom s2d2cli.cli import main\n"
        "try:\n    main(['completion', 'words', '--', 'eval', 'router=hy'])\n"
        "finally:\n    print([m for m in ('torch', 'hydra', 'omegaconf', 'numpy', 'transformers') if m in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
        spent.append(time.perf_counter() - began)
    assert done.stdout == "router=hysteresis \n[]\n"
    assert min(spent) < 1, spent


class Shell:
    """An interactive shell at a terminal of its own; `s2d2` in it is this checkout."""

    def __init__(self, command, folder, set_up):
        tool = folder / "bin" / "s2d2"
        tool.parent.mkdir()
        tool.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m s2d2cli "$@"\n')
        tool.chmod(0o755)
        plain = {"PATH": f"{tool.parent}:/usr/bin:/bin", "HOME": str(folder), "TERM": "xterm", "LANG": "C.UTF-8"}
        ours, theirs = pty.openpty()
        self.tty = ours
        env = plain | {"S2D2_CONFIG_DIR": os.environ["S2D2_CONFIG_DIR"]}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=env, start_new_session=True
        )
        os.close(theirs)
        self.type(set_up + "\n")
        self.type("echo rea''dy\n")
        self.wait_for("ready")

    def type(self, text):
        os.write(self.tty, text.encode())

    def wait_for(self, text, seconds=30.0):
        """What was shown until `text` was."""
        shown, until = "", time.monotonic() + seconds
        while time.monotonic() < until:
            if select.select([self.tty], [], [], 0.2)[0]:
                shown += os.read(self.tty, 65536).decode(errors="replace")
                if text in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown):
                    return shown
        raise AssertionError(f"{text!r} was not shown, but {shown!r}")

    def completed(self, line, expected):
        """Type a line and TAB, and wait until the shell shows it completed; then clear it away."""
        self.type(f"s2d2 {line}\t")
        self.wait_for(f"s2d2 {expected}")
        self.type("\x15")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.tty)


AT_A_TERMINAL = {
    "eval rout": "eval router=",
    "eval router=hy": "eval router=hysteresis ",
    "sweep router=never,hy": "sweep router=never,hysteresis ",
    "eval --model sdar-8": "eval --model sdar-8b ",
    "eval --model=sdar-8": "eval --model=sdar-8b ",
    "sweep pareto": "sweep pareto_tiny ",
    "report results/ti": "report results/tiny-one",
    "generate --input prom": "generate --input prompts.jsonl",
    "generate 'two words' rout": "generate 'two words' router=",
}


def test_bash_at_a_terminal(folder):
    (folder / "s2d2.bash").write_text(SCRIPTS["bash"])
    shell = Shell(["bash", "--norc", "--noprofile", "-i"], folder, "PS1='> '; source ./s2d2.bash")
    try:
        for line, expected in AT_A_TERMINAL.items():
            shell.completed(line, expected)
    finally:
        shell.close()


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_at_a_terminal(folder):
    (folder / "s2d2.zsh").write_text(SCRIPTS["zsh"])
    set_up = "PROMPT='> '; unsetopt PROMPT_SP; autoload -Uz compinit; compinit -u; source ./s2d2.zsh"
    shell = Shell(["zsh", "-f", "-i"], folder, set_up)
    try:
        for line, expected in AT_A_TERMINAL.items():
            shell.completed(line, expected.rstrip() if expected.endswith(" ") else expected)
    finally:
        shell.close()


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_asks_and_shows(folder):
    """Through fish's own `complete -C`, which says what a TAB would offer."""
    (folder / "bin").mkdir()
    tool = folder / "bin" / "s2d2"
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m s2d2cli "$@"\n')
    tool.chmod(0o755)
    (folder / "s2d2.fish").write_text(SCRIPTS["fish"])
    env = {"PATH": f"{tool.parent}:/usr/bin:/bin", "HOME": str(folder), "S2D2_CONFIG_DIR": str(folder / "conf")}
    for line, expected in AT_A_TERMINAL.items():
        quoted = line.replace("'", "\\'")
        script = f"source s2d2.fish; complete -C 's2d2 {quoted}'"
        done = subprocess.run(["fish", "-N", "-c", script], env=env, capture_output=True, text=True, timeout=60)
        last = expected.split(" ")[-1] or expected.split(" ")[-2]
        assert last in [answer.split("\t")[0] for answer in done.stdout.splitlines()], (line, done.stdout, done.stderr)
