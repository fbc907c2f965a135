"""Recorded runs of the published code: their settings as ours, and their random numbers in their order."""

from __future__ import annotations

import json

import torch

from s2d2cli.decode import Decoder
from s2d2cli.decode.rng import SampleStreams
from s2d2cli.decode.routers import MinSpan, Never
from s2d2cli.decode.unmask import LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.decode.verifiers import SelfVerifier
from tests.conftest import GOLDEN, make_decoder

CASES = GOLDEN / "sdar"
CONTEXTS = {
    (False, False): "block",
    (True, True): "causal",
    (True, False): "causal_cache",
    (False, True): "causal_draft",
}


def load_case(name: str) -> dict:
    return json.loads((CASES / f"{name}.json").read_text())


def available_cases() -> list[str]:
    """Names of the cases whose settings exist here."""
    return [path.stem for path in sorted(CASES.glob("*.json")) if supported(json.loads(path.read_text())["args"])]


def supported(args: dict) -> bool:
    return (
        args["remasking_strategy"] != "entropy_bounded"
        and args.get("do_verify_policy", "mask_span_length") == "mask_span_length"
        and not args.get("legacy_ssd_span_strategy", False)
        and args.get("allow_resample", True)
        and args.get("ssd_ratio_tempering_factor", 1.0) == 1.0
        and args.get("ssd_ratio_threshold", -1.0) < 0
        and not args.get("always_check_high_confidence", False)
    )


def case_decoder(case: dict, commit: str) -> Decoder:
    """The published settings. `acceptance=published` is the compatibility setting for acceptance by ratio under greedy
    drafts; the published code also pays for verifications that cannot change anything."""
    args = case["args"]
    speculative = case["function"] == "ssd_policy"
    sampled = args["do_sample"] and args["temperature"] > 0
    unmask = {
        "sequential": Sequential(),
        "low_confidence_static": LowConfidenceStatic(),
        "low_confidence_dynamic": LowConfidenceDynamic(args["confidence_threshold"]),
    }[args["remasking_strategy"]]
    return make_decoder(
        router=MinSpan(args["min_ssd_span_length"]) if speculative else Never(),
        unmask=unmask,
        verifier=SelfVerifier("published", args["temperature"], skip_redundant=False),
        block_length=args["block_length"],
        denoising_steps=args["denoising_steps"],
        max_new_tokens=num_new_tokens(case),
        temperature=args["temperature"] if sampled else 0.0,
        top_k=args["top_k"],
        top_p=args["top_p"],
        context=CONTEXTS[args.get("cache_ver", False), args.get("draft_ver", False)],
        commit=commit,
    )


def num_new_tokens(case: dict) -> int:
    """The published length is rounded up to whole blocks; a run that stopped early is asked for what it was asked."""
    args = case["args"]
    if args["stopping_criteria_idx"]:
        return args["gen_length"]
    return len(case["output_ids"]) - len(case["prompt_ids"])


class ReplayUniforms:
    """One row gets its recorded numbers in recorded order, and any other request of it fails; the rest are streams."""

    def __init__(self, recorded: list[dict], row: int, others: SampleStreams) -> None:
        self.recorded, self.row, self.others = iter(recorded), row, others

    def take(self, kind: str, count: int) -> torch.Tensor:
        request = next(self.recorded)
        assert (request["kind"], request["n"]) == (kind, count)
        return torch.tensor(request["values"], dtype=torch.float64)

    def draft(self, state):
        uniform_BL = self.others.draft(state)
        if state.active_B[self.row]:
            uniform_BL[self.row] = self.take("draft", state.block_length)
        return uniform_BL

    def accept(self, state, positions_BS, wanted_BS):
        uniform_BS = self.others.accept(state, positions_BS, wanted_BS)
        count = int(wanted_BS[self.row].sum())
        if count:
            uniform_BS[self.row, :count] = self.take("accept", count)
        return uniform_BS

    def residual(self, state, position_B, wanted_B):
        uniform_B = self.others.residual(state, position_B, wanted_B)
        if wanted_B[self.row]:
            uniform_B[self.row] = self.take("residual", 1)[0]
        return uniform_B

    def exhausted(self) -> bool:
        return next(self.recorded, None) is None
