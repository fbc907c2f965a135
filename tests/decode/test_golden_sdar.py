"""The published S2D2 code's recorded runs on a small SDAR checkpoint, replayed with their own random numbers."""

from __future__ import annotations

import copy
import csv
import json

import numpy as np
import pytest
import torch

from s2d2cli.decode import Generation, Request
from s2d2cli.decode.rng import SampleStreams
from s2d2cli.decode.routers import ScoreThreshold
from s2d2cli.decode.unmask import LowConfidenceDynamic
from s2d2cli.decode.verifiers import SelfVerifier
from tests import reference
from tests.conftest import GOLDEN, load_golden, make_decoder
from tests.decode.replay import NAMES, ReplayUniforms, case_decoder, load_case, with_savings


def expected_tokens(case: dict) -> list[int]:
    """New ids up to and including the stop token. Published runs drop it, or (untrimmed) go on behind it in masks."""
    new = case["output_ids"][len(case["prompt_ids"]) :]
    stop = case["args"]["stopping_criteria_idx"] or []
    found = next((place for place, token in enumerate(new) if token in stop), None)
    return new if found is None else new[: found + 1]


def run_case(model, case: dict, decoder, prompts: list[list[int]], row: int) -> tuple[Generation, bool]:
    """Decode `prompts`, of which number `row` is the case's; (its generation, were all its recorded numbers used)."""
    stop = case["args"]["stopping_criteria_idx"] or ()
    model = copy.copy(model)
    model.stop_ids = tuple(stop)
    model.never_offered = []  # the published code offers the mask token, at some 1e-4 here: enough to shift a draw
    requests = [Request(f"{case['name']}/{number}", prompt) for number, prompt in enumerate(prompts)]
    streams = SampleStreams.empty(0, len(requests), model.device)
    uniforms = ReplayUniforms(case["uniforms"], row, streams)
    result = decoder.generate(model, requests, uniforms)
    return result.generations[row], uniforms.exhausted()


def check(case: dict, generation: Generation) -> None:
    expected = expected_tokens(case)
    stop = case["args"]["stopping_criteria_idx"] or []
    if stop and expected[-1] not in stop:  # the published run dropped its stop token
        assert generation.token_ids[-1] in stop
        assert generation.token_ids[:-1] == expected
    else:
        assert generation.token_ids == expected


def published_order(case: dict, num_new: int) -> list[set[tuple[int, str]]]:
    """Each step's (position, source) from the published markers, as far as the generation reaches."""
    end = len(case["prompt_ids"]) + num_new
    speculative = case["function"] == "ssd_policy"
    steps = []
    for events in case["decoding_order"]:
        decoded = {decode_marker(event, speculative) for event in events if event != "|"}
        steps.append({(position, source) for position, source in decoded if position < end})
    return [step for step in steps if step]


def decode_marker(marker: float, speculative: bool) -> tuple[int, str]:
    """Integers are accepted tokens (in plain decoding: revealed ones), .5 resampled, .2 kept by ratio; negative
    integers are revealed by the fallback, negative .4 kept by confidence."""
    position, part = int(abs(marker)), round(abs(marker) % 1, 1)
    if marker < 0:
        return position, "high_confidence" if part == 0.4 else "unmasked"
    return position, {0.5: "resampled", 0.2: "threshold"}.get(part, "accepted" if speculative else "unmasked")


def decided_order(generation: Generation, prompt_len: int) -> list[set[tuple[int, str]]]:
    steps: dict[int, set[tuple[int, str]]] = {}
    for offset, (step, source) in enumerate(zip(generation.reveal_steps, generation.sources, strict=True)):
        steps.setdefault(step, set()).add((prompt_len + offset, source))
    return [steps[step] for step in sorted(steps)]


def check_order(case: dict, generation: Generation) -> None:
    if case["name"] != "gen_entropy_L8":  # the published fault makes all entropies equal, so its order is left to right
        assert decided_order(generation, len(case["prompt_ids"])) == published_order(case, len(generation.token_ids))


# its tokens come from the published fault in the entropy (see EntropyBounded); its right answer is tested below
FAULTY = "gen_entropy_L4_big"
REPLAYED = [name for name in NAMES if name != FAULTY]


@pytest.mark.parametrize("commit", ["separate", "pending"])
@pytest.mark.parametrize("name", REPLAYED)
def test_golden_alone(golden_model, name, commit):
    case = load_case(name)
    generation, exhausted = run_case(golden_model, case, case_decoder(case, commit), [case["prompt_ids"]], 0)
    check(case, generation)
    forwards = sum(generation.forwards.values())
    check_order(case, generation)
    if commit == "separate":
        assert forwards == case["total_forward_steps"]
        assert exhausted
    else:
        assert generation.forwards["commit"] == 0
        assert forwards < case["total_forward_steps"]


