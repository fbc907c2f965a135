"""Tables that compare only what was measured alike."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from s2d2cli.config import compose, record, run_id
from s2d2cli.errors import ConfigError
from s2d2cli.lossless import lossless
from s2d2cli.runs.metrics import USUAL
from s2d2cli.runs.remarks import remarks
from s2d2cli.runs.report import Wish, build, find_runs
from s2d2cli.runs.report_files import frame, markdown, write
from s2d2cli.runs.report_table import terminal
from s2d2cli.runs.store import SCHEMA
from s2d2cli.runs.summary import ALARMS
from s2d2cli.runs.tables import warnings


def run(accuracy: float, per_second: float, per_forward: float, *overrides: str, **changes) -> dict:
    """A finished run.json; `changes` set dotted entries."""
    config = compose(["limit=100", *overrides])
    made = {
        "schema": SCHEMA,
        "run_id": run_id(config),
        "status": "success",
        "config": record(config),
        "lossless": lossless(config),
        "environment": {"cpu": "A", "threads": 2, "gpu": None, "device": "cpu", "dtype": "float32", "backend": "eager"},
        "resumed_with": [],
        "facts": {},
        "data": {"origin": "file", "sha256": "0" * 64, "rows": 500, "task_version": 1},
        "samples": 100,
        "n": 100,
        "correct": round(100 * accuracy),
        "accuracy": accuracy,
        "interval": [max(0.0, accuracy - 0.1), min(1.0, accuracy + 0.1)],
        "alarms": dict.fromkeys(ALARMS, 0),
        "mean_tokens": 50.0,
        "speed": {
            "tokens_per_s": per_second,
            "tokens_per_forward": per_forward,
            "tokens_per_forward_interval": [per_forward - 0.1, per_forward + 0.1],
        },
        "error": None,
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = made
        for parent in parents:
            node = node[parent]
        node[last] = value
    return made


def stored(folder: Path, *runs: dict) -> list:
    for number, made in enumerate(runs):
        path = folder / f"run{number}"
        path.mkdir(parents=True)
        (path / "run.json").write_text(json.dumps(made))
    return find_runs([folder])


AR = ["decoder=autoregressive"]
DYNAMIC = ["decoder=dynamic", "decode.block_length=16"]


@pytest.fixture(scope="module")
def three():
    """autoregressive, a faster and worse one, and S2D2 with both."""
    return [
        run(0.95, 100.0, 1.0, *AR),
        run(0.60, 300.0, 4.0, *DYNAMIC, "unmask.threshold=0.5"),
        run(0.50, 90.0, 2.0, *DYNAMIC, "unmask.threshold=0.9"),
        run(0.95, 200.0, 2.5, "decode.block_length=8", alarms__truncated=3),
    ]


def test_fronts_speedups_and_settings(tmp_path, three):
    report = build(stored(tmp_path, *three))
    (table,) = report.tables
    rows = table.rows.set_index("decoder")
    assert list(table.rows["decoder"]) == ["s2d2 always", "autoregressive", "dynamic", "dynamic"]
    assert list(rows["front_tokens_per_s"]) == [True, False, True, False]
    assert list(rows["front_tokens_per_forward"]) == [True, False, True, False]
    assert rows.loc["s2d2 always", "speedup"] == 2 and rows.loc["autoregressive", "speedup"] == 1
    assert list(rows.loc["dynamic", "varied"]) == ["block=16 threshold=0.5", "block=16 threshold=0.9"]
    assert rows.loc["s2d2 always", "alarms"] == "3 truncated"
    assert "100 of 500 samples, fewer than 200: rough" in table.title
    assert remarks(report)[1:] == ["dynamic block=16 threshold=0.9 is slower than autoregressive decoding (0.90x)."]
    assert "How sure the front is of 4 rows is not known, because samples.jsonl is missing" in remarks(report)[0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"environment__cpu": "B"}, "hardware differs"),
        ({"environment__dtype": "bfloat16"}, "dtype differs"),
        ({"samples": 50}, "number of samples differs"),
        ({"data__sha256": "1" * 64}, "data differs"),
        ({"config__task__version": 9}, "task settings differs"),
        ({"config__batch_size": 1}, "batch size differs"),
        ({"config__model__revision": "abc"}, "source differs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_not_measured_alike_stands_apart(tmp_path, changes, named):
    """Streaming-dLLM#2, DARE#11: figures from different logs in one row of points."""
    report = build(stored(tmp_path, run(0.9, 100.0, 1.0, *AR), run(0.8, 200.0, 2.0, *DYNAMIC, **changes)))
    assert len(report.tables) == 2
    assert report.notes == [f"tiny_math on tiny stands in 2 tables, because {named} between runs."]
    assert all(len(table.rows) == 1 and table.rows["front_tokens_per_s"].all() for table in report.tables)


