"""The five commands as a user meets them: words in; text, files and an exit code out."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import yaml

from s2d2cli.cli import TOLD, main
from s2d2cli.cli.words import Everyday, is_override, settings
from tests.runs import doubles

WARM = "decode.temperature=1"  # a greedy run does not depend on its seed


class Run:
    """Runs the command line in this process and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> int:
        self.capsys.readouterr()
        try:
            main(list(words))
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
        self.out, self.err = self.capsys.readouterr()
        return code


@pytest.fixture
def s2d2(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for variable in ("S2D2_CONFIG_DIR", "NO_COLOR", "HF_HUB_DISABLE_PROGRESS_BARS"):  # what the command line sets
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return Run(capsys)


@pytest.fixture
def decoders(monkeypatch):
    return doubles.use(monkeypatch)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# Words


KNOWN = ("model", "decode", "router", "seed", "task", "experiment")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("router=min_span", True),
        ("decode.block_length=8", True),
        ("+decode.new=3", True),
        ("~router", True),
        ("rooter=min_span", True),  # mistyped, and told so
        ("task.prompt=say {question} twice", True),
        ("What is 2+2=?", False),
        ("x = 3, what is x + 1?", False),
        ("x=3, what is x + 1?", False),
        ("hello", False),
        ("2+2=", False),
        ("~ about seven", False),
        ("", False),
    ],
)
def test_prompt_or_override(word, expected):
    assert is_override(word, KNOWN) is expected


def test_options_and_overrides_take_the_place_of_what_comes_first():
    chosen = settings(
        Everyday(router="never", seed="3", results="a=b, #"), ["router=never"], first=["limit=9", "seed=1"]
    )
    assert chosen.overrides == ["limit=9", "seed=3", "router=never"] and chosen.texts == {"results": "a=b, #"}


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (["--limit", "2", "limit=3"], "limit must be given once, got '--limit 2' and 'limit=3'"),
        (["-b", "4", "decode.block_length=8"], "got '--block-length 4' and 'decode.block_length=8'"),
        (["seed=1", "seed=2"], "seed must be given once, got 'seed=1' and 'seed=2'; leave one of them out"),
        (["--model", "tiny", "model=sdar-8b"], "got '--model tiny' and 'model=sdar-8b'"),
    ],
)
def test_a_setting_typed_twice_with_two_values_is_refused(s2d2, words, both):
    for command in ("eval", "sweep", "arness"):
        assert s2d2(command, *words, "--print-config") == 2
        assert both in s2d2.err and s2d2.err.count("\n") == 1
    assert s2d2("eval", "--limit", "2", "limit=2", "--print-config") == 0


def test_model_may_be_a_name_a_folder_or_a_hub_id(s2d2, tmp_path):
    folder = tmp_path / "epoch=1,step #2"
    folder.mkdir()
    for word, source, name in (
        ("sdar-8b", "JetLM/SDAR-8B-Chat", "sdar-8b"),
        (f"./{folder.name}", str(folder), folder.name),
        ("owner/some-model", "owner/some-model", "some-model"),
    ):
        assert s2d2("eval", "--model", word, "--print-config") == 0
        assert yaml.safe_load(s2d2.out)["model"]["source"] == source
        assert yaml.safe_load(s2d2.out)["model"]["name"] == name


