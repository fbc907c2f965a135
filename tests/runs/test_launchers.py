"""Workers through Hydra's launchers, for real: each point once, and the samples that one process decodes.

Each needs its extra, and starts processes that load torch, so these are among the slow tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from s2d2cli.config import hydra_session
from s2d2cli.errors import MissingExtraError
from s2d2cli.launchers import LAUNCHERS, need, quoted
from s2d2cli.overrides import parse
from s2d2cli.runs.ledger import OK, Ledger

POINTS = ("sweep", "router=always,min_span", "-b", "4,8", "limit=2", "-n", "24")


def installed(launcher: str) -> bool:
    try:
        need(launcher)
    except MissingExtraError:
        return False
    return True


def s2d2(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-m", "s2d2cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=environment)


def texts(results: Path) -> dict[str, str]:
    rows = [json.loads(line) for file in results.glob("*/samples.jsonl") for line in file.read_text().splitlines()]
    files = [file.parent.name for file in results.glob("*/samples.jsonl") for _ in file.read_text().splitlines()]
    return {f"{file}/{row['id']}": row["text"] for file, row in zip(files, rows, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_a_launcher_s_workers_do_each_point_once(tmp_path, launcher):
    if not installed(launcher):
        pytest.skip(f"needs pip install 's2d2[{LAUNCHERS[launcher].extra}]'")
    done = s2d2(tmp_path, *POINTS, "--launcher", launcher, "--workers", "2", "-o", "it's, here")
    assert done.returncode == 0, done.stderr
    assert s2d2(tmp_path, *POINTS, "-o", "alone").returncode == 0
    assert texts(tmp_path / "it's, here") == texts(tmp_path / "alone") != {}
    (sweep,) = (tmp_path / "it's, here" / "sweeps").iterdir()
    rows = Ledger(sweep / "rows").refresh()
    assert [row.status for row in rows] == [OK] * 4 and len({row.run_id for row in rows}) == 4
    driver = {row.pid for row in Ledger(next((tmp_path / "alone" / "sweeps").iterdir()) / "rows").refresh()}
    assert not driver & {row.pid for row in rows} and "[4/4] done" in done.stderr


@pytest.mark.slow
def test_a_setting_that_the_launcher_does_not_have(tmp_path):
    if not installed("joblib"):
        pytest.skip("needs pip install 's2d2[joblib]'")
    done = s2d2(tmp_path, *POINTS, "--launcher", "joblib", "hydra.launcher.n_jbos=2")
    assert done.returncode == 2 and "error: --launcher joblib cannot be set up like this" in done.stderr


def test_a_launcher_that_is_not_there(monkeypatch):
    monkeypatch.setattr("s2d2cli.launchers.find_spec", lambda name: find_spec("no_such_package"))
    with pytest.raises(MissingExtraError, match=r"pip install 's2d2\[slurm\]'"):
        need("slurm")


@pytest.mark.parametrize("text", ["/a b/c", "/it's", "/x=1,2", "/back\\slash", "/ü#%"])
def test_paths_pass_hydra_s_grammar(text):
    with hydra_session():
        assert parse(f"folder={quoted(text)}").value() == text