def test_a_title_has_the_task_settings_that_differ_as_they_are_typed(tmp_path):
    own = ["task=jsonl", "task.data=own.jsonl", "task.id=key", "task.scorer=number"]
    pair = [run(0.9, 1.0, 1.0, *DYNAMIC, *own), run(0.9, 1.0, 1.0, *DYNAMIC, *own[:2], "task.system='Be brief.'")]
    first, second = (table.title for table in build(stored(tmp_path, *pair)).tables)
    assert first.endswith("batch 8; task.id=key task.scorer=number task.system=")
    assert second.endswith("batch 8; task.id=null task.scorer=exact 'task.system=Be brief.'")


def test_settings_that_vary_are_named_so_that_they_can_be_told_apart(tmp_path):
    scored = ["router=score_threshold", "decode.block_length=8"]
    runs = [
        run(0.9, 200.0, 2.0, *scored),
        run(0.8, 200.0, 2.0, *scored, "estimator=margin", "estimator.threshold=0.2", "unmask.threshold=0.5"),
        run(0.7, 200.0, 2.0, *scored, "estimator=margin", "unmask.threshold=0.5"),
    ]
    (table,) = build(stored(tmp_path, *runs)).tables
    assert list(table.rows["varied"]) == [
        "block=8 threshold=0.85 estimator=entropy",
        "block=8 unmask.threshold=0.5 estimator=margin estimator.threshold=0.2",
        "block=8 unmask.threshold=0.5 estimator=margin estimator.threshold=0.05",
    ]


def test_an_estimator_that_nobody_asks_is_no_setting(tmp_path):
    idle = {"estimator": "router=always asks for no estimate"}
    pair = [run(0.9, 200.0, 2.0, f"estimator={name}", without_effect=idle) for name in ("entropy", "margin")]
    (table,) = build(stored(tmp_path, *pair)).tables
    assert list(table.rows["varied"]) == ["block=16", "block=16"]


def test_speedup_compares_equal_sampling_only(tmp_path):
    warm = run(0.9, 200.0, 2.0, *DYNAMIC, "decode.temperature=1")
    (table,) = build(stored(tmp_path, run(0.9, 100.0, 1.0, *AR), warm)).tables
    assert table.rows.set_index("decoder")["speedup"].isna().to_dict() == {"autoregressive": False, "dynamic": True}
    assert list(table.rows["varied"]) == ["block=16 temperature=1.0", "block=1 temperature=0.0"]


def test_failed_and_unfinished_runs_are_listed_apart(tmp_path, three):
    error = {"type": "OutOfMemoryError", "message": "[x]", "traceback": ""}
    started = copy.deepcopy(three[0]) | {"status": "started", "n": 7}
    failed = copy.deepcopy(three[0]) | {"status": "error", "n": 0, "error": error}
    folders = stored(tmp_path, started, failed, three[1], three[2] | {"schema": 0})
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text('{"status": "succ')
    report = build(find_runs([tmp_path]))
    assert len(report.tables[0].rows) == 1 and len(folders) == 4
    assert [line.partition(": ")[2] for line in report.unfinished] == [
        "started, 7 of 100 samples",
        "error, 0 of 100 samples, OutOfMemoryError: [x]",
        f"run.json is of schema 0, and this version of s2d2 reads {SCHEMA}",
        "run.json cannot be read",
    ]