# Errors: exit code 2 and one sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["generate", "hi", "router=min_spam"], "did you mean 'min_span'?"),
        (["generate", "rooter=min_span"], "did you mean 'router'? (if 'rooter=min_span' is the prompt: --prompt"),
        (["generate", "hi", "-b", "4,8"], "use `s2d2 sweep decode.block_length=4,8`"),
        (["generate", "one", "two"], "one prompt at a time, got 'one' and 'two'"),
        (["generate", ""], "a prompt must hold some text"),
        (["generate"], "a prompt must hold some text"),  # an empty pipe
        (["generate", "--messages", "none.json"], "cannot read 'none.json': No such file"),
        (["generate", "--input", "none.jsonl"], "cannot read 'none.jsonl': No such file"),
        (["generate", "x" * 600], "does not fit the context of 512"),
        (["generate", "hi", "--model", "tinny"], "did you mean 'tiny'?"),
        (["generate", "hi", "--model", "./nowhere"], "no folder './nowhere'"),
        (["eval", "decode.block_length=abc"], "could not be converted to Integer"),
        (["eval", "--limit", "0"], "limit must be at least 1"),
        (["eval", "hello"], "cannot read the override 'hello'"),
        (["eval", "task=echo", "task.code=true"], "allow it with --allow-code-execution"),
        (["generate", "hi", "router=hysteresis", "router.tau_off=0"], "router.tau_off must be below router.tau_on=0.0"),
        (["sweep", "paretto_tiny"], "did you mean 'pareto_tiny'?"),
        (["sweep", "seed=interval(0,1)", "limit=1,2"], "continuous range"),
        (["sweep", "task=echo", "decode.denoising_steps=0,-1"], "decode.denoising_steps must lie between 1"),
        (["sweep", "a.yaml", "b.yaml"], "one sweep file at a time"),
        (["arness", "--task", "tiny_mat"], "did you mean 'tiny_math'?"),
        (["report", "nowhere"], "no folder 'nowhere' with runs"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_input(s2d2, decoders, words, sentence):
    assert s2d2(*words) == 2
    assert sentence in s2d2.err and s2d2.out == ""
    assert s2d2.err.startswith("error: ") and s2d2.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["eval", "--limt", "5"], "no such option"),
        (["evla"], "no such command 'evla'"),
        (["generate", "hi", "--modle", "x"], "--modle"),
        (["score"], "missing argument 'RUN...'; `s2d2 score --help`"),
        (["reproduce", "run", "--limit", "few"], "invalid value for '--limit'"),
        (["report", "--x"], "option '--x' requires an argument; `s2d2 report --help`"),
        (["compare", "a", "b", "c"], "unexpected extra argument"),
        (["eval", "--json=3"], "option '--json' does not take a value"),
        (["--fast"], "; `s2d2 --help` lists what there is"),
    ],
)
def test_misuse_gets_one_plain_sentence(s2d2, words, sentence):
    """microsoft/MLOS#112: pass-through parsing ignored a mistyped option."""
    assert s2d2(*words) == 2
    assert s2d2.err.startswith("error: ") and sentence in s2d2.err and s2d2.err.count("\n") == 1


def test_nothing_typed_is_a_call_for_help(s2d2):
    assert s2d2() == 0 and "Usage: s2d2" in s2d2.out


def test_debug_shows_the_traceback_anywhere_on_the_line(s2d2):
    for words in (["--debug", "report", "nowhere"], ["report", "nowhere", "--debug"]):
        assert s2d2(*words) == 2
        assert "Traceback" in s2d2.err and "no folder 'nowhere'" in s2d2.err


def test_runtime_error_is_one_line_with_its_brackets(s2d2, monkeypatch):
    doubles.use(monkeypatch, fail_at="echo/5")
    assert s2d2("eval", "task=echo", "batch_size=1") == 1
    assert s2d2.err == "error: RuntimeError: out of memory [on purpose] (--debug shows the traceback)\n"


def test_ctrl_c_before_work_begins(s2d2, monkeypatch):
    monkeypatch.setattr("s2d2cli.config.compose", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert s2d2("eval") == 130 and "Traceback" not in s2d2.err


def test_version(s2d2):
    assert s2d2("--version") == 0 and s2d2.out.startswith("s2d2 0.")


def test_a_user_s_error_is_short_and_a_bug_shows_no_locals(s2d2, monkeypatch):
    """demisto-sdk#4776: a traceback of 300,000 lines, with all tensors in it."""
    for words in (["eval", "--limt", "3"], ["eval", "router=min_spam"], ["evla"]):
        assert s2d2(*words) == 2 and len(s2d2.err.splitlines()) <= 5
    doubles.use(monkeypatch, fail_at="echo/5")
    assert s2d2("eval", "task=echo", "batch_size=1", "--debug") == 1
    assert "Traceback" in s2d2.err and "RuntimeError: out of memory" in s2d2.err and "locals" not in s2d2.err


def test_relative_data_from_another_folder(s2d2, decoders, tmp_path):
    """hydra#922, #2414: a relative path is meant from where the command was typed."""
    rows = [{"prompt": "one?", "answer": "1"}, {"prompt": "two?", "answer": "2"}]
    (tmp_path / "x=1").mkdir()
    (tmp_path / "x=1" / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = "task.data='./x=1/mine.jsonl'"
    assert s2d2("eval", "task=jsonl", data, "--json") == 0
    assert json.loads(s2d2.out)["n"] == 2 and json.loads(s2d2.out)["data"]["rows"] == 2


def test_help_is_quick():
    """typer#231."""
    import subprocess
    import sys
    import time

    spent = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "s2d2cli", "--help"], check=True, capture_output=True, timeout=60)
        spent.append(time.perf_counter() - began)
    assert min(spent) < 1, spent


# generate


def test_one_prompt_in_a_pipe(s2d2, decoders):
    assert s2d2("generate", "router=min_span", "2+2=?", "router.tau_span=4", "--max-new-tokens", "40") == 0
    assert s2d2.out == "2+2=?\n"
    assert s2d2.err == "6 tokens, 4 forwards, 1.50 tokens per forward, 12.0 tokens per second\n"
    assert decoders[0].config.router.tau_span == 4 and decoders[0].config.decode.max_new_tokens == 40


