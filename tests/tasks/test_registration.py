"""Each task is selectable by name, its fields are its settings, and importing the tasks loads nothing heavy."""

import subprocess
import sys

import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

import s2d2cli.tasks  # noqa: F401  registers the tasks
from s2d2cli.tasks.gsm8k import GSM8K, TinyMath
from s2d2cli.tasks.humaneval import HumanEval
from s2d2cli.tasks.ifeval import TinyInstruct
from s2d2cli.tasks.jsonl import Jsonl
from s2d2cli.tasks.mbpp import MBPP, MBPPSanitized, TinyCode

REGISTERED = {
    "gsm8k": GSM8K,
    "humaneval": HumanEval,
    "jsonl": Jsonl,
    "mbpp": MBPP,
    "mbpp_sanitized": MBPPSanitized,
    "tiny_math": TinyMath,
    "tiny_code": TinyCode,
    "tiny_instruct": TinyInstruct,
}


@pytest.mark.parametrize(("name", "cls"), REGISTERED.items())
def test_a_task_is_its_own_config(name, cls):
    node = ConfigStore.instance().load(f"task/{name}.yaml").node
    node.max_new_tokens = 7
    task = OmegaConf.to_object(node)
    assert task == cls(max_new_tokens=7)
    assert task.name == name
    assert task.version >= 1


def test_importing_tasks_is_light():
    code = "import sys, s2d2cli.tasks; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = process.stdout.split()
    assert {"s2d2cli.tasks.gsm8k", "s2d2cli.tasks.jsonl"} <= set(loaded)
    assert not {"torch", "transformers", "datasets", "numpy", "pandas", "nltk", "langdetect"} & set(loaded)
