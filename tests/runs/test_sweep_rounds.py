"""`s2d2 sweep` again and again: what is kept, what is retried, what another version measured, who else works on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from s2d2cli.config import compose, record, run_id
from s2d2cli.restore import restore
from s2d2cli.runs import claims
from s2d2cli.runs.claims import Holder
from s2d2cli.runs.ledger import Ledger
from s2d2cli.runs.manifest import SweepFolder
from tests.runs import doubles
from tests.test_cli import WARM, Terminal
from tests.test_cli import decoders as decoders
from tests.test_cli import s2d2 as s2d2

POINTS = ("sweep", WARM, "task=echo", "seed=1,2,3")


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """What is drawn at the end has its own tests."""
    monkeypatch.setattr("s2d2cli.cli.report.show", lambda folders, out: None)


def sweep_folders() -> list[SweepFolder]:
    return [SweepFolder(path) for path in sorted(Path("results/sweeps").iterdir())]


def statuses(sweep: SweepFolder) -> list[str]:
    return [row.status for row in Ledger(sweep.path / "rows").refresh()]


@pytest.fixture
def broken(monkeypatch):
    """Seeds that fail; what stands in it when a point begins counts."""
    doubles.use(monkeypatch)
    seeds, usual = {2}, doubles.EchoDecoder.generate

    def generate(self, model, requests, observer=None):
        if self.config.seed in seeds:
            raise RuntimeError("out of memory [on purpose]")
        return usual(self, model, requests)

    monkeypatch.setattr(doubles.EchoDecoder, "generate", generate)
    return seeds


def test_a_wider_axis_runs_the_new_points_only(s2d2, decoders):
    assert s2d2(*POINTS) == 0 and len(decoders) == 3
    assert s2d2("sweep", "seed=3,4,1,2", "task=echo", WARM) == 0 and len(decoders) == 4
    assert "4 points on tiny, 3 of them finished." in s2d2.err and s2d2.err.count("[4/4] done") == 1
    assert [len(sweep.read().entries) for sweep in sweep_folders()] in ([3, 4], [4, 3])
    assert s2d2("sweep", "seed=2,1,3", "task=echo", WARM) == 0 and len(sweep_folders()) == 2  # order does not matter
    assert len(decoders) == 4
    for sweep in sweep_folders():
        assert statuses(sweep) == ["ok"] * len(sweep.read().entries)


def test_failed_points_are_tried_again_unless_told_otherwise(s2d2, broken):
    assert s2d2(*POINTS) == 1 and "failed: decode.temperature=1 task=echo seed=2: RuntimeError" in s2d2.err
    assert s2d2(*POINTS, "--no-retry-failed") == 1 and "failed: " in s2d2.err and "[" not in s2d2.err.split("failed")[0]
    assert statuses(sweep_folders()[0]).count("failed") == 1
    assert s2d2(*POINTS) == 1 and statuses(sweep_folders()[0]).count("failed") == 2
    assert s2d2(*POINTS, "--max-attempts", "2") == 1 and statuses(sweep_folders()[0]).count("failed") == 2
    broken.clear()
    assert s2d2(*POINTS, "--max-attempts", "3") == 0
    attempts = [(row.run_id, row.attempt) for row in Ledger(sweep_folders()[0].path / "rows").refresh()]
    assert len(set(attempts)) == len(attempts) == 5


def test_fail_fast(s2d2, broken):
    broken.add(1)
    assert s2d2(*POINTS, "--fail-fast") == 1 and "still to do: 2 of 3 points" in s2d2.err
    assert statuses(sweep_folders()[0]) == ["failed"]


def test_a_run_that_was_deleted_is_made_again(s2d2, decoders):
    assert s2d2(*POINTS) == 0
    for file in next(Path("results").glob("tiny-echo-*")).iterdir():
        file.unlink()
    assert s2d2(*POINTS) == 0 and "2 of them finished" in s2d2.err and len(decoders) == 4


def test_another_version_of_the_code_is_told_and_can_be_measured_anew(s2d2, decoders):
    assert s2d2(*POINTS) == 0 and "another version" not in s2d2.err
    (old,) = [path for path in Path("results").glob("tiny-echo-*/run.json") if '"seed": 2' in path.read_text()]
    changed = json.loads(old.read_text())
    changed["environment"] |= {"s2d2": "0.0.1", "revision": None}
    old.write_text(json.dumps(changed))
    assert s2d2(*POINTS) == 0, s2d2.err
    assert len(decoders) == 3
    assert "warning: 1 of these points were measured by another version of the code (s2d2 0.0.1)" in s2d2.err
    assert s2d2(*POINTS, "--strict-code", "--dry-run") == 0 and len(decoders) == 3
    assert s2d2(*POINTS, "--strict-code") == 0 and len(decoders) == 4 and "another version" not in s2d2.err
    (aside,) = sweep_folders()[0].path.glob("replaced/*")
    assert aside.name == old.parent.name and (aside / "samples.jsonl").exists()
    assert json.loads(old.read_text())["environment"]["s2d2"] != "0.0.1"
    assert s2d2(*POINTS, "--strict-code") == 0 and len(decoders) == 4


def test_a_point_that_somebody_else_holds(s2d2, decoders):
    assert s2d2(*POINTS, "--workers", "0") == 0 and decoders == []
    (sweep,) = sweep_folders()
    assert f"s2d2 sweep --worker {sweep.path}" in s2d2.err
    held = sweep.read().entries[1].run_id
    (sweep.path / "claims" / held).write_text(json.dumps(Holder(host="node7").__dict__))
    assert s2d2(*POINTS) == 1 and "still to do: 1 of 3 points" in s2d2.err and len(decoders) == 2
    assert s2d2("status", str(sweep.path)) == 0 and "2 done, 0 failed, 1 running, 0 todo" in s2d2.out
    assert "on node7" in s2d2.out
    assert s2d2("status", str(sweep.path), "--json") == 0
    assert json.loads(s2d2.out)["counts"] == {"done": 2, "running": 1}
    assert s2d2(*POINTS, "--break-claims") == 0 and len(decoders) == 3
    assert claims.holders(sweep.path / "claims") == {}


def test_a_worker_for_any_scheduler(s2d2, decoders, tmp_path, monkeypatch):
    assert s2d2(*POINTS, "--workers", "0") == 0
    path = sweep_folders()[0].path.resolve()
    assert s2d2("sweep", "--worker", str(path), "--shard", "3/2") == 2
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for shard in ("1/2", "2/2"):
        assert s2d2("sweep", "--worker", str(path), "--shard", shard) == 0
    monkeypatch.chdir(tmp_path)
    assert len(decoders) == 3 and statuses(sweep_folders()[0]) == ["ok"] * 3
    assert not list((tmp_path / "elsewhere").iterdir())
    assert s2d2(*POINTS) == 0 and "3 of them finished" in s2d2.err and len(decoders) == 3
    assert s2d2("sweep", "--worker", str(tmp_path)) == 2 and "must be the folder of a sweep" in s2d2.err


def test_the_manifest_s_settings_are_the_applied_and_the_recorded_ones(s2d2, decoders):
    """llama-toolchest#90: overrides were recorded and never applied."""
    words = ("router=hysteresis", "router.tau_on=0.3,1e-05", "estimator=margin", "decode.top_p=0.9", "-b", "8")
    assert s2d2("sweep", "task=echo", WARM, *words) == 0
    entries = sweep_folders()[0].read().entries
    for entry, decoder in zip(entries, decoders, strict=True):
        assert json.loads(json.dumps(record(decoder.config))) == entry.config
        assert run_id(restore({"config": entry.config})) == entry.run_id
        (file,) = Path("results").glob(f"*-{entry.run_id}/run.json")
        assert json.loads(file.read_text())["config"] == entry.config
    assert [entry.config["router"]["tau_on"] for entry in entries] == [0.3, 1e-05]


