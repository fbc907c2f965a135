"""What a run says about its machine and model, on machines that are not here."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import pytest
import torch

from s2d2cli.config import compose
from s2d2cli.runs.environment import differences, driver, environment, peak_memory, placed
from s2d2cli.runs.evaluate import Models, evaluate
from tests.runs import doubles

SECOND = torch.device("cuda:1")


@pytest.fixture
def two_gpus(monkeypatch):
    """The first one is the current one; the second is larger and of another make."""
    cards = [("Small", 16 * 2**30), ("Large", 80 * 2**30)]

    def properties(device: torch.device) -> SimpleNamespace:
        name, memory = cards[device.index or 0]
        return SimpleNamespace(name=name, total_memory=memory)

    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: len(cards),
        "get_device_name": lambda device=None: cards[0][0],
        "get_device_properties": properties,
        "max_memory_allocated": lambda device: 7 if device == SECOND else 5,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr("s2d2cli.runs.environment.driver", lambda: "570.1")


def model_on(device: torch.device) -> SimpleNamespace:
    return SimpleNamespace(device=device, dtype=torch.bfloat16, stop_ids=(2, 7), mask_id=9, draft_model=None)


def test_the_gpu_is_that_of_the_model(two_gpus):
    found = environment("eager") | placed(model_on(SECOND))
    assert (found["gpu"], found["gpu_memory_bytes"], found["gpus_visible"]) == ("Large", 80 * 2**30, 2)
    assert (found["cuda"], found["driver"], found["dtype"]) == ("12.8", "570.1", "bfloat16")
    assert peak_memory(SECOND, None) == {"peak_bytes": 7, "of": "gpu"}
    json.dumps(found, allow_nan=False)


def test_a_model_on_the_cpu_names_no_driver(two_gpus):
    assert not {"cuda", "driver", "gpu_memory_bytes"} & placed(model_on(torch.device("cpu"))).keys()


def test_a_run_keeps_the_system_and_the_ids_in_effect(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    outcome = evaluate(compose(["task=echo"], {"results": str(tmp_path)}), Models())
    kept = json.loads((outcome.folder / "run.json").read_text())["environment"]
    assert (kept["stop_ids"], kept["mask_id"]) == ([doubles.STOP], doubles.MASK)
    assert kept["os"] and kept["gpus_visible"] == torch.cuda.device_count()
    assert differences(kept, environment("eager") | placed(doubles.ByteModel())) == []  # as JSON gives it back


def test_differences_are_in_what_computed():
    before = {"gpu": "Small", "gpus_visible": 1, "stop_ids": [2]}
    assert differences(before, {"gpu": "Large", "gpus_visible": 8, "stop_ids": [2, 7]}) == ["gpu", "stop_ids"]
    assert differences(before, before | {"gpus_visible": 8, "driver": "570.1"}) == []


@pytest.mark.parametrize("answer", [FileNotFoundError("nvidia-smi"), subprocess.TimeoutExpired("nvidia-smi", 10)])
def test_a_driver_that_does_not_answer_is_unknown(monkeypatch, answer):
    def run(*_: object, **__: object) -> None:
        raise answer

    monkeypatch.setattr(subprocess, "run", run)
    assert driver() == "unknown"
