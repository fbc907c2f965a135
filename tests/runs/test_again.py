"""Runs scored anew without a model, decoded anew from their record, and compared with each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s2d2cli.config import STRATEGY_GROUPS, compose, names_of, record, run_id
from s2d2cli.errors import ConfigError, TaskDataError
from s2d2cli.restore import restore
from s2d2cli.runs import again, store
from s2d2cli.runs.compare import compare
from s2d2cli.runs.evaluate import Models, evaluate
from s2d2cli.tasks.base import Score
from tests.runs import doubles
from tests.test_cli import s2d2  # noqa: F401  the fixture

REAL = ["limit=6", "decode.block_length=8", "batch_size=3", "decode.max_new_tokens=64"]


def run(results: Path, *words: str, **texts: str) -> Path:
    return evaluate(compose([*words], {"results": str(results), **texts}), Models()).folder


def edit(folder: Path, **changes) -> None:
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("group", STRATEGY_GROUPS)
def test_every_strategy_comes_back_from_its_record(group):
    needs = {
        "ucb": ["router.beta=0.5"],
        "min_span": ["router.tau_span=3"],
        "chain": ["unmask=low_confidence_static"],
        "draft_target": ["draft_model=tiny-draft"],
        "simsd": ["draft_model=tiny-draft", "decode.context=block"],
    }
    for name in names_of(group):
        config = compose([f"{group}={name}", *needs.get(name, [])])
        back = restore({"config": json.loads(json.dumps(record(config)))})
        assert back == config and run_id(back) == run_id(config)


def test_what_this_version_does_not_know_is_named():
    plain = record(compose())
    with pytest.raises(ConfigError, match="settings of router .* does not know: tau"):
        restore({"config": plain | {"router": plain["router"] | {"tau": 1}}})
    with pytest.raises(ConfigError, match="no router=gone in this version"):
        restore({"config": plain | {"router": {"kind": "gone"}}})


def test_a_run_with_a_plugin_needs_the_very_file(tmp_path, monkeypatch, forget_plugins):
    from s2d2cli import plugins

    doubles.use(monkeypatch)
    file = tmp_path / "mine.py"
    source = (
        "from dataclasses import dataclass\nfrom s2d2cli.config import register\n"
        "from s2d2cli.decode.routers import Always\n@register('router', 'mine')\n@dataclass\n"
        "class Mine(Always):\n    every: int = 1\n"
    )
    file.write_text(source)
    plugins.load([file])
    folder = run(tmp_path / "r", "task=echo", "router=mine")
    assert again.score(folder, False).changed == []
    file.write_text(source + "# edited\n")
    with pytest.raises(ConfigError, match="must be the file that the run used, and it was changed"):
        again.score(folder, False)


def test_scoring_anew_changes_verdicts_and_nothing_else(tmp_path, monkeypatch):
    """lm-eval#1627, #2140: generations are kept, so a mended scorer needs no model."""
    doubles.use(monkeypatch)
    folder = run(tmp_path, "task=echo")
    before = store.RunFolder(folder).rows()
    size = (folder / "samples.jsonl").stat().st_size
    monkeypatch.setattr("s2d2cli.runs.evaluate.load_model", None)
    assert again.score(folder, False).changed == []
    assert (folder / "samples.jsonl").stat().st_size == size, "scoring twice adds nothing"

    def generous(self, sample, completion):
        return Score(True, completion, {"status": "checked"}, {"fixed": (1, 1)})

    monkeypatch.setattr(doubles.Echo, "score", generous)
    scored = again.score(folder, False)
    assert scored.before == 0.5 and scored.outcome.record["accuracy"] == 1.0
    assert scored.outcome.record["measures"]["fixed"]["correct"] == 6
    after = store.RunFolder(folder).rows()
    assert {name: row["token_ids"] for name, row in after.items()} == {n: r["token_ids"] for n, r in before.items()}
    assert after["echo/0"]["cost"] == before["echo/0"]["cost"]
    assert json.loads((folder / "run.json").read_text())["scored"]["changed"] == 6


def test_another_version_of_the_scorer_is_recorded_and_no_reproduction(tmp_path, monkeypatch, s2d2):  # noqa: F811
    doubles.use(monkeypatch)
    folder = run(tmp_path / "r", "task=echo")
    monkeypatch.setattr(doubles.Echo, "version", 4)
    assert s2d2("reproduce", str(folder), "-o", str(tmp_path / "again")) == 2 and "task=echo has version 3" in s2d2.err
    again.score(folder, False)
    found = json.loads((folder / "run.json").read_text())
    assert found["data"]["task_version"] == found["config"]["task"]["version"] == 4


