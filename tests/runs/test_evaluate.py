"""A run from its first second to its resumption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from s2d2cli.config import compose, record, run_id
from s2d2cli.decode.meter import PHASES
from s2d2cli.errors import ConfigError, PromptError, SandboxError, TaskDataError
from s2d2cli.runs import evaluate as module
from s2d2cli.runs import store
from s2d2cli.runs.evaluate import Models, evaluate, finished
from tests.runs import doubles


def config_for(folder: Path, *overrides: str):
    return compose(["task=echo", "batch_size=2", *overrides], {"results": str(folder)})


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def test_record_holds_what_a_reader_needs(tmp_path, monkeypatch):
    made = doubles.use(monkeypatch)
    config = config_for(tmp_path)
    outcome = evaluate(config, Models())
    run = json.loads((outcome.folder / "run.json").read_text())

    assert outcome.folder.name.endswith(f"-{run['run_id']}") and run["run_id"] == run_id(config)
    assert (run["status"], run["n"], run["correct"], run["accuracy"]) == ("success", 6, 3, 0.5)
    assert run["interval"] == pytest.approx([0.188, 0.812], abs=1e-3)
    assert run["config"] == record(config) and run["config"]["task"]["version"] == 3
    assert run["data"].items() >= {"origin": "made up", "sha256": f"{6:064x}", "rows": 6, "task_version": 3}.items()
    assert run["first_prompt"] == "<user>q0......<assistant>"
    assert {"python", "torch", "cpu", "gpu", "threads", "device", "dtype", "revision"} <= run["environment"].keys()
    assert run["alarms"] == {"empty": 0, "no_answer": 0, "truncated": 0, "mask_token": 0, "timeout": 0, "errors": 0}
    # q0...... to q5. with a stop token: 9 + 8 + 7 + 6 + 5 + 4 tokens; 5 + 4 + 4 + 3 + 3 + 2 drafts and 6 prefills
    assert run["mean_tokens"] == 39 / 6
    # each sample is billed half a second, shared by the phases, 2 forwards and 10 rows, and was as long in the batch
    assert run["speed"]["tokens"] == 39 and run["speed"]["seconds"] == pytest.approx(3)
    assert run["speed"]["tokens_per_s"] == pytest.approx(13)
    assert run["speed"]["seconds_by_phase"] == pytest.approx(dict.fromkeys(PHASES, 3 / len(PHASES)))
    assert run["speed"]["latency_p99_s"] == 0.5 and run["memory"]["peak_bytes"] > 1 << 20
    assert run["speed"]["forwards"] == {"draft": 21, "prefill": 6}
    assert run["speed"]["tokens_per_forward"] == 39 / 27
    assert run["speed"]["model_forwards"] == 12 and run["speed"]["query_rows"] == 60
    # the warm-up is one sample, before the clock; then short prompts first
    assert made[0].calls == [["echo/5"], ["echo/5", "echo/4"], ["echo/3", "echo/2"], ["echo/1", "echo/0"]]
    assert "echo/5" in run["warm_up"]


def test_applied_settings_are_the_recorded_ones(tmp_path, monkeypatch):
    """llama-toolchest#90: overrides were recorded and never applied."""
    made = doubles.use(monkeypatch)
    outcome = evaluate(config_for(tmp_path, "decode.max_new_tokens=3", "limit=2", "seed=7"), Models())
    assert made[0].config.decode.max_new_tokens == 3 and made[0].config.seed == 7
    assert outcome.record["config"]["decode"]["max_new_tokens"] == 3 and outcome.record["n"] == 2
    assert outcome.record["alarms"]["truncated"] == 2
    saved = OmegaConf.load(outcome.folder / "config.yaml")
    assert OmegaConf.to_container(saved) == outcome.record["config"]


def test_run_is_on_disk_before_the_first_token(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    seen = []

    def look(config):
        seen.append(store.folder_of(config).record())
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "load_model", look)
    with pytest.raises(KeyboardInterrupt):
        evaluate(config, Models())
    assert seen[0]["status"] == "started" and seen[0]["samples"] == 6
    assert (store.folder_of(config).path / "config.yaml").is_file()


def test_failed_run_keeps_its_samples_and_goes_on(tmp_path, monkeypatch):
    doubles.use(monkeypatch, fail_at="echo/3")
    config = config_for(tmp_path)
    with pytest.raises(RuntimeError, match="on purpose"):
        evaluate(config, Models())
    folder = store.folder_of(config)
    broken = folder.record()
    assert broken["status"] == "error" and broken["n"] == 2 and "RuntimeError" in broken["error"]["traceback"]
    assert not finished(config)

    made = doubles.use(monkeypatch)
    outcome = evaluate(config, Models())
    assert outcome.resumed == 2 and outcome.decoded == 4 and outcome.record["error"] is None
    assert {name for call in made[0].calls for name in call} == {f"echo/{i}" for i in range(4)}
    assert outcome.record["speed"]["tokens"] == 39 and outcome.record["speed"]["seconds"] == pytest.approx(3)
    assert finished(config)