def test_hysteresis_as_typed(s2d2, decoders):
    words = ("router=hysteresis", "router.tau_on=1", "router.tau_off=-5", "estimator=margin", "How many?")
    assert s2d2("generate", *words) == 0 and s2d2.out == "HOW MANY?\n"
    config = decoders[0].config
    assert (config.router.tau_on, config.router.tau_off, config.estimator.kind) == (1, -5, "margin")
    assert "no effect" not in s2d2.err


def test_a_setting_without_effect_is_told_once(s2d2, decoders):
    assert s2d2("generate", "hi", "estimator=margin", "router=always") == 0 and s2d2.out == "HI\n"
    sentence = "warning: estimator=margin has no effect: router=always asks for no estimate\n"
    assert s2d2.err.startswith(sentence) and s2d2.err.count("warning") == 1
    assert s2d2("eval", "task=echo", "router=always", "verifier.tempering=2") == 0
    assert "warning: verifier.tempering=2 has no effect" in s2d2.err
    assert s2d2("eval", "task=echo", "router=always") == 0 and "6 samples were there already" in s2d2.out
    assert s2d2("sweep", "router=always", "estimator=entropy,margin", "--dry-run") == 0
    assert "warning: estimator=entropy,margin has no effect: router=always" in s2d2.err
    assert "left out: 1 with the settings of another point" in s2d2.err
    assert s2d2("sweep", "router=always,ucb,hysteresis", "estimator=entropy,margin", "--dry-run") == 0
    assert "warning" not in s2d2.err and len(s2d2.out.splitlines()) == 4


def test_prompts_that_look_like_overrides(s2d2, decoders):
    assert s2d2("generate", "--prompt", "router=always") == 0 and s2d2.out == "ROUTER=ALWAYS\n"
    assert s2d2("generate", "seed=2", "--", "--help me=?") == 0 and s2d2.out == "--HELP ME=?\n"
    assert decoders[-1].config.seed == 2


def test_prompt_from_a_pipe(s2d2, decoders, monkeypatch):
    for words in (["generate"], ["generate", "-"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
        assert s2d2(*words) == 0 and s2d2.out == "FROM A PIPE\n"


def test_json_object(s2d2, decoders):
    assert s2d2("generate", "hi", "--json") == 0
    answer = json.loads(s2d2.out)
    assert answer["text"] == "HI" and answer["tokens"] == 3 and answer["finish"] == "stop"
    assert answer["forwards"] == {"prefill": 1, "draft": 2} and answer["tokens_per_forward"] == 1
    assert answer["seconds"] == pytest.approx(0.5) and answer["model"] == "tiny"


def test_system_prompt_raw_text_and_turns(s2d2, decoders, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(doubles.ByteModel, "encode", lambda self, text: seen.append(text) or list(text.encode()))
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    (tmp_path / "turns.json").write_text(json.dumps(turns))
    assert s2d2("generate", "hi", "--system", "be brief") == 0
    assert s2d2("generate", "hi", "--raw") == 0
    assert s2d2("generate", "--messages", "turns.json") == 0 and s2d2.out == "C\n"
    assert seen == ["<system>be brief<user>hi<assistant>", "hi", "<user>a<assistant>b<user>c<assistant>"]
    assert s2d2("generate", "--messages", "turns.json", "--raw") == 2 and "leave out --raw" in s2d2.err


def test_a_file_of_prompts(s2d2, decoders, tmp_path, monkeypatch):
    rows = [{"prompt": "one"}, {"id": "b", "messages": [{"role": "user", "content": "two"}]}, {"prompt": "three"}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert s2d2("generate", "--input", "in.jsonl", "--output", "out.jsonl", "batch_size=2") == 0
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["prompt"], row["text"]) for row in written] == [
        ("1", "one", "ONE"),
        ("b", "two", "TWO"),
        ("3", "three", "THREE"),
    ]
    assert decoders[0].calls == [["1", "b"], ["3"]]
    assert "14 tokens" in s2d2.err and s2d2.out == ""
    assert s2d2("generate", "--input", "in.jsonl") == 0 and len(s2d2.out.splitlines()) == 3
    monkeypatch.setattr("sys.stdin", io.StringIO('{"prompt": "piped"}'))
    assert s2d2("generate", "--input", "-") == 0 and json.loads(s2d2.out)["text"] == "PIPED"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2: must be a JSON object"),
        ('{"text": "x"}', 'line 2: must hold either "prompt" or "messages"'),
        ('{"prompt": 3}', 'line 2: "prompt" must be text, got int'),
        ('{"prompt": " "}', "line 2 holds none"),
        ('{"id": 1, "prompt": "x"}', "'1' stands there twice"),
        ('{"messages": []}', "messages must be a list"),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "with role system, user, assistant"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "the last message must be the user's"),
    ],
)
def test_bad_rows(s2d2, decoders, tmp_path, line, sentence):
    (tmp_path / "in.jsonl").write_text('{"prompt": "fine"}\n' + line + "\n")
    assert s2d2("generate", "--input", "in.jsonl") == 2
    assert sentence in s2d2.err and decoders == []


