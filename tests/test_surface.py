"""The surface that users build on. A change here is a decision to be made in review, not a side effect."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from s2d2cli.cli import app
from s2d2cli.config import STRATEGY_GROUPS, DecodeConfig, ModelConfig, RunConfig, names_of, strategy
from s2d2cli.folders import package_folder

EVERYDAY = """--batch-size --block-length --decoder --denoising-steps --device --dtype --limit --max-new-tokens --model
--config-dir --plugins --results --router --seed --task --temperature --top-k --top-p -C -b -m -n -o -t"""
ANYWHERE = "--debug --no-color --quiet --verbose --version -q -v"
OPTIONS = {
    "generate": f"""{EVERYDAY} --config --input --json --messages --output --pace --print-config --prompt --raw --show
    --system --trace""",
    "eval": f"{EVERYDAY} --allow-code-execution --check-verifier --config --json --print-config --trace",
    "sweep": f"""{EVERYDAY} --allow-code-execution --break-claims --dry-run --fail-fast --json --launcher --max-attempts
    --max-points --no-retry-failed --out --print-config --retry-failed --shard --strict-code --worker --workers""",
    "search": f"""{EVERYDAY} --allow-code-execution --dry-run --json --limits --objective --out --trials --worker
    --workers""",
    "status": "--json",
    "arness": f"{EVERYDAY} --config --json --k --out --print-config",
    "report": "--baseline --fail-under --json --measure --out --published --strict-code --trace --x",
    "compare": "--flips --json --measure",
    "extract": "--defines --kind",
    "score": "--allow-code-execution --json",
    "completion": "--line",
    "bench": f"{EVERYDAY} --context --json --rows",
    "doctor": "--config-dir --json --plugins --results -C -o",
    "list": "--config-dir --json --plugins -C",
    "reproduce": "--allow-code-execution --json --limit --results -o",
}
CONFIG = {
    ModelConfig: "name source family revision adapter adapter_revision mask_token stop_tokens block_length dtype",
    DecodeConfig: """block_length sub_block_length denoising_steps max_new_tokens temperature top_k top_p context commit
    boundary cache""",
    RunConfig: """model draft_model draft_device decode decoder unmask router estimator verifier task device threads
    dtype backend seed limit repeats batch_size results""",
}
STRATEGIES = {
    "unmask": {
        "edit_tokens": "threshold edit_threshold num_to_transfer max_post_steps",
        "entropy_bounded": "gamma whole_sum",
        "klass": "threshold divergence history",
        "local_leap": "threshold relaxed radius",
        "low_confidence_dynamic": "threshold",
        "low_confidence_static": "",
        "pipelined": "threshold block_add_threshold decoded_token_threshold min_tokens_per_step blocks_in_flight",
        "sequential": "",
    },
    "router": {
        "always": "",
        "cost_aware": "rows ms",
        "hysteresis": "confidence score cost tau_on tau_off reset_per_block",
        "min_span": "confidence tau_span legacy",
        "never": "",
        "score_threshold": "confidence score cost tau_score",
        "ucb": "beta span_bins progress_bins entropy_bins entropy_of progress_of reset_per_block",
    },
    "estimator": {
        "confidence": "gamma",
        "entropy": "beta",
        "entropy_threshold": "threshold",
        "linear_margin": "coef",
        "margin": "threshold",
        "renyi2": "",
    },
    "verifier": {
        "self": """acceptance published_temperature skip_redundant ahead bonus form spans resample residual_temperature
        tempering ratio_threshold ratio_spans keep_confident""",
        "chain": "nodes order ahead",
        "draft_target": "",
        "simsd": "mask order min_drafts",
        "single": "form max_rows",
    },
    "task": {
        "gsm8k": "data style shots max_new_tokens",
        "humaneval": "data max_new_tokens cpu_limit_s sandbox style",
        "ifeval": "data chat max_new_tokens",
        "jsonl": "data prompt answer scorer id system max_new_tokens",
        "mbpp": "data max_new_tokens cpu_limit_s sandbox split style shots",
        "mbpp_sanitized": "data max_new_tokens cpu_limit_s sandbox split style shots",
        "tiny_code": "data max_new_tokens cpu_limit_s sandbox system",
        "tiny_instruct": "data chat max_new_tokens",
        "tiny_math": "data style shots max_new_tokens",
    },
}
PRESETS = {
    "autoregressive": "unmask=sequential router=never block_length=1 context=causal",
    "d2f": "unmask=pipelined router=never",
    "d2f_s2d2": "unmask=pipelined router=min_span",
    "draft_target": "unmask=sequential router=always verifier=draft_target context=causal",
    "dynamic": "unmask=low_confidence_dynamic router=never",
    "editing": "unmask=edit_tokens router=never",
    "entropy_bounded": "unmask=entropy_bounded router=never",
    "klass": "unmask=klass router=never",
    "local_leap": "unmask=local_leap router=never",
    "s2d2": "unmask=low_confidence_dynamic router=always context=causal",
    "s2d2_adaptive": "unmask=low_confidence_dynamic router=cost_aware verifier=single form=sliding context=causal",
    "s2d2_single": "unmask=low_confidence_dynamic router=always verifier=single context=causal",
    "sequential": "unmask=sequential router=never",
    "simsd": "unmask=low_confidence_static router=always verifier=simsd",
    "ssd": "unmask=low_confidence_static router=always verifier=chain",
    "static": "unmask=low_confidence_static router=never",
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


@pytest.mark.parametrize("group", STRATEGY_GROUPS)
def test_strategies_and_their_settings(group):
    """Those of the package: other tests bring their own."""
    classes = {name: strategy(group, name) for name in names_of(group)}
    ours = {name: cls for name, cls in classes.items() if cls.__module__.startswith("s2d2cli.")}
    found = {name: {field.name for field in fields(cls)} for name, cls in ours.items()}
    assert found == {name: set(text.split()) for name, text in STRATEGIES[group].items()}


def test_decoders_and_what_they_choose():
    assert {file.stem: chosen_by(file) for file in (package_folder("conf") / "decoder").glob("*.yaml")} == {
        name: set(text.split()) for name, text in PRESETS.items()
    }


def chosen_by(file: Path) -> set[str]:
    """A preset as words; the label `decoder`, which must be the file's name, is left out."""
    preset = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert preset.pop("decoder") == file.stem
    groups = {key.removeprefix("override /"): name for one in preset.pop("defaults") for key, name in one.items()}
    values = groups | {key: value for settings in preset.values() for key, value in settings.items()}
    return {f"{key}={value}" for key, value in values.items()}