def test_one_odd_record_does_not_take_the_others_down(tmp_path, three):
    odd = [{}, {"schema": SCHEMA}, {"schema": SCHEMA, "status": "success"}, copy.deepcopy(three[1]) | {"interval": []}]
    odd.append(copy.deepcopy(three[1]) | {"without_effect": 3})
    report = build(stored(tmp_path, *odd, three[0]))
    assert len(report.tables) == 1 and len(report.tables[0].rows) == 1 and len(report.unfinished) == len(odd)
    assert all("run.json cannot be used" in line for line in report.unfinished)


def test_a_killed_run_is_counted_by_its_samples(tmp_path, three):
    """run.json is written when a run begins and when it ends."""
    (folder,) = stored(tmp_path, copy.deepcopy(three[0]) | {"status": "started", "n": 0})
    row = dict.fromkeys(("tokens", "accepted", "verified", "drafted_steps"), 1) | dict.fromkeys(("text", "finish"), "")
    row |= dict.fromkeys(("correct", "masked"), False) | dict.fromkeys(("forwards", "sources"), {})
    row |= {"extracted": None, "error": None, "alarms": [], "measures": {}, "detail": {}, "repeat": 0}
    row |= {"problem": "", "prompt_sha256": "", "cost": {"seconds": {}, "latency_s": 1, "forwards": 1, "query_rows": 1}}
    for name in ("a", "b", "c"):
        folder.append({"id": name} | row)
    assert build([folder]).unfinished == [f"{folder.path}: started, 3 of 100 samples"]


def test_a_run_without_a_measured_speed_is_on_no_front(tmp_path):
    slow = run(0.9, 100.0, 1.0, *AR, speed__tokens_per_s=None)
    (table,) = build(stored(tmp_path, slow, run(0.5, 50.0, 2.0, *DYNAMIC))).tables
    assert table.rows.set_index("decoder")["front_tokens_per_s"].to_dict() == {"autoregressive": False, "dynamic": True}
    assert table.rows["speedup"].isna().all()


def test_another_measure_is_another_table(tmp_path):
    """Fast-dLLM#46: two protocols under one name; here one table shows one, and says which."""
    paper = {"of": 100, "correct": 20, "accuracy": 0.2, "interval": [0.1, 0.3]}
    both = run(0.9, 100.0, 1.0, *AR, measures={"paper": paper}), run(0.8, 50.0, 2.0, *DYNAMIC, measures={})
    folders = stored(tmp_path, *both)
    report = build(folders, Wish(measure="paper"))
    (table,) = report.tables
    assert list(table.rows["accuracy"]) == [0.2] and table.title.startswith("tiny_math (paper) on tiny")
    assert report.unfinished == [f"{folders[1].path}: has no measure 'paper', its measures are: none"]
    assert len(build(folders).tables[0].rows) == 2


def test_equal_greedy_runs_are_no_seeds(tmp_path):
    """The same settings twice, as on two devices or in two folders; greedy runs have no seed."""
    report = build(stored(tmp_path, run(0.5, 100.0, 1.0, *DYNAMIC), run(0.5, 120.0, 1.0, *DYNAMIC, "device=cpu")))
    assert len(report.tables[0].rows) == 2 and not any("seeds" in line for line in remarks(report))
    warm = [run(0.5, 1.0, 1.0, *DYNAMIC, "decode.temperature=1", f"device={device}") for device in ("cpu", "auto")]
    assert not any("seeds" in line for line in remarks(build(stored(tmp_path / "warm", *warm))))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_files": {"model.safetensors": "another"}}, "because weights differs"),
        ({"first_prompt": "another"}, "because first prompt differs"),
        ({"facts": {"sandbox": "process"}}, "because scoring differs"),
    ],
)
def test_other_weights_prompts_and_sandboxes_stand_apart(tmp_path, changes, words):
    report = build(stored(tmp_path, run(0.5, 1.0, 1.0, *AR), run(0.5, 1.0, 1.0, *DYNAMIC, **changes)))
    assert len(report.tables) == 2 and any(words in note for note in report.notes)