def test_a_conversation_on_a_terminal(s2d2, decoders, monkeypatch):
    seen = []
    monkeypatch.setattr(doubles.ByteModel, "encode", lambda self, text: seen.append(text) or list(text.encode()))
    monkeypatch.setattr("sys.stdin", Terminal("first\nsecond\n\nnever read\n"))
    assert s2d2("generate", "--system", "s") == 0
    assert "FIRST\n" in s2d2.out and "SECOND\n" in s2d2.out
    assert seen == ["<system>s<user>first<assistant>", "<system>s<user>first<assistant>FIRST<user>second<assistant>"]


def test_streaming_prints_each_character_once(monkeypatch):
    from s2d2cli.runs.prompts import pieces

    assert list(pieces(["", "a", "a\ufffd", "aé", "aé", "aé b"])) == ["a", "é", " b"]


def test_print_config_loads_no_model(s2d2, monkeypatch):
    monkeypatch.setattr("s2d2cli.models.load_model", None)
    for command in ("generate", "eval"):
        assert s2d2(command, "--print-config", "decode.block_length=8") == 0
        assert yaml.safe_load(s2d2.out)["decode"]["denoising_steps"] == 8


# A run from its settings alone


def test_a_printed_config_makes_the_same_run(s2d2, decoders, tmp_path):
    """NVlabs/Fast-dLLM#22: what was printed, and nothing else, names the run, for every command that decodes."""
    words = ("task=echo", "router=hysteresis", "router.tau_on=1e-05", "decode.temperature=0.7", "-b", "4", "limit=3")
    assert s2d2("eval", *words, "--json") == 0
    run = json.loads(s2d2.out)
    assert s2d2("eval", *words, "--print-config") == 0
    (tmp_path / "run.yaml").write_text(s2d2.out)
    folder = next(Path("results").iterdir())
    for source in ("run.yaml", folder, folder / "config.yaml", folder / "run.json"):
        assert s2d2("eval", "--config", str(source)) == 0 and "3 samples were there already, 0 decoded" in s2d2.out
    assert s2d2("eval", "--config", "run.yaml", "-o", "again", "--json") == 0
    again = json.loads(s2d2.out)
    assert again["run_id"] == run["run_id"] and again["config"] | {"results": "results"} == run["config"]
    for command in ("generate", "arness", "eval"):
        assert s2d2(command, "--config", "run.yaml", "--print-config") == 0
        assert s2d2.out == (tmp_path / "run.yaml").read_text()


def test_settings_laid_over_a_run(s2d2, tmp_path):
    assert s2d2("eval", "router=ucb", "router.beta=2", "seed=3", WARM, "--print-config") == 0
    (tmp_path / "run.yaml").write_text(s2d2.out)
    assert s2d2("eval", "--config", "run.yaml", "router.beta=4", "--limit", "5", "--print-config") == 0
    config = yaml.safe_load(s2d2.out)
    assert (config["router"]["beta"], config["limit"], config["seed"]) == (4, 5, 3)
    assert s2d2("eval", "--config", "run.yaml", "router=min_span", "--print-config") == 0
    config = yaml.safe_load(s2d2.out)
    assert config["router"]["kind"] == "min_span" and config["seed"] == 3 and config["decode"]["temperature"] == 1
    assert s2d2("sweep", "-b", "4,8", "--print-config") == 0
    assert [config["decode"]["block_length"] for config in yaml.safe_load_all(s2d2.out)] == [4, 8]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda config: config.pop("router"), "must hold all settings of one run, as --print-config prints them"),
        (lambda config: config.update(batch_size="x"), "must hold all settings of one run"),
        (lambda config: config.update(batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda config: config.update(sede=1), "does not know: sede"),
        (lambda config: config["router"].update(kind="mine"), "no router=mine in this version of s2d2, and no plugin"),
        (lambda config: config["task"].update(version=0), "task=tiny_math has version 0 in 'run.yaml' and "),
        (lambda config: config["router"].update(plugin_sha256="ab"), "router=always has plugin_sha256 ab in "),
    ],
)
def test_a_config_that_makes_no_run(s2d2, tmp_path, change, sentence):
    s2d2("eval", "--print-config")
    config = yaml.safe_load(s2d2.out)
    change(config)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    assert s2d2("eval", "--config", "run.yaml") == 2
    assert sentence in s2d2.err and s2d2.err.count("\n") == 1


