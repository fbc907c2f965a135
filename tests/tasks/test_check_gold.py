"""The check of all gold answers, on some of them."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_gold


def run(capsys, *args):
    code = check_gold.main([*map(str, args), "--json"])
    return code, json.loads(capsys.readouterr().out)["tasks"]


def below(tasks, protocol):
    return {(suite, way) for suite, ways in tasks.items() for way, row in ways.items() if row[protocol] < row["total"]}


def test_gold_answers_are_right(real_data, capsys):
    code, tasks = run(capsys, "--data", real_data, "--every", 200, "--jobs", 1)
    assert (code, below(tasks, "fixed")) == (0, set())
    assert tasks["humaneval"]["body"] == {"total": 1, "fixed": 1, "paper": 0, "failed": {}}
    assert tasks["mbpp"]["fenced"]["total"] == 3
    assert len(tasks["gsm8k"]) > 20


def test_a_folder_that_is_not_there_gets_a_sentence(capsys):
    assert check_gold.main(["--data", "/nope"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("error: ") and "/nope" in told.err and told.err.count("\n") == 1


@pytest.mark.slow
def test_more_gold_answers_are_right(real_data, capsys):
    code, tasks = run(capsys, "--data", real_data, "--every", 10)
    assert (code, below(tasks, "fixed")) == (0, set())
    assert ("humaneval", "fenced function") not in below(tasks, "paper")
    assert {("humaneval", "body"), ("humaneval", "fenced function, longer usage fence")} < below(tasks, "paper")


def test_a_wrong_verdict_is_told_unless_it_is_explained(real_data, capsys, monkeypatch):
    """An answer that cannot pass: the check itself must notice."""
    suite = check_gold.SUITES["gsm8k"]
    broken = check_gold.Suite(suite.task, {"off by one": lambda row: str(int(check_gold.gold_number(row)) + 1)})
    monkeypatch.setattr(check_gold, "SUITES", {"gsm8k": broken})
    code, tasks = run(capsys, "--data", real_data, "--every", 1000, "--jobs", 1)
    failed = {"gsm8k/0": "wrong: not explained", "gsm8k/1000": "wrong: not explained"}
    assert (code, tasks["gsm8k"]["off by one"]["failed"]) == (1, failed)
    monkeypatch.setattr(check_gold, "EXPLAINED", dict.fromkeys(failed, "it is off by one"))
    code, tasks = run(capsys, "--data", real_data, "--every", 1000, "--jobs", 1)
    assert (code, tasks["gsm8k"]["off by one"]["failed"]["gsm8k/0"]) == (0, "wrong: it is off by one")
