"""The same answers on a CUDA device as on the CPU. Run with `make test-gpu`."""

from __future__ import annotations

import time

import pytest
import torch

from s2d2cli.config import ModelConfig, RunConfig
from s2d2cli.decode import Request
from s2d2cli.decode.routers import Always
from s2d2cli.decode.single import SingleForward
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.models import load_model
from tests.conftest import GOLDEN, make_decoder, s2d2

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device and a CUDA build of torch"),
]
REQUESTS = [Request(str(i), list(range(3, 5 + 4 * i))) for i in range(6)]
DECODERS = {
    "dynamic": make_decoder(block_length=8, max_new_tokens=40),
    "s2d2": s2d2(block_length=8, max_new_tokens=40),
    "ahead": make_decoder(
        Always(), verifier=SelfVerifier(ahead=True), context="causal", block_length=8, max_new_tokens=40
    ),
    "single": make_decoder(
        Always(), verifier=SingleForward("sliding", 40), context="causal", block_length=8, max_new_tokens=40
    ),
    "s2d2 sampled": s2d2(block_length=8, max_new_tokens=40, temperature=1.0, top_k=20, top_p=0.95),
}


def load(dtype: str):
    source = str(GOLDEN / "sdar" / "checkpoint")
    return load_model(RunConfig(model=ModelConfig(name="golden", source=source), device="cuda", dtype=dtype))


@pytest.mark.parametrize("name", DECODERS)
def test_cuda_equals_cpu_in_float32(golden_model, name):
    expected = DECODERS[name].generate(golden_model, REQUESTS).generations
    assert DECODERS[name].generate(load("float32"), REQUESTS).generations == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", DECODERS)
def test_half_precision_decodes(name, dtype):
    for generation in DECODERS[name].generate(load(dtype), REQUESTS).generations:
        assert len(generation.token_ids) == 40


def test_refilled_rows_and_phases():
    """A queue on the GPU gives what single runs give, and the seconds of its phases are those on the clock."""
    model, decoder = load("float32"), DECODERS["s2d2"]
    alone = {r.sample_id: decoder.generate(model, [r]).generations[0] for r in REQUESTS}
    torch.cuda.synchronize()
    began = time.perf_counter()
    session = decoder.session(model, REQUESTS, width=2)
    assert {g.sample_id: g for g in session.results()} == alone
    wall = time.perf_counter() - began
    assert 0.5 * wall < session.result.seconds <= 1.05 * wall
