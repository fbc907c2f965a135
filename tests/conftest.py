"""Shared fixtures: the small golden checkpoints, loaded through the real loader."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from hydra.core.config_store import ConfigStore

from s2d2cli import plugins
from s2d2cli.config import DecodeConfig, ModelConfig, RunConfig
from s2d2cli.decode import Decoder
from s2d2cli.decode.estimators import Entropy
from s2d2cli.decode.routers import Always, Never
from s2d2cli.decode.unmask import LowConfidenceDynamic
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.models import FAMILIES, load_model
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.values import FROM_PROMPT

GOLDEN = Path(__file__).parent / "golden"

torch.set_num_threads(1)  # the models of the tests are too small to share out


@pytest.fixture
def forget_plugins():
    """What a test registered is gone after it."""
    repo = ConfigStore.instance().repo
    kept = [(tree, dict(tree)) for tree in (repo["router"], plugins.LOADED, plugins.OWNERS)]
    yield
    for tree, before in kept:
        tree.clear()
        tree.update(before)


@cache
def load_golden(family: str) -> ModelAdapter:
    source = str(GOLDEN / family / "checkpoint")
    return load_model(RunConfig(model=ModelConfig(name=f"golden-{family}", source=source, family=family), device="cpu"))


@pytest.fixture(scope="session")
def golden_model() -> ModelAdapter:
    """For what does not depend on the family."""
    return load_golden("sdar")


@pytest.fixture(scope="session")
def llada2_model() -> ModelAdapter:
    return load_golden("llada2")


@pytest.fixture(scope="session", params=sorted(set(FAMILIES) - set(FROM_PROMPT)))
def family_model(request) -> ModelAdapter:
    """For what must hold for every family that attends by block: its golden checkpoint. What attends fully, the prompt
    alone or everything, has tests of its own, test_whole_prompt.py and test_full.py."""
    return load_golden(request.param)


def make_decoder(router=None, unmask=None, verifier=None, estimator=None, **settings) -> Decoder:
    """A decoder from stages and decode settings; what is not named is plain dynamic decoding."""
    decode = DecodeConfig(**{"context": "block", **settings})
    if decode.denoising_steps is None:
        decode.denoising_steps = decode.block_length
    return Decoder(
        settings=decode,
        drafter=(verifier or SelfVerifier()).drafter(),
        estimator=estimator or Entropy(),
        router=router or Never(),
        verifier=verifier or SelfVerifier(),
        unmask=unmask or LowConfidenceDynamic(),
        seed=0,
    )


def s2d2(**settings) -> Decoder:
    return make_decoder(router=Always(), **{"context": "causal", **settings})