def test_a_config_file_that_cannot_be_read(s2d2, tmp_path):
    (tmp_path / "torn.yaml").write_text("a: [")
    for path, reason in (("nowhere.yaml", "No such file"), ("torn.yaml", "while parsing"), (".", "No such file")):
        assert s2d2("eval", "--config", path) == 2
        assert (
            s2d2.err.startswith("error: --config must be a run's folder or a YAML file of one") and reason in s2d2.err
        )
    assert s2d2("eval", "--config", "torn.yaml", "experiment=sdar_ucb") == 2


# Folders of the user's own


def test_config_dir_anywhere_and_in_the_record(s2d2, decoders, tmp_path):
    """Reached from another working directory, by option and by variable, and told in the record."""
    for name, text in {
        "model/mine.yaml": "name: mine\nsource: x/y\n",
        "sweeps/two.yaml": "grid: {seed: '1,2'}",
    }.items():
        (tmp_path / "conf" / name).parent.mkdir(parents=True)
        (tmp_path / "conf" / name).write_text(text)
    assert s2d2("eval", "task=echo", "--model", "mine", "-C", "conf", "limit=1", "--json") == 0
    record = json.loads(s2d2.out)
    assert record["config"]["model"]["source"] == "x/y" and record["config_folders"] == [str(tmp_path / "conf")]
    assert s2d2("sweep", "two", WARM, "--config-dir", "conf", "--dry-run") == 0 and len(s2d2.out.splitlines()) == 2


def test_installed_and_run_from_elsewhere(tmp_path):
    """hydra#2448, #3230: laid out as the wheel is, with a user's folder, away from the checkout."""
    import shutil
    import subprocess
    import sys

    root, site = Path(__file__).parents[1], tmp_path / "site-packages"
    shutil.copytree(root / "s2d2cli", site / "s2d2cli", ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("conf", "sweeps"):
        assert f'"{part}" = "s2d2cli/{part}"' in (root / "pyproject.toml").read_text()
        shutil.copytree(root / part, site / "s2d2cli" / part)
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "own.yaml").write_text("name: own\nsource: package:tiny\nblock_length: 8\n")

    def out(*words):
        env = os.environ | {"PYTHONPATH": str(site), "S2D2_CONFIG_DIR": ""}
        command = [sys.executable, "-m", "s2d2cli", *words, "--config-dir", "mine"]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    config = yaml.safe_load(out("eval", "--model", "own", "decoder=dynamic", "--print-config"))
    assert config["decode"]["block_length"] == 8 and config["decoder"] == "dynamic"
    assert str(site / "s2d2cli" / "sweeps" / "pareto_tiny.yaml") in out("list", "sweeps", "pareto_tiny")