def test_other_software_is_told(tmp_path):
    report = build(stored(tmp_path, run(0.5, 1.0, 1.0, *AR), run(0.5, 1.0, 1.0, *DYNAMIC, environment__torch="1.0")))
    assert len(report.tables) == 1 and any("ran on different software" in line for line in remarks(report))


def test_seeds_are_summed_up(tmp_path):
    warm = ["decode.temperature=1"]
    runs = [run(accuracy, 100.0, 1.0, *DYNAMIC, *warm, f"seed={i}") for i, accuracy in enumerate((0.5, 0.6, 0.7))]
    report = build(stored(tmp_path, *runs, run(0.9, 100.0, 1.0, *AR)))
    (line,) = [line for line in remarks(report) if "seeds" in line]
    assert "3 seeds, accuracy 0.600 on average, standard deviation 0.100 between them" in line and "seed=" not in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alarms__truncated": 3}, "3 of 100 answers were cut off at 128 new tokens"),
        ({"alarms__no_answer": 21}, "nothing to judge was found in 21 of 100 answers"),
        ({"alarms__errors": 1}, "1 of 100 answers could not be scored and count as wrong"),
        ({"alarms__mask_token": 1}, "1 of 100 answers hold a mask token"),
        ({"data__published": False}, "the rows of file are not those of the published benchmark"),
    ],
)
def test_what_spoils_a_score_is_said(changes, words):
    assert words in warnings(run(0.5, 1.0, 1.0, **changes))[0]
    assert warnings(run(0.5, 1.0, 1.0, alarms__truncated=2, alarms__no_answer=20)) == []


def test_files(tmp_path, three):
    """coval#411: the files name the points of the front; each row names its run folder."""
    report = build(stored(tmp_path / "runs", *three))
    files = write(report, tmp_path / "out")
    assert [file.name for file in files] == [
        "report.html",
        "report.md",
        "report.tex",
        "report.csv",
        "pareto-1-tiny_math-tiny.png",
        "pareto-1-tiny_math-tiny.svg",
    ]
    table = pd.read_csv(tmp_path / "out" / "report.csv")
    assert list(table["front_tokens_per_s"]) == [True, False, True, False] and table["folder"].is_unique
    assert (table["config.decode.block_length"] == [8, 1, 16, 16]).all()
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| s2d2 always" in text and "200.0*" in text and "slower than autoregressive" in text
    assert files[4].read_bytes().startswith(b"\x89PNG") and "autoregressive" in files[5].read_text()


def test_figures_of_an_earlier_report_do_not_stay(tmp_path, three):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("pareto-9-tiny_math-tiny.png", "pareto-notes.svg"):
        (out / name).write_text("not drawn by a report")
    write(build(stored(tmp_path / "two", three[0], copy.deepcopy(three[1]) | {"samples": 50})), out)
    assert len(list(out.glob("pareto-2-tiny_math-tiny.*"))) == 2
    write(build(stored(tmp_path / "one", run(0.9, 1.0, 1.0, *DYNAMIC, config__model__name="another"))), out)
    figures = ["pareto-1-tiny_math-another.png", "pareto-1-tiny_math-another.svg"]
    others = ["pareto-9-tiny_math-tiny.png", "pareto-notes.svg"]
    assert sorted(file.name for file in out.glob("pareto*")) == [*figures, *others]


def test_terminal_table_fits_eighty_columns(tmp_path, three):
    report = build(stored(tmp_path, *three))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal(report.tables[0], USUAL, 80))
    text = console.export_text()
    for words in ("s2d2 always", "block=16 threshold=0.5", "0.85-1.00", "300.0*", "3.00x", "4.00*"):
        assert words in text
    assert "…" not in text
    assert len(frame(report)) == 4 and "3 truncated" in markdown(report)


def test_folders_may_be_runs_or_hold_runs(tmp_path, three):
    stored(tmp_path, *three[:2])
    assert len(find_runs([tmp_path, tmp_path / "run0"])) == 2
    assert len(find_runs([tmp_path / "run1"])) == 1
    with pytest.raises(ConfigError, match="no folder 'nowhere'"):
        find_runs([Path("nowhere")])