PLUGIN = """
from dataclasses import dataclass
from s2d2cli.config import register
from s2d2cli.decode.routers import Stateless

@register("router", "told")
@dataclass
class Told(Stateless):
    period: int = 2
    def decide(self, draft, state):
        with open(f"applied-{self.period}", "a") as file:
            print(self.period, draft.tokens_BL.shape[1], file=file)
        return state.block_step_B % self.period == 0
"""


def test_worker_processes_apply_what_the_manifest_says(tmp_path):
    """Through the command line, a plugin and two processes: what decodes has the settings that the record shows."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    words = ["router=told", "router.period=2,3", "limit=1", "-n", "16", "-b", "8", "--workers", "2"]
    command = [sys.executable, "-m", "s2d2cli", "sweep", "--plugins", "mine.py", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "warning: 2 workers share this CPU" in done.stderr and "[2/2] done" in done.stderr
    for period in (2, 3):
        assert set((tmp_path / f"applied-{period}").read_text().split("\n")) == {f"{period} 8", ""}
    records = [json.loads(file.read_text()) for file in tmp_path.glob("results/*/run.json")]
    assert sorted(r["config"]["router"]["period"] for r in records) == [2, 3]
    assert {r["config"]["results"] for r in records} == {"results"}
    (log, _) = sorted((tmp_path / "results" / "sweeps").glob("*/logs/*"))
    assert "Traceback" not in log.read_text()


def test_an_estimate_before_and_after_the_first_points(s2d2, decoders):
    assert s2d2(*POINTS, "limit=4", "decode.max_new_tokens=16", "-b", "8", "--dry-run") == 0
    assert s2d2.out.count("(at most 132 forwards)") == 3  # 4 x (prompt + 16 drafts + 16 verifications)
    assert "at most 396 forwards; no estimate of the time yet" in s2d2.err
    assert s2d2("sweep", WARM, "task=echo", "seed=1,2", "limit=4", "decode.max_new_tokens=16", "-b", "8") == 0
    assert s2d2(*POINTS, "limit=4", "decode.max_new_tokens=16", "-b", "8", "--dry-run") == 0
    assert s2d2.out.count(" done ") == 2 and "seed=3 limit=4" in s2d2.out.splitlines()[2]
    # by EchoDecoder.answer: one prefill and a draft for each two of 9, 8, 7 and 6 tokens; 0.1 s a phase
    assert s2d2.out.splitlines()[2].endswith("(about 20 forwards, 2 s)")
    assert "to do: about 20 forwards, 2 s, going by finished points\n" in s2d2.err


def test_what_another_decoder_took_is_told_as_such(s2d2, decoders):
    wide = ("limit=4", "decode.max_new_tokens=16", "-b", "8")
    assert s2d2("sweep", WARM, "task=echo", "seed=1,2", *wide) == 0
    assert s2d2("sweep", WARM, "task=echo", "seed=1,3", "router=never,always", *wide, "--dry-run") == 0
    other = [line for line in s2d2.out.splitlines() if "router=never" in line]
    assert [line.partition(" (")[2] for line in other] == ["perhaps 20 forwards, 2 s, going by other decoders)"] * 2
    assert "going by finished points; for 2 of 3 by those of other decoders, maybe far off" in s2d2.err


def test_too_many_points(s2d2, decoders, tmp_path):
    assert s2d2("sweep", "task=echo", "seed=range(5000)", "limit=range(1,5000)", "--dry-run") == 2
    assert "more than 1000 points" in s2d2.err and "--max-points" in s2d2.err
    assert s2d2(*POINTS, "--max-points", "2") == 2 and s2d2(*POINTS, "--max-points", "3", "--dry-run") == 0


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--launcher", "slrm"], 2, "--launcher must be one of local, joblib"),
        (["hydra.launcher.n_jobs=2"], 2, "--launcher names none"),
        (["seed=interval(0,1)"], 2, "let `s2d2 search` choose from the range"),
        (["seed=shuffle(1,2,3)"], 2, "another order each time"),
    ],
)
def test_what_a_sweep_refuses(s2d2, decoders, words, code, sentence):
    assert s2d2("sweep", "task=echo", "limit=1,2", *words) == code
    assert sentence in s2d2.err and s2d2.err.count("\n") == 1 and decoders == []


@pytest.mark.parametrize(("launcher", "extra"), [("joblib", "joblib"), ("slurm", "slurm"), ("ray", "ray")])
def test_a_missing_extra_is_one_sentence(s2d2, decoders, monkeypatch, launcher, extra):
    monkeypatch.setattr("s2d2cli.launchers.find_spec", lambda name: None)
    assert s2d2("sweep", "task=echo", "limit=1,2", "--launcher", launcher) == 4
    assert s2d2.err == (
        f"error: --launcher {launcher} needs a package that is not installed: pip install 's2d2[{extra}]'\n"
    )


def test_dusty_floats_are_the_same_run():
    dusty, plain = (compose([f"unmask.threshold={value}"]) for value in ("0.30000000000000004", "0.3"))
    assert run_id(dusty) == run_id(plain) != run_id(compose(["unmask.threshold=0.3001"]))


def test_a_bar_on_a_terminal(s2d2, decoders, monkeypatch):
    from s2d2cli.cli import watch
    from s2d2cli.runs.ledger import PointRow

    assert s2d2(*POINTS, "--workers", "0") == 0
    (sweep,) = sweep_folders()
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    entries = sweep.read().entries
    looking = watch.Watch(sweep, entries, watch.bar())
    with looking.bar:
        looking.bar.add_task("points", total=3)
        row = PointRow(entries[0].run_id, "failed", 1, 0.0, 1.0, "h", 1, "v", "OutOfMemory: [so] much")
        Ledger(sweep.path / "rows").append(row)
        looking.update()
        looking.progress()
    assert "[1/3] failed decode.temperature=1 task=echo seed=1: OutOfMemory: [so] much" in screen.getvalue()
    assert "0 running" in screen.getvalue() and "1/3" in screen.getvalue()


def test_a_sweep_as_one_json_object(s2d2, broken):
    """Fields of failed and skipped points too; the rest of the words are on stderr."""
    words = ("sweep", "seed=1,2", "task=echo", WARM, "decode.block_length=4", "decode.denoising_steps=4,8", "--json")
    assert s2d2(*words, "--dry-run") == 0
    assert [point["status"] for point in json.loads(s2d2.out)["points"]] == ["open", "open"]
    assert s2d2(*words) == 1 and "failed: " in s2d2.err and "report.html" in s2d2.err
    told = json.loads(s2d2.out)
    done, failed = told["points"]
    assert (done["status"], done["n"], done["accuracy"]) == ("done", 6, 0.5) and "seed=1" in done["overrides"]
    record = json.loads((Path(done["folder"]) / "run.json").read_text())
    assert done["run_id"] == record["run_id"] and done["tokens_per_s"] == record["speed"]["tokens_per_s"]
    assert done["tokens_per_forward"] == record["speed"]["tokens_per_forward"]
    assert failed["status"] == "failed" and failed["accuracy"] is None
    (error,) = told["failed"]
    assert error["run_id"] == failed["run_id"] and error["error"] == "RuntimeError: out of memory [on purpose]"
    assert len(told["skipped"]) == 2 and "got 8" in told["skipped"][0]["reason"]
    assert (Path(told["report"]) / "report.html").is_file() and (Path(told["sweep"]) / "manifest.json").is_file()


def test_json_without_points_is_refused(s2d2, decoders):
    assert s2d2(*POINTS, "--json", "--print-config") == 2 and "leave one of them out" in s2d2.err
    assert s2d2("sweep", "--worker", "nowhere", "--json") == 2 and "--worker does not" in s2d2.err
