"""Models that attend fully, in tables: what is approximate is named so wherever it stands beside others."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from s2d2cli.config import compose
from s2d2cli.runs.compare import side_of
from s2d2cli.runs.labels import config_of, labels
from s2d2cli.runs.orders import orders_of
from s2d2cli.runs.remarks import remarks
from s2d2cli.runs.report import Wish, build, find_runs
from s2d2cli.runs.report_files import markdown
from s2d2cli.runs.store import RunFolder
from s2d2cli.runs.tables import outcome_table
from tests.runs.report_runs import rights, sampled

FULLY = ("model=llada-8b", "decoder=dynamic")
MEANING = "approximate: a step reads keys and values that the tokens decided since would change"


@pytest.fixture
def results(tmp_path):
    sampled(tmp_path, rights(0.9), 2.0, 20, *FULLY)
    sampled(tmp_path, rights(0.5), 0.8, 10, *FULLY, "decode.cache=dual")
    return tmp_path


def test_in_a_report(results):
    report = build(find_runs([results]), Wish())
    text = markdown(report)
    assert "block=32 cache=dual" in text and "block=32 cache=none" in text
    assert [line for line in remarks(report) if "approximate" in line] == [
        f"dynamic block=32 cache=dual in {report.tables[0].title.partition(';')[0]}: {MEANING}."
    ]


def test_no_autoregressive_baseline_is_asked_of_what_cannot_give_one(results):
    (advice,) = [line for line in remarks(build(find_runs([results]), Wish())) if "has no baseline" in line]
    assert advice.endswith("so no speed-up: name one with --baseline.")


def test_alone_in_a_report(results):
    """Nothing differs, so nothing else would tell."""
    exact, dual = ([run] for run in find_runs([results]))
    assert "block=32 cache=dual" in markdown(build(dual, Wish()))
    assert "cache" not in markdown(build(exact, Wish()))


def test_of_one_run_and_in_a_comparison(results):
    exact, dual = (folder.path for folder in find_runs([results]))
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(outcome_table(RunFolder(dual).record()))
    assert f"dual, {MEANING}" in " ".join(console.export_text().split())
    assert "at block length 32, decode.cache=dual (approximate) (" in side_of(dual).name
    assert "approximate" not in side_of(exact).name


def test_in_labels():
    exact, dual = (config_of(compose([*FULLY, f"decode.cache={cache}"])) for cache in ("none", "dual"))
    assert labels([dual]) == ["dynamic block=32 cache=dual"] and labels([exact]) == ["dynamic block=32"]


def test_blocks_are_counted_as_they_were_decoded(results):
    """From the prompt's end where models attend fully, else from position 0."""
    rows = {"a": {"prompt_tokens": 30, "reveal_steps": [0] * 40}}
    record = RunFolder(find_runs([results])[0].path).record()
    assert orders_of(record, rows)[0].blocks == [0] * 32 + [1] * 8
    record["config"]["model"]["family"] = "sdar"
    assert orders_of(record, rows)[0].blocks == [0] * 2 + [1] * 32 + [2] * 6
