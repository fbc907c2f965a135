"""The doctor finds what is wrong, says what to do, and leaves with 1 only then."""

from __future__ import annotations

import json
import os
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from s2d2cli import plugins
from s2d2cli.errors import SandboxError
from s2d2cli.runs import doctor
from tests.test_cli import s2d2 as s2d2


def found(check, *rest):
    return {finding.name: finding for finding in check(*rest)}


def test_a_healthy_machine(s2d2, tmp_path):
    assert s2d2("doctor", "--json") == 0
    told = json.loads(s2d2.out)
    assert told["status"] in ("ok", "warning")
    names = [finding["name"] for finding in told["findings"]]
    for name in (
        "s2d2",
        "python",
        "packages",
        "cpu",
        "auto",
        "attention",
        "threads",
        "sandbox",
        "hub cache",
        "plugins",
    ):
        assert name in names
    assert "tiny answers with 35 tokens" in told["findings"][-1]["said"] and not (tmp_path / "results").exists()
    assert all(finding["advice"] for finding in told["findings"] if finding["status"] != "ok")


def test_a_problem_has_exit_code_1_and_the_rest_is_still_said(s2d2, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "attention", lambda: 1 / 0)
    (tmp_path / "file").touch()
    assert s2d2("doctor", "-o", "file") == 1
    lines = s2d2.out.splitlines()
    (results,) = [line for line in lines if line.startswith("problem  results")]
    assert "'file' must be a folder that can be written to" in results and "--results" in results
    assert any(line.startswith("problem") and "ZeroDivisionError" in line for line in lines)
    assert lines[-1].startswith("ok       generation")


def test_a_wrong_answer_is_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "ANSWER", "#### 23")
    assert found(doctor.generation)["generation"].status == "problem"


def test_every_extra_is_known_with_its_pip_line(monkeypatch):
    extras = Path(__file__).parents[1] / "pyproject.toml"
    section = extras.read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    named = {line.partition(" =")[0] for line in section.splitlines() if " = [" in line}
    assert named - {"dev"} <= set(doctor.EXTRAS)
    monkeypatch.setattr(doctor, "is_there", lambda module: module == "nltk")
    told = found(doctor.extras)
    assert told["extra ray"].said == "not installed; pip install 's2d2[ray]'" and told["extra ray"].status == "ok"
    assert told["extra ifeval"].status == "warning" and "without langdetect, punkt" in told["extra ifeval"].said
    assert told["extra ifeval"].advice == "pip install 's2d2[ifeval]'"


def test_a_token_is_never_shown(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    told = found(doctor.hub)
    assert told["hub token"].said == "present (HF_TOKEN)" and "secret" not in str(told)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "nothing is downloaded" in found(doctor.hub)["hub offline"].said


def test_the_hub_cache_of_the_environment(tmp_path, monkeypatch):
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert found(doctor.hub)["hub cache"].said.startswith(f"{tmp_path / 'hub'}: 1 models")


@pytest.mark.parametrize(("bf16", "status"), [(True, "ok"), (False, "warning")])
def test_gpus(monkeypatch, bf16, status):
    card = SimpleNamespace(name="H200", total_memory=141 << 30)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: card)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: bf16)
    told = found(doctor.device)
    assert told["gpu 1"].status == status and "H200, 141 GiB" in told["gpu 1"].said
    assert "device=auto is cuda" in told["auto"].said


def test_a_driver_without_a_torch_for_it(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 570.1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert found(doctor.device)["gpu"].status == "warning" and doctor.driver() == "570.1"


def test_the_sandbox_in_use(monkeypatch):
    monkeypatch.setattr(doctor, "choose_sandbox", lambda wanted: "process")
    assert found(doctor.sandbox)["sandbox"].status == "warning"

    def refuse(wanted):
        raise SandboxError("generated code runs only where process groups exist")

    monkeypatch.setattr(doctor, "choose_sandbox", refuse)
    told = {finding.name: finding for finding in doctor.examine("results") if finding.name == "sandbox"}
    assert told["sandbox"].status == "problem" and "process groups" in told["sandbox"].said


def test_search_path_and_plugins(s2d2, tmp_path):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    assert s2d2("doctor", "-C", "mine") == 0
    (line,) = [line for line in s2d2.out.splitlines() if " configuration " in line]
    assert f"  {tmp_path / 'mine'}, then " in line and line.index("mine") < line.index("/conf")


def test_a_broken_plugin_is_a_problem(s2d2, monkeypatch):
    point = EntryPoint("bad", "no_such_module_here", "s2d2.plugins")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    plugins.load_installed.cache_clear()
    try:
        assert s2d2("doctor") == 1 and "the installed plugin bad = no_such_module_here" in s2d2.out
    finally:
        plugins.load_installed.cache_clear()


@pytest.mark.parametrize(("version", "fits"), [("5.3.0", False), ("5.4.0", True), ("5.24.0", True), ("6.0.0", False)])
def test_a_version_that_cannot_work_is_a_problem(monkeypatch, version, fits):
    """KVCache is no cache to transformers 5.0 to 5.3."""
    usual = doctor.importlib.metadata.version
    monkeypatch.setattr(
        doctor.importlib.metadata, "version", lambda name: version if name == "transformers" else usual(name)
    )
    problems = [finding for finding in doctor.versions() if finding.status == doctor.PROBLEM]
    assert len(problems) == (not fits) and all(version in finding.said for finding in problems)
