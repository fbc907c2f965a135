"""`--trace`: what the file holds, what a resumed run adds, and that its speed is set apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s2d2cli.errors import PromptError
from s2d2cli.runs import store
from s2d2cli.runs.evaluate import Models, evaluate
from s2d2cli.runs.remarks import remarks
from s2d2cli.runs.report import build
from s2d2cli.runs.trace import told
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
    keys = ["id", "config", "prompt", "block_length", "prompt_tokens", "tokens", "finish", "steps"]
    assert list(first) == keys and first["prompt"] == "<user>q5.<assistant>"
    assert first["block_length"] == 16 and first["prompt_tokens"] == len(first["prompt"])
    assert first["tokens"] == len("q5.") + 1 and first["finish"] == "stop"
    start = {"position": first["prompt_tokens"], "token": ord("Q"), "text": "Q", "source": "unmasked"}
    assert first["steps"][0]["tokens"][0].items() >= start.items()
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
    unmasked = [token for step in steps for token in step["tokens"] if token["source"] == "unmasked"]
    near = sum(abs(token["draft_prob"] - run["config"]["unmask"]["threshold"]) <= 0.01 for token in unmasked)
    assert run["margin"] == {"within": 0.01, "near": near, "decided": len(unmasked)}
    assert f"{near} of {len(unmasked)} tokens unmasked within 0.01 of unmask.threshold" in s2d2.out
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
    token = line["steps"][0]["tokens"][0]
    assert set(token) == {
        "position",
        "token",
        "source",
        "reason",
        "was",
        "proposed_step",
        "proposed_at",
        "order",
        "draft_prob",
        "verify_prob",
        "text",
    }
    assert s2d2(*words, "--trace", "t.jsonl") == 2 and "choose another --trace" in s2d2.err


@pytest.mark.parametrize("decoder", ["s2d2_single", "s2d2_adaptive", "ssd"])
def test_decoders_without_an_unmask_rule_or_with_another_verifier_are_traced(s2d2, decoder):
    assert s2d2("generate", "Hello", "-n", "8", "-b", "4", "--decoder", decoder, "--trace", "t.jsonl") == 0
    (line,) = lines(Path("t.jsonl"))
    tokens = [token for step in line["steps"] for token in step["tokens"]]
    assert len(tokens) >= line["tokens"] and s2d2("report", "--trace", "t.jsonl") == 0


def test_a_conversation_is_not_traced(s2d2, monkeypatch):
    from tests.test_cli import Terminal

    monkeypatch.setattr("sys.stdin", Terminal("hi\n"))
    assert s2d2("generate", "--trace", "t.jsonl") == 2 and "--trace needs a prompt" in s2d2.err


def test_each_token_says_why_it_was_decided_then(s2d2):
    """Fast-dLLM#61: a rule that always reveals the first token, whatever its confidence, is seen at once."""
    words = ("Ann has 3 apples and buys 4 more.", "-n", "32", "-b", "8")
    expected = {"dynamic": {"confident", "owed"}, "static": {"owed"}, "s2d2": {"accepted", "resampled", "confident"}}
    for decoder, reasons in expected.items():
        assert s2d2("generate", *words, f"decoder={decoder}", "--trace", f"{decoder}.jsonl") == 0
        (line,) = lines(Path(f"{decoder}.jsonl"))
        assert {token["reason"] for step in line["steps"] for token in step["tokens"]} == reasons
        forwards = [step["forwards"] for step in line["steps"]]
        assert forwards == sorted(set(forwards)) and forwards[-1] == int(s2d2.err.split(" forwards")[0].split()[-1])
        for step in line["steps"] if decoder == "dynamic" else []:
            owed = [token for token in step["tokens"] if token["reason"] == "owed"]
            assert len(owed) <= 1 and all(token["draft_prob"] > 0.85 for token in step["tokens"] if token not in owed)


def test_a_torn_line_is_cut_off_by_the_run_that_goes_on(tmp_path):
    from s2d2cli.runs.trace import open_trace

    file = tmp_path / "t.jsonl"
    file.write_text('{"id": "whole"}\n{"id": "to')
    open_trace(file, config_for(tmp_path / "r"), goes_on=True)
    assert file.read_text() == '{"id": "whole"}\n'


def test_a_token_that_was_edited_later_keeps_its_own_text():
    def token(number: int, source: str) -> dict:
        return {"position": 7, "token": number, "source": source, "draft_prob": 0.9}

    steps = [{"score": None, "tokens": [token(one, source)]} for one, source in ((65, "unmasked"), (66, "edited"))]
    found = told(steps, {"kind": "edit_tokens", "threshold": 0.5}, doubles.ByteModel())
    assert [(t["text"], t["reason"]) for step in found for t in step["tokens"]] == [("A", "confident"), ("B", "edited")]


def test_texts_of_tokens_join_to_the_text():
    from s2d2cli.runs.token_texts import token_texts

    text = "Grüße 你好 🙂!"
    ids = list(text.encode())
    found = token_texts(ids, doubles.ByteModel().text)
    assert "".join(found) == text and found.count("🙂") == 1 and len(found) == len(ids)
    broken = [*b"a", 0xF0, 0x9F, 0x99, 0xFF, 0xFF, *b"b", 0xF0]
    found = token_texts(broken, doubles.ByteModel().text)
    assert "".join(found) == doubles.ByteModel().text(broken) and found[0] == "a" and found[-1] == "\ufffd"
