"""Distributions and random streams."""

from __future__ import annotations

import pytest
import torch

from s2d2cli.decode import sampling
from s2d2cli.decode.rng import SampleStreams, stream_key
from s2d2cli.decode.sampling import Sampler, invert_cdf, residual_probs
from s2d2cli.decode.session import idle_state
from s2d2cli.decode.state import leading_count

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0, -torch.inf], [0.0, 0.0, 0.0, 3.0, -torch.inf]])


def test_greedy_confidence_is_the_plain_softmax():
    tokens, confidence = Sampler(0.0, 1, 0.1).draw(LOGITS[None], None)
    assert tokens.tolist() == [[0, 3]]
    assert torch.equal(confidence[0], LOGITS.softmax(-1).max(-1).values)


def test_temperature_top_k_and_top_p():
    warm = Sampler(2.0, 0, 1.0).probs(LOGITS)
    assert torch.allclose(warm, (LOGITS / 2).softmax(-1))
    two = Sampler(1.0, 2, 1.0).probs(LOGITS)[0]
    assert two.nonzero()[:, 0].tolist() == [0, 1]
    assert torch.allclose(two[:2], LOGITS[0, :2].softmax(-1))
    # probabilities .644 .237 .087 .032: the mass before the third is .881, so .9 keeps three and .88 two
    assert (Sampler(1.0, 0, 0.9).probs(LOGITS)[0] > 0).sum() == 3
    assert (Sampler(1.0, 0, 0.88).probs(LOGITS)[0] > 0).sum() == 2
    assert (Sampler(1.0, 0, 1e-6).probs(LOGITS)[0] > 0).sum() == 1


@pytest.mark.parametrize("temperature", [1e-9, 1e-40, 1e-300])
def test_no_temperature_is_too_small(temperature):
    probs = Sampler(temperature, 3, 0.9).probs(LOGITS)
    assert torch.equal(probs, torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 0, 1.0, 0]]))


def test_inverse_cdf_is_exact_at_the_edges():
    probs = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).expand(6, 5)
    uniform = torch.tensor([0.0, 0.2499, 0.25, 0.5, 0.9999, 1 - 2**-53], dtype=torch.float64)
    assert invert_cdf(probs, uniform).tolist() == [1, 1, 3, 3, 3, 3]


def test_residual_is_the_surplus_of_the_target():
    target, draft = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.3, 0.5]])
    assert torch.allclose(residual_probs(target, draft), torch.tensor([[0.3, 0.0, 0.0]]))
    assert torch.equal(residual_probs(target, target), target)


def test_slicing_changes_nothing(monkeypatch):
    logits = torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0))
    uniform = torch.rand(3, 5, generator=torch.Generator().manual_seed(1)).double()
    sampler = Sampler(0.8, 4, 0.9)
    whole = sampler.draw(logits, uniform), sampler.prob_of(logits, torch.ones(3, 5, dtype=torch.long))
    monkeypatch.setattr(sampling, "CHUNK", 22)
    sliced = sampler.draw(logits, uniform), sampler.prob_of(logits, torch.ones(3, 5, dtype=torch.long))
    assert torch.equal(whole[0][0], sliced[0][0])
    assert torch.equal(whole[0][1], sliced[0][1])
    assert torch.equal(whole[1], sliced[1])


@pytest.fixture
def state(golden_model):
    state = idle_state(2, 96, 32, golden_model)
    state.begin([[1, 2], [3]], 60)
    return state


def streams_of(seed: int, names: list[str], model) -> SampleStreams:
    streams = SampleStreams.empty(seed, len(names), model.device)
    streams.enter(torch.arange(len(names)), names)
    return streams


def test_streams_are_uniform_and_independent(golden_model, state):
    """10,000 and more numbers: means and correlations within five standard errors, all distinct, all in [0, 1)."""
    streams = streams_of(0, ["a", "b"], golden_model)
    rows = []
    for step in range(160):
        state.step_B[:] = step
        rows.append(torch.cat([streams.draft(state), streams.accept(state, state.positions_BL, None)], 1))
    numbers = torch.stack(rows)  # steps, samples, purposes x positions
    flat = numbers.flatten()
    assert (flat >= 0).all() and (flat < 1).all()
    assert flat.unique().numel() == flat.numel()
    assert abs(float(flat.mean()) - 0.5) < 5 * (1 / 12 / flat.numel()) ** 0.5
    assert abs(float(flat.var()) - 1 / 12) < 5 * (1 / 180 / flat.numel()) ** 0.5
    histogram = flat.histc(20, 0, 1)
    assert float(((histogram - flat.numel() / 20) ** 2 / (flat.numel() / 20)).sum()) < 50  # 19 degrees of freedom
    shifted = [(numbers[1:], numbers[:-1]), (numbers[:, :, 1:], numbers[:, :, :-1]), (numbers[:, 0], numbers[:, 1])]
    for one, other in shifted:
        correlation = float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])
        assert abs(correlation) < 5 / one.numel() ** 0.5


def test_streams_depend_on_seed_and_sample_alone(golden_model, state):
    def numbers(seed, names):
        return streams_of(seed, names, golden_model).draft(state)

    assert torch.equal(numbers(0, ["a", "b"])[1], streams_of(0, ["b", "b"], golden_model).draft(state)[1])
    assert not torch.equal(numbers(0, ["a", "b"]), numbers(1, ["a", "b"]))
    assert stream_key(0, "a") != stream_key(0, "b")
    assert stream_key(1, "1/a") != stream_key(11, "/a")


def test_leading_count():
    flags = torch.tensor([[True, True, False, True], [False, True, True, True], [True, True, True, True]])
    assert leading_count(flags).tolist() == [2, 0, 4]