def test_a_config_dir_that_is_none(s2d2, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder, reason in (("nowhere", "it is not there"), ("empty", "there is none of them"), ("a:b", "no ':'")):
        assert s2d2("eval", "--config-dir", folder, "--print-config") == 2
        assert reason in s2d2.err and s2d2.err.count("\n") == 1


# Manners


def test_quiet_speaks_only_when_something_fails(s2d2, decoders, monkeypatch):
    assert s2d2("-q", "generate", "hi", "estimator=margin") == 0 and (s2d2.out, s2d2.err) == ("HI\n", "")
    assert s2d2("generate", "hi", "router=min_spam", "--quiet") == 2 and s2d2.err.count("\n") == 1
    assert s2d2("eval", "--limt", "3", "-q") == 2 and "--limit" in s2d2.err
    doubles.use(monkeypatch, fail_at="echo/5")
    assert s2d2("eval", "task=echo", "batch_size=1", "-q") == 1 and "RuntimeError: out of memory" in s2d2.err
    assert s2d2("sweep", WARM, "task=echo", "batch_size=1", "seed=1,2", "-q") == 1 and "[2/2] failed" in s2d2.err


@pytest.fixture
def loggers():
    """What -v changes is as before when a test is over."""
    levels = {name: logging.getLogger(name).level for name in TOLD}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_verbose_says_what_is_read_from_where(s2d2, decoders, loggers, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    assert s2d2("eval", "task=echo", "limit=2", "-v") == 0
    assert re.search(r"s2d2cli.config: settings from \['/.*/conf'\]: \['task=echo', 'limit=2'\]", s2d2.err)
    assert "holds 0 of 2 samples, data from" in s2d2.err and "s2d2cli" not in s2d2.out
    assert s2d2("generate", "hi", "-n", "2", "--verbose") == 0


def test_words_behind_two_dashes_are_no_options(s2d2, decoders):
    assert s2d2("generate", "--", "-q") == 0 and s2d2.out == "-Q\n" and "tokens per second" in s2d2.err


def test_no_colour_on_request(s2d2, monkeypatch):
    import subprocess
    import sys

    def escapes(*words, **environment):
        plain = {key: os.environ[key] for key in ("PATH", "HOME", "PYTHONPATH") if key in os.environ}
        env = {**plain, "FORCE_COLOR": "1", "TERM": "xterm-256color"} | environment
        command = [sys.executable, "-m", "s2d2cli", *words]
        shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, cwd="/")
        return re.findall("\x1b\\[[0-9;]*m", shown.stdout + shown.stderr)

    coloured = re.compile(r"\[(?:[0-9;]*;)?(?:3[0-7]|9[0-7]|38)")
    assert any(coloured.search(code) for code in escapes("eval", "--help"))
    for words, environment in ((["--no-color"], {}), ([], {"NO_COLOR": "1"})):
        assert not any(coloured.search(code) for code in escapes("eval", "--help", *words, **environment))
    assert not escapes("eval", "--help", TERM="dumb", FORCE_COLOR="")


# eval, sweep, arness, report


def test_eval_prints_a_table_and_goes_on(s2d2, decoders):
    assert s2d2("eval", "task=echo", "--limit", "4") == 0
    for words in ("accuracy", "0.500, 95 % interval 0.150-0.850", "2 of 4", "fewer than 200", "warm-up", "not counted"):
        assert words in s2d2.out
    assert s2d2("eval", "task=echo", "--limit", "4") == 0
    assert "4 samples were there already, 0 decoded now." in s2d2.out
    assert s2d2("eval", "task=echo", "limit=4", "--json") == 0
    assert json.loads(s2d2.out)["accuracy"] == 0.5


def test_sweep_then_report(s2d2, decoders, tmp_path):
    words = ("sweep", "task=echo", "decode.block_length=4,8,4", "decode.denoising_steps=2,8")
    assert s2d2(*words) == 0
    assert "3 points on tiny, 0 of them finished." in s2d2.err
    assert "left out: 1 with the settings of another point" in s2d2.err
    assert s2d2.err.count("left out: task=echo decode.block_length=4 decode.denoising_steps=8") == 1
    assert "s2d2 always block=8 steps=2" in " ".join(s2d2.out.split())
    assert "results/report/sweep/report.csv" in s2d2.out
    assert s2d2(*words) == 0 and "3 of them finished" in s2d2.err and len(decoders) == 3
    assert s2d2("report", "--out", "r") == 0
    assert {file.suffix for file in (tmp_path / "r").iterdir()} == {".csv", ".html", ".md", ".png", ".svg", ".tex"}


def test_dry_run_decodes_nothing(s2d2, decoders, tmp_path):
    assert s2d2("sweep", "task=echo", "limit=1,2", "--dry-run") == 0
    assert len(s2d2.out.splitlines()) == 2 and not list(tmp_path.iterdir()) and decoders == []


def test_failed_point_does_not_stop_the_others(s2d2, monkeypatch):
    """hydra#2551, #2284: shown at once, named at the end, exit code 1."""
    made = doubles.use(monkeypatch)
    usual = doubles.EchoDecoder.generate

    def generate(self, model, requests, observer=None):
        if self.config.seed == 2:
            raise RuntimeError("out of memory [on purpose]")
        return usual(self, model, requests)

    monkeypatch.setattr(doubles.EchoDecoder, "generate", generate)
    assert s2d2("sweep", WARM, "task=echo", "seed=1,2,3") == 1
    assert "[2/3] failed decode.temperature=1 task=echo seed=2: RuntimeError: out of memory [on purpose]" in s2d2.err
    assert s2d2.err.rstrip().endswith(
        "failed: decode.temperature=1 task=echo seed=2: RuntimeError: out of memory [on purpose]"
    )
    assert "error, 0 of 6 samples, RuntimeError" in s2d2.out and len(made) == 3
    monkeypatch.setattr(doubles.EchoDecoder, "generate", usual)
    assert s2d2("sweep", WARM, "task=echo", "seed=1,2,3") == 0 and len(made) == 4


def test_interrupted_sweep(s2d2, monkeypatch):
    import os
    import signal

    doubles.use(monkeypatch)
    usual = doubles.EchoSession.batch
    handler = signal.getsignal(signal.SIGINT)  # ignored, where the tests run as a background job of a script

    def batch(self, requests):
        if len(self.decoder.calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return usual(self, requests)

    monkeypatch.setattr(doubles.EchoSession, "batch", batch)
    assert s2d2("sweep", WARM, "task=echo", "seed=1,2", "batch_size=2") == 130
    assert "finishing the samples in hand" in s2d2.err and "started, 2 of 6 samples" in s2d2.out
    assert signal.getsignal(signal.SIGINT) is handler


def test_sweep_without_an_axis_runs_the_router_s_grid(s2d2):
    assert s2d2("sweep", "router=min_span", "--dry-run") == 0
    assert "runs the grid of sweeps/router_min_span.yaml" in s2d2.err and "points on tiny" in s2d2.err
    points = s2d2.out.splitlines()
    assert "decoder=autoregressive" in points[0] and "router" not in points[0]
    assert all("router=min_span" in point for point in points[1:])
    assert s2d2("sweep", "--dry-run") == 0 and "sweeps/default.yaml" in s2d2.err


def test_arness_prints_and_gives_json(s2d2, decoders):
    assert s2d2("arness", "task=echo", "-b", "4") == 0
    assert "AR-ness@k, echo on tiny" in s2d2.out and "static block=4 6 1.86 1" in s2d2.out
    assert decoders[0].config.decoder == "static" and decoders[0].config.limit == 50
    assert s2d2("arness", "task=echo", "--json") == 0
    (measured,) = json.loads(s2d2.out)["measured"]
    levels = measured["levels"]
    assert [level["k"] for level in levels] == [1, 2, 3, 4]
    assert levels[0]["global_optimistic"] == 1 > levels[0]["global_expected"]


def test_report_without_runs(s2d2, tmp_path):
    (tmp_path / "results").mkdir()
    assert s2d2("report") == 0 and "No finished run to report on" in s2d2.out
    assert not (tmp_path / "results" / "report").exists()


def test_working_directory_does_not_change(s2d2, decoders):
    before = Path.cwd()
    s2d2("eval", "task=echo", "limit=2")
    assert Path.cwd() == before and (before / "results").is_dir()


def test_the_shipped_model_end_to_end(s2d2):
    """No stand-ins: the same command twice decodes once, and S2D2 keeps to the autoregressive answers."""
    words = ("-m", "tiny", "--task", "tiny_math", "--limit", "3", "-n", "24", "--batch-size", "2")
    assert s2d2("eval", *words, "decoder=autoregressive", "--json") == 0
    plain = json.loads(s2d2.out)
    assert plain["status"] == "success" and plain["n"] == 3 and plain["alarms"]["mask_token"] == 0
    assert plain["environment"]["device"] == "cpu" and plain["speed"]["tokens_per_s"] > 0
    assert s2d2("eval", *words, "decode.block_length=8", "--json") == 0
    assert json.loads(s2d2.out)["speed"]["tokens"] == plain["speed"]["tokens"]
    texts = [
        {row["id"]: row["text"] for row in map(json.loads, file.read_text().splitlines())}
        for file in Path("results").glob("*/samples.jsonl")
    ]
    assert len(texts) == 2 and texts[0] == texts[1]


def test_a_device_that_is_not_there_leaves_no_run(s2d2, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert s2d2("eval", "device=cuda", "limit=1") == 2
    assert "device=cuda needs a CUDA device" in s2d2.err
    assert not list(Path("results").glob("*"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["generate", "hi", "router=ucb", "router.beta=nan"], "router.beta must be a finite number, got nan"),
        (["sweep", "--dry-run", "unmask.threshold=inf,-inf"], "unmask.threshold must be a finite number, got inf"),
        (["eval", "task=echo", "threads=100000"], "threads must lie between 0 (chosen by the model's size) and "),
        (["sweep", "seed=1,2", "-o", ""], "error: results must name a folder, got ''"),
        (["eval", "task=echo", "-o", ""], "results must name a folder, got ''"),
    ],
)
def test_numbers_and_folders_that_cannot_be(s2d2, decoders, words, sentence):
    assert s2d2(*words) == 2 and decoders == []
    assert sentence in s2d2.err and s2d2.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["router=min_spam", "--limit", "4"], "did you mean 'min_span'?"),
        (["unmask.treshold=0.5"], "did you mean 'unmask.threshold'?"),
        (["pareto_tiny", "router=min_spam"], "did you mean 'min_span'?"),
        (["decoder=autoregressive,s3d2"], "did you mean 's2d2'?"),
        (["decode.block_length=[4,8]"], "decode.block_length cannot take this value"),
        (["router=always,min_spam", "router.tau_span=2,x"], "did you mean 'min_span'?"),
        (["seed=1,2", "decode.blocklength=4"], "did you mean 'decode.block_length'?"),
        (["seed=1,x"], "seed cannot take this value: Value 'x'"),
        (["results=a,b"], "error: results is the folder of all points, not an axis"),
    ],
)
def test_a_word_that_is_wrong_in_itself_ends_a_sweep(s2d2, decoders, tmp_path, words, sentence):
    """It was left out, and the baseline alone was run and reported."""
    assert s2d2("sweep", *words) == 2
    assert sentence in s2d2.err and s2d2.err.count("error: ") == 1 and "left out" not in s2d2.err
    assert s2d2.out == "" and decoders == [] and not list(tmp_path.iterdir())


