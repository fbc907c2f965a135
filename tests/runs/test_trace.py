"""`--trace`: what the file holds, what a resumed run adds, and that its speed is set apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s2d2cli.errors import PromptError
from s2d2cli.runs import store
from s2d2cli.runs.evaluate import Models, evaluate
from s2d2cli.runs.report import build
from s2d2cli.runs.tables import remarks
from tests.runs import doubles
from tests.runs.test_evaluate import config_for
from tests.test_cli import s2d2 as s2d2


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_line_per_sample(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    file = tmp_path / "t.jsonl"
    run = evaluate(config_for(tmp_path / "r"), Models(), trace=file).record
    assert [line["id"] for line in lines(file)] == [f"echo/{i}" for i in (5, 4, 3, 2, 1, 0)]
    first = lines(file)[0]
    assert list(first) == ["id", "block_length", "prompt_tokens", "steps"]
    assert first["block_length"] == 16 and first["prompt_tokens"] == len("<user>q5.<assistant>")
    assert first["steps"][0]["tokens"] == [{"position": 0, "token": ord("Q"), "text": "Q"}]
    assert first["steps"][0]["score"] is None  # JSON has no infinity
    assert run["traced"] is True
    # every second step was verified: 2 + 2 + 2 + 1 + 1 + 1 of them, 1.5 expected, 1 accepted
    assert {k: v for k, v in run["calibration"].items() if k != "bins"} == {
        "steps": 9,
        "predicted": 1.5,
        "accepted": 1.0,
    }


def test_a_resumed_run_adds_what_it_decodes(tmp_path, monkeypatch):
    doubles.use(monkeypatch, fail_at="echo/3")
    file, config = tmp_path / "t.jsonl", config_for(tmp_path / "r")
    with pytest.raises(RuntimeError):
        evaluate(config, Models(), trace=file)
    assert [line["id"] for line in lines(file)] == ["echo/5", "echo/4"]
    doubles.use(monkeypatch)
    assert evaluate(config, Models(), trace=file).record["traced"]
    assert [line["id"] for line in lines(file)] == [f"echo/{i}" for i in (5, 4, 3, 2, 1, 0)]
    before = file.read_text()
    evaluate(config, Models(), trace=file)
    assert file.read_text() == before


def test_a_file_that_is_there_is_left_alone(tmp_path, monkeypatch):
    made = doubles.use(monkeypatch)
    file = tmp_path / "t.jsonl"
    file.write_text("precious")
    with pytest.raises(PromptError, match="File exists; choose another --trace"):
        evaluate(config_for(tmp_path / "r"), Models(), trace=file)
    assert file.read_text() == "precious" and made == []


def test_a_traced_speed_is_not_compared(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    evaluate(config_for(tmp_path / "r", "seed=1", "decode.temperature=1"), Models())
    evaluate(config_for(tmp_path / "r", "seed=2", "decode.temperature=1"), Models(), trace=tmp_path / "t.jsonl")
    report = build([store.RunFolder(path) for path in sorted((tmp_path / "r").iterdir())])
    (table,) = report.tables
    rows = table.rows.set_index("traced")
    assert rows["tokens_per_s"].isna().to_dict() == {False: False, True: True}
    assert rows["front_tokens_per_s"].to_dict() == {False: True, True: False}
    assert len([r for r in remarks(report) if "was traced: its seconds include the log" in r]) == 1


def test_eval_prints_the_calibration(s2d2):
    words = ("eval", "--limit", "2", "-n", "16", "-b", "8", "router=score_threshold", "estimator=margin")
    assert s2d2(*words, "--trace", "t.jsonl") == 0
    for text in ("verified ", "tokens per verification", "as estimator=margin predicts them", "compares with no other"):
        assert text in s2d2.out
    run = json.loads(next(Path("results").glob("*/run.json")).read_text())
    traced = lines(Path("t.jsonl"))
    steps = [step for line in traced for step in line["steps"]]
    verified = [step for step in steps if step["verified"]]
    assert run["speed"]["drafted_steps"] == len(steps) and run["speed"]["verified"] == len(verified)
    assert run["calibration"]["steps"] == len(verified)
    rows = {row["id"]: row for row in lines(next(Path("results").glob("*/samples.jsonl")))}
    for line in traced:  # the trace tells the answer
        tokens = sorted((t for s in line["steps"] for t in s["tokens"]), key=lambda t: t["position"])
        assert "".join(t["text"] for t in tokens).startswith(rows[line["id"]]["text"])
    assert s2d2(*words, "--trace", "u.jsonl") == 0 and "nothing was added to u.jsonl" in s2d2.err
    assert not Path("u.jsonl").exists()


def test_generate_writes_a_trace(s2d2):
    words = ("generate", "Hello", "-n", "8", "decode.block_length=4")
    assert s2d2(*words) == 0
    plain = s2d2.out
    assert s2d2(*words, "--trace", "t.jsonl") == 0 and s2d2.out == plain
    assert "traced to t.jsonl: the seconds include the log" in s2d2.err
    (line,) = lines(Path("t.jsonl"))
    assert line["id"] == "prompt" and line["block_length"] == 4
    assert {"position", "token", "source", "draft_prob", "verify_prob", "text"} == set(line["steps"][0]["tokens"][0])
    assert s2d2(*words, "--trace", "t.jsonl") == 2 and "choose another --trace" in s2d2.err


def test_a_conversation_is_not_traced(s2d2, monkeypatch):
    from tests.test_cli import Terminal

    monkeypatch.setattr("sys.stdin", Terminal("hi\n"))
    assert s2d2("generate", "--trace", "t.jsonl") == 2 and "--trace needs a prompt" in s2d2.err