@pytest.mark.parametrize("commit", ["separate", "pending"])
@pytest.mark.parametrize("name", REPLAYED)
def test_golden_in_a_ragged_batch(golden_model, name, commit):
    """Neighbours of other lengths change neither tokens nor the forwards that the row takes part in."""
    case = load_case(name)
    prompt = case["prompt_ids"]
    neighbours = [prompt[:1] * 3 + prompt, prompt, prompt[::-1][: max(1, len(prompt) - 2)]]
    generation, _ = run_case(golden_model, case, case_decoder(case, commit), neighbours, 1)
    check(case, generation)
    check_order(case, generation)
    if commit == "separate":
        assert sum(generation.forwards.values()) == case["total_forward_steps"]


SAVED = GOLDEN / "forwards_saved.csv"


@pytest.mark.parametrize("name", REPLAYED)
def test_golden_with_every_saving(golden_model, name):
    """The same tokens from fewer forwards: none to commit, none that cannot reject, the next block ahead. How many were
    saved is listed in forwards_saved.csv, which `python -m tests.decode.test_golden_sdar` writes anew."""
    case = load_case(name)
    generation, exhausted = with_every_saving(golden_model, case)
    check(case, generation)
    check_order(case, generation)
    assert exhausted
    with SAVED.open() as file:
        listed = {row["case"]: row for row in csv.DictReader(file)}
    assert listed[name] == saved_row(case, generation)


def with_every_saving(model, case: dict) -> tuple[Generation, bool]:
    return run_case(model, case, with_savings(case_decoder(case, "pending")), [case["prompt_ids"]], 0)


def saved_row(case: dict, generation: Generation) -> dict[str, str]:
    published, ours = case["total_forward_steps"], sum(generation.forwards.values())
    return {"case": case["name"], "published": str(published), "ours": str(ours), "saved": str(published - ours)}


class Stream(ReplayUniforms):
    """The numbers of forward_counts.json: those of a numpy generator in the order of the requests."""

    def __init__(self, seed: int, others: SampleStreams) -> None:
        super().__init__([], 0, others)
        self.generator = np.random.RandomState(seed)

    def take(self, kind: str, count: int) -> torch.Tensor:
        return torch.tensor(self.generator.random_sample(count).astype(np.float32), dtype=torch.float64)


@pytest.mark.parametrize(("cost", "length", "published", "most"), [(1.0, 4, 1018, 0.75), (0.0, 16, 744, 0.90)])
def test_golden_counts_of_forwards(golden_model, cost, length, published, most):
    """The published runs of forward_counts.json token for token, with all savings in so many forwards at most."""
    plain = make_decoder(
        router=ScoreThreshold(cost=cost, tau_score=0.0),
        unmask=LowConfidenceDynamic(0.85),
        verifier=SelfVerifier("published", skip_redundant=False),
        **dict(context="causal", commit="separate", block_length=length, max_new_tokens=1036 // 4),
    )
    model = copy.copy(golden_model)
    model.never_offered = []
    found = []
    for decoder in (plain, with_savings(plain)):
        uniforms = [Stream(k, SampleStreams.empty(0, 1, model.device)) for k in range(4)]
        prompts = json.loads((GOLDEN / "forward_counts.json").read_text())["prompts"]
        runs = [decoder.generate(model, [Request("x", p)], u) for p, u in zip(prompts, uniforms, strict=True)]
        tokens = [run.generations[0].token_ids for run in runs]
        found.append((tokens, sum(sum(run.forwards.values()) for run in runs)))
    (theirs, spent), (ours, needed) = found
    assert ours == theirs and spent == published
    assert needed <= most * published


@pytest.mark.parametrize("name", [FAULTY, "gen_entropy_L8"])
def test_golden_entropy_bounded_by_the_right_rule(golden_model, name):
    """Per-token entropies over the vocabulary, recomputed without cache at every step."""
    case = load_case(name)
    args, prompt = case["args"], case["prompt_ids"]
    decoder = case_decoder(case, "pending")
    for whole_sum in (False, True):
        decoder.unmask.whole_sum = whole_sum
        generation = decoder.generate(golden_model, [Request(name, prompt)]).generations[0]
        expected = reference.entropy_bounded(
            golden_model, prompt, len(generation.token_ids), args["block_length"], args["eb_threshold"], whole_sum
        )
        steps = [{place for place, _ in step} for step in decided_order(generation, len(prompt))]
        assert (generation.token_ids, steps) == expected


def test_all_golden_cases_are_here():
    assert len(NAMES) == 49


def list_savings() -> None:
    """Write forwards_saved.csv."""
    model = load_golden("sdar")
    with SAVED.open("w", newline="") as file:
        out = csv.DictWriter(file, ["case", "published", "ours", "saved"], lineterminator="\n")
        out.writeheader()
        for case in map(load_case, REPLAYED):
            out.writerow(saved_row(case, with_every_saving(model, case)[0]))


if __name__ == "__main__":
    list_savings()