def test_the_autoregressive_baseline_stays_in_a_sweep_of_block_lengths(s2d2):
    assert s2d2("sweep", "decoder=s2d2,autoregressive", "-b", "4,8", "--dry-run") == 0
    points = [line.partition(" (")[0].split()[3:] for line in s2d2.out.splitlines()]
    assert points.count(["decoder=autoregressive"]) == 1
    assert len(s2d2.out.splitlines()) == 3 and "left out" not in s2d2.err
    sentence = (
        "decoder=autoregressive is block length 1, so it goes without decode.block_length=4 decode.block_length=8"
    )
    assert sentence in s2d2.err
    assert s2d2("generate", "hi", "decoder=autoregressive", "-b", "4") == 2


def test_a_seed_makes_no_other_greedy_run(s2d2):
    assert s2d2("sweep", "seed=1,2", "--dry-run") == 0 and len(s2d2.out.splitlines()) == 1
    assert "left out: 1 with the settings of another point" in s2d2.err
    assert "warning: seed=1,2 has no effect: nothing is drawn at random at decode.temperature=0" in s2d2.err
    assert s2d2("sweep", "seed=1,2", WARM, "--dry-run") == 0 and len(s2d2.out.splitlines()) == 2
    assert s2d2("sweep", "seed=1,2", "verifier.acceptance=published", "--dry-run") == 0
    assert len(s2d2.out.splitlines()) == 2 and "warning" not in s2d2.err