def test_finished_run_loads_no_model(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    first = evaluate(config, Models())
    before = lines(first.folder)
    monkeypatch.setattr(module, "load_model", None)
    again = evaluate(config, Models())
    assert again.decoded == 0 and again.record == first.record and lines(first.folder) == before


def test_scorer_crash_costs_one_score_and_is_mended_without_a_model(tmp_path, monkeypatch):
    """lm-evaluation-harness#2140: everything generated, then scoring dies and all is lost."""
    doubles.use(monkeypatch)
    config = config_for(tmp_path, "task.crash=2")
    outcome = evaluate(config, Models())
    row = {row["id"]: row for row in lines(outcome.folder)}["echo/2"]
    assert row["error"] == "ZeroDivisionError: scorer fell over" and not row["correct"]
    assert outcome.record["status"] == "success" and outcome.record["correct"] == 2
    assert outcome.record["alarms"]["errors"] == 1 and outcome.record["alarms"]["no_answer"] == 0
    assert not finished(config)

    monkeypatch.setattr(module, "load_model", None)
    monkeypatch.setattr(doubles.Echo, "score", lambda self, sample, text: doubles.Score(True, text, {}))
    mended = evaluate(config, Models())
    assert mended.record["correct"] == 3 and mended.record["alarms"]["errors"] == 0 and mended.decoded == 0


def test_torn_last_line_is_decoded_again(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    outcome = evaluate(config, Models())
    file = outcome.folder / "samples.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    torn = evaluate(config, Models())
    assert torn.decoded == 1 and torn.record["n"] == 6
    assert [row["id"] for row in lines(outcome.folder)][-1] == "echo/0"
    assert torn.record["speed"]["seconds"] == pytest.approx(3), "each sample bears its own share, and once"


def test_other_data_under_the_same_name_are_refused(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    evaluate(config, Models())
    monkeypatch.setattr(doubles.Echo, "prepare", lambda self, allow: doubles.DataSource("elsewhere", "0" * 64, 6))
    with pytest.raises(TaskDataError, match="other data than elsewhere holds now"):
        evaluate(config, Models())


def test_refusals_come_before_the_model(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    monkeypatch.setattr(module, "load_model", None)
    config = config_for(tmp_path, "task.code=true")
    with pytest.raises(SandboxError):
        evaluate(config, Models())
    assert not list(tmp_path.iterdir())


def test_long_prompt_is_refused_before_decoding(tmp_path, monkeypatch):
    made = doubles.use(monkeypatch)
    with pytest.raises(PromptError, match="does not fit"):
        evaluate(config_for(tmp_path, "decode.max_new_tokens=500"), Models())
    assert made[0].calls == []


def test_two_writers_of_one_run(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    with store.folder_of(config).locked(), pytest.raises(ConfigError, match="another process"):
        evaluate(config, Models())


def test_model_stays_loaded_between_runs_that_share_it(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    models = Models()
    for overrides in (["limit=1"], ["limit=2"], ["dtype=float16"]):
        evaluate(config_for(tmp_path, *overrides), models)
    assert len(doubles.ByteModel.loads) == 2


def test_resuming_on_another_machine_is_told(tmp_path, monkeypatch):
    doubles.use(monkeypatch, fail_at="echo/3")
    config = config_for(tmp_path)
    with pytest.raises(RuntimeError):
        evaluate(config, Models())
    doubles.use(monkeypatch)
    monkeypatch.setattr("s2d2cli.runs.environment.cpu_model", lambda: "another CPU")
    assert evaluate(config, Models()).record["resumed_with"] == ["cpu"]


def test_label_does_not_matter_for_finding_a_run(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    first = evaluate(config, Models())
    first.folder.rename(tmp_path / f"renamed-{run_id(config)}")
    assert evaluate(config, Models()).decoded == 0


SCRIPT = """
import sys
from pathlib import Path
import pytest
from tests.runs import doubles
from tests.runs.test_evaluate import config_for
from s2d2cli.runs.evaluate import Models, evaluate
with pytest.MonkeyPatch.context() as patch:
    doubles.use(patch)
    evaluate(config_for(Path(sys.argv[1]), "task.size=40"), Models())
"""


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    root = Path(__file__).parents[2]
    env = os.environ | {"ECHO_SECONDS": "0.05", "PYTHONPATH": str(root)}
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "killed")], env=env, cwd=root)
    file = store.folder_of(config_for(tmp_path / "killed", "task.size=40")).path / "samples.jsonl"
    deadline = time.monotonic() + 60
    while not file.is_file() or file.read_bytes().count(b"\n") < 6:
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.01)
    child.kill()
    assert child.wait(timeout=30) == -signal.SIGKILL
    written = file.read_bytes().count(b"\n")
    assert 6 <= written < 40

    doubles.use(monkeypatch)
    resumed = evaluate(config_for(tmp_path / "killed", "task.size=40"), Models())
    straight = evaluate(config_for(tmp_path / "straight", "task.size=40"), Models())
    assert resumed.decoded == 40 - resumed.resumed and resumed.resumed == written
    assert without_batches(resumed.folder) == without_batches(straight.folder)
    assert resumed.record["accuracy"] == straight.record["accuracy"]


def without_batches(folder: Path) -> dict[str, dict]:
    return {row["id"]: {k: v for k, v in row.items() if k != "batch"} for row in lines(folder)}