def test_an_unfinished_run_is_scored_as_far_as_it_is(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    folder = run(tmp_path, "task=echo")
    file = folder / "samples.jsonl"
    file.write_bytes(b"\n".join(file.read_bytes().split(b"\n")[:4]) + b"\n")
    before = (folder / "run.json").read_bytes()
    with pytest.raises(TaskDataError, match="must have the 6 samples that its run.json counts, and only 4 can be read"):
        again.score(folder, False)
    assert (folder / "run.json").read_bytes() == before, "a damaged file must not cost the record"
    edit(folder, n=0, status="started")
    scored = again.score(folder, False)
    assert scored.outcome.record["n"] == 4 and scored.outcome.record["status"] == "started"


def test_score_refuses_other_data_and_other_folders(tmp_path, monkeypatch, s2d2):  # noqa: F811
    doubles.use(monkeypatch)
    folder = run(tmp_path / "r", "task=echo")
    edit(folder, data=json.loads((folder / "run.json").read_text())["data"] | {"sha256": "0" * 64})
    assert s2d2("score", str(folder)) == 2 and "was decoded from other data" in s2d2.err
    assert s2d2("reproduce", str(folder), "-o", str(tmp_path / "x")) == 2 and "was decoded from other data" in s2d2.err
    assert s2d2("score", str(tmp_path)) == 2 and "must be the folder of a run" in s2d2.err
    edit(folder, schema=1)
    assert s2d2("score", str(folder)) == 2 and "is of another version" in s2d2.err


def test_a_code_task_asks_before_it_scores(tmp_path, monkeypatch, s2d2):  # noqa: F811
    doubles.use(monkeypatch)
    folder = run(tmp_path, "task=echo")
    config = json.loads((folder / "run.json").read_text())["config"]
    edit(folder, config=config | {"task": config["task"] | {"code": True}})
    assert s2d2("score", str(folder)) == 2 and "--allow-code-execution" in s2d2.err


def test_a_run_is_reproduced_from_its_record_alone(tmp_path, s2d2):  # noqa: F811
    folder = run(tmp_path / "r", *REAL, "decode.temperature=0.8", "seed=3")
    assert s2d2("reproduce", str(folder), "--results", str(tmp_path / "again")) == 0
    assert "reproduced: 6 of 6 samples have the same tokens" in s2d2.out
    assert s2d2("reproduce", str(folder), "-o", str(tmp_path / "again"), "--limit", "2", "--json") == 0
    found = json.loads(s2d2.out)
    assert found["same"] and found["compared"] == 2 and found["environment"] == []
    rows = store.RunFolder(folder).rows()
    row = next(iter(rows.values()))
    store.RunFolder(folder).append(row | {"token_ids": row["token_ids"][::-1]})
    assert s2d2("reproduce", str(folder), "-o", str(tmp_path / "again")) == 1
    assert f"not reproduced: 1 of 6 samples have other tokens ({row['id']})" in s2d2.out
    assert s2d2("reproduce", str(folder), "-o", str(tmp_path / "r")) == 2 and "must be another folder" in s2d2.err
    edit(folder, model_files={"model.safetensors": "other"})
    assert s2d2("reproduce", str(folder), "-o", str(tmp_path / "third")) == 2 and "other weights" in s2d2.err


def test_a_router_that_weighs_costs_decides_by_the_recorded_curve(tmp_path, monkeypatch):
    """Measured once before the clock starts and kept in run.json; going on and repeating measure nothing anew."""
    words = [*REAL, "router=cost_aware", "verifier.form=sliding", "decode.temperature=1"]
    config = compose(words, {"results": str(tmp_path)})
    folder = evaluate(config, Models()).folder
    record = json.loads((folder / "run.json").read_text())
    curve, before = record["cost_curve"], (folder / "samples.jsonl").read_text().splitlines()
    assert curve["width"] == 3 and curve["rows"][0] == 1 and min(map(min, curve["ms"])) > 0
    assert (run(tmp_path, *REAL) / "run.json").read_text().count('"cost_curve": null') == 1  # nobody asks

    def refuse(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr("s2d2cli.runs.evaluate.measure", refuse)
    monkeypatch.setattr("s2d2cli.decode.cost_aware.measure", refuse)
    (folder / "samples.jsonl").write_text("\n".join(before[:4]) + "\n")
    evaluate(config, Models())
    again_ids = {row["id"]: row["token_ids"] for row in store.RunFolder(folder).rows().values()}
    assert again_ids == {row["id"]: row["token_ids"] for row in map(json.loads, before)}
    made = again.reproduce(folder, tmp_path / "again", None, allow_code_execution=False)
    assert made.same and made.outcome.record["cost_curve"] == curve


def test_answers_do_not_depend_on_the_batch(tmp_path):
    """lm-eval#1090, transformers#28385, and the like: batch 1, 8 and 32 give the same answers in float32."""
    words = ["limit=40", "decode.block_length=8", "decode.max_new_tokens=64", "decode.temperature=0.7"]
    found = {}
    for size in (1, 8, 32):
        folder = run(tmp_path, *words, f"batch_size={size}")
        found[size] = {name: row["token_ids"] for name, row in store.RunFolder(folder).rows().items()}
    assert found[1] == found[8] == found[32] and len(found[1]) == 40


def test_repeats_draw_anew_and_keep_the_first(tmp_path):
    words = ["limit=5", "decode.temperature=1.0", "decode.max_new_tokens=48"]
    once = store.RunFolder(run(tmp_path, *words)).rows()
    folder = run(tmp_path, *words, "repeats=3")
    thrice = store.RunFolder(folder).rows()
    assert len(thrice) == 15 and all(thrice[name]["token_ids"] == row["token_ids"] for name, row in once.items())
    assert len({row["text"] for row in thrice.values()}) > 5, "each repeat has random numbers of its own"
    repeated = json.loads((folder / "run.json").read_text())["repeated"]
    assert len(repeated["accuracies"]) == 3 and list(repeated["pass_at_k"]) == ["1", "2", "3"]
    with pytest.raises(ConfigError, match="repeats=3 needs a decoder that draws at random"):
        compose(["repeats=3"])
    with pytest.raises(ConfigError, match="repeats must be at least 1"):
        compose(["repeats=0"])


def test_compare_pairs_the_samples(tmp_path, monkeypatch, s2d2):  # noqa: F811
    doubles.use(monkeypatch)
    first, second = (
        run(tmp_path, "task=echo", "decode.temperature=1"),
        run(tmp_path, "task=echo", "seed=1", "decode.temperature=1"),
    )
    row = store.RunFolder(second).rows()["echo/0"]
    store.RunFolder(second).append(row | {"correct": False})
    store.RunFolder(second).append(store.RunFolder(second).rows()["echo/2"] | {"correct": False})
    found = compare(first, second)
    assert found.accuracy.difference == pytest.approx(2 / 6) and found.accuracy.p_value == 0.5
    assert found.flips == {"only_first": ["echo/2", "echo/0"], "only_second": []}
    assert found.speed_up("seconds").ratio == pytest.approx(1) and found.settings == ["seed 0 and 1"]
    assert s2d2("compare", str(first), str(second), "--flips") == 0
    assert "first - second = +0.333" in s2d2.out and "only second: none" in s2d2.out
    assert "tokens per second: the first has 1.00x" in s2d2.out
    assert s2d2("compare", str(first), str(second), "--json") == 0 and json.loads(s2d2.out)["only_a"] == 2
    assert s2d2("compare", str(first), str(second), "--measure", "paper") == 2
    assert "measure must be one of correct, got 'paper'" in s2d2.err


def test_compare_refuses_what_is_not_paired(tmp_path, monkeypatch, s2d2):  # noqa: F811
    doubles.use(monkeypatch)
    whole, part = run(tmp_path, "task=echo"), run(tmp_path, "task=echo", "limit=4")
    assert s2d2("compare", str(whole), str(part)) == 2 and "got 6 and 4 of which 4 are shared" in s2d2.err
    other = run(tmp_path / "other", "task=echo", "decode.temperature=1")
    row = store.RunFolder(other).rows()["echo/3"]
    store.RunFolder(other).append(row | {"prompt_sha256": "another"})
    assert s2d2("compare", str(whole), str(other)) == 2 and "1 of 6 differ (echo/3 is the first)" in s2d2.err
    edit(other, model_files={"model.safetensors": "another"})
    store.RunFolder(other).append(row)
    assert s2d2("compare", str(whole), str(other)) == 2 and "needs the same weights in both runs" in s2d2.err
    edit(other, model_files=json.loads((whole / "run.json").read_text())["model_files"])
    edit(part, status="started")
    assert s2d2("compare", str(whole), str(part)) == 2 and "must be a finished run, its status is started" in s2d2.err
    edit(other, environment=json.loads((whole / "run.json").read_text())["environment"] | {"cpu": "another"})
    store.RunFolder(other).append(row)
    found = compare(whole, other)
    assert found.incomparable and found.plain()["tokens_per_s"] is None


def test_one_run_that_cannot_be_scored_does_not_stop_the_others(tmp_path, monkeypatch, s2d2):  # noqa: F811
    doubles.use(monkeypatch)
    whole, other = run(tmp_path, "task=echo"), run(tmp_path, "task=echo", "limit=4")
    assert s2d2("score", str(tmp_path / "none"), str(whole), str(other)) == 2
    assert s2d2.out.count("no verdict changed") == 2
    first, last = s2d2.err.splitlines()
    assert first.startswith(f"error: {tmp_path / 'none'} must be the folder of a run")
    assert last == f"error: 1 of 3 runs could not be scored ({tmp_path / 'none'}); see above"
    assert s2d2("score", str(tmp_path / "none")) == 2 and "see above" not in s2d2.err