def test_a_sweep_checks_its_folders_before_it_runs(s2d2, monkeypatch):
    made = doubles.use(monkeypatch)
    assert s2d2("sweep", "task=echo", "decode.block_length=2,4", "--out", "/proc/nowhere") == 2
    assert "--out" in s2d2.err and "/proc/nowhere" in s2d2.err
    assert s2d2("sweep", "task=echo", "decode.block_length=2,4", "-o", "/dev/null") == 2
    assert "--results" in s2d2.err
    assert not made and not list(Path("results").glob("*"))


# list


def test_lists_have_a_line_each(s2d2):
    for kind in ("models", "decoders", "presets", "routers", "estimators", "unmask", "verifiers", "tasks", "sweeps"):
        assert s2d2("list", kind) == 0
        lines = s2d2.out.splitlines()
        assert lines and all(re.fullmatch(r"[\w.-]+ +\S.*", line) for line in lines), s2d2.out
    assert s2d2("list", "datasets") == 0 and "openai/gsm8k" in s2d2.out and "package:tiny_math.jsonl" in s2d2.out


def test_one_of_a_list_with_its_settings(s2d2, tmp_path):
    assert s2d2("list", "routers", "hysteresis") == 0
    assert re.search(r"^router\.tau_off +-1\.0 +float", s2d2.out, re.MULTILINE) and "routers.py" in s2d2.out
    assert s2d2("list", "verifiers", "self") == 0 and "accept with min(1, (q/p) ** tempering)" in s2d2.out
    assert s2d2("list", "models", "sdar-8b") == 0 and "source: JetLM/SDAR-8B-Chat" in s2d2.out
    assert s2d2("list", "routers", "hysteresis", "--json") == 0
    (choice,) = json.loads(s2d2.out)
    assert {"name": "tau_on", "default": 0.0, "kind": "float", "about": ""} in choice["settings"]
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "own.yaml").write_text("# A model of mine.\nname: own\nsource: x/y\n")
    assert (
        s2d2("list", "models", "own", "-C", "mine") == 0 and str(tmp_path / "mine" / "model" / "own.yaml") in s2d2.out
    )


def test_a_list_that_is_none(s2d2):
    assert s2d2("list", "router") == 2 and "did you mean 'routers'?" in s2d2.err
    assert s2d2("list", "routers", "hysterisis") == 2 and "did you mean 'hysteresis'?" in s2d2.err


@pytest.mark.parametrize(("installed", "told"), [(None, "it is not"), ("4.9.0", "4.9.0 is")])
def test_a_search_without_optuna_says_how_to_get_it(s2d2, monkeypatch, installed, told):
    def version(name: str) -> str:
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr("s2d2cli.cli.search.version", version)
    assert s2d2("search", "router.tau_span=1,2") == 4
    assert s2d2.err == f"error: s2d2 search needs optuna 5, and {told} installed: pip install 's2d2[search]'\n"
