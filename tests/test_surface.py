"""The surface that users build on. A change here is a decision to be made in review, not a side effect."""

from __future__ import annotations

from dataclasses import fields

import pytest
from typer.main import get_command

from s2d2cli.cli import app
from s2d2cli.config import DecodeConfig, ModelConfig, RunConfig

EVERYDAY = """--batch-size --block-length --decoder --denoising-steps --device --dtype --limit --max-new-tokens --model
--config-dir --plugins --results --router --seed --task --temperature --top-k --top-p -C -b -m -n -o -t"""
ANYWHERE = "--debug --no-color --quiet --verbose --version -q -v"
OPTIONS = {
    "generate": f"""{EVERYDAY} --config --input --json --messages --output --pace --print-config --prompt --raw --show
    --system --trace""",
    "eval": f"{EVERYDAY} --allow-code-execution --check-verifier --config --json --print-config --trace",
    "sweep": f"""{EVERYDAY} --allow-code-execution --break-claims --dry-run --fail-fast --launcher --max-attempts
    --max-points --no-retry-failed --out --print-config --retry-failed --shard --strict-code --worker --workers""",
    "search": f"""{EVERYDAY} --allow-code-execution --dry-run --limits --objective --out --trials --worker --workers""",
    "status": "--json",
    "arness": f"{EVERYDAY} --config --json --k --out --print-config",
    "report": "--baseline --fail-under --json --measure --out --published --strict-code --trace --x",
    "compare": "--flips --json --measure",
    "extract": "--defines --kind",
    "score": "--allow-code-execution --json",
    "completion": "--line",
    "doctor": "--config-dir --json --plugins --results -C -o",
    "list": "--config-dir --json --plugins -C",
    "reproduce": "--allow-code-execution --json --limit --results -o",
}
CONFIG = {
    ModelConfig: "name source family revision mask_token stop_tokens block_length dtype",
    DecodeConfig: "block_length denoising_steps max_new_tokens temperature top_k top_p context commit",
    RunConfig: """model decode decoder unmask router estimator verifier task device threads dtype backend seed limit
    repeats batch_size results""",
}


def test_commands():
    assert set(get_command(app).commands) == set(OPTIONS)


def test_options_that_work_anywhere():
    found = {name for parameter in get_command(app).params for name in parameter.opts}
    assert found == set(ANYWHERE.split())


@pytest.mark.parametrize("command", OPTIONS)
def test_options(command):
    found = {
        name
        for parameter in get_command(app).commands[command].params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    assert {name for name in found if name.startswith("-")} == set(OPTIONS[command].split())


@pytest.mark.parametrize("cls", CONFIG, ids=lambda cls: cls.__name__)
def test_settings(cls):
    assert {field.name for field in fields(cls)} == set(CONFIG[cls].split())
