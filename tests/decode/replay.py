"""Recorded runs of the published code: their settings as ours, and their random numbers in their order."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from s2d2cli.decode import Decoder
from s2d2cli.decode.routers import Always, MinSpan, Never
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
    """Hands out each row's recorded numbers in recorded order and complains about any other request."""

    def __init__(self, recorded: list[list[dict]]) -> None:
        self.rows = [iter(uniforms) for uniforms in recorded]

    def take(self, row: int, kind: str, count: int) -> list[float]:
        request = next(self.rows[row])
        assert (request["kind"], request["n"]) == (kind, count)
        return request["values"]

    def draft(self, state):
        out_BL = torch.zeros(state.masked_BL.shape, dtype=torch.float64)
        for row in state.active_B.nonzero()[:, 0].tolist():
            out_BL[row] = torch.tensor(self.take(row, "draft", state.block_length))
        return out_BL

    def accept(self, state, positions_BS, wanted_BS):
        out_BS = torch.zeros(wanted_BS.shape, dtype=torch.float64)
        for row, count in enumerate(wanted_BS.sum(1).tolist()):
            if count:
                out_BS[row, :count] = torch.tensor(self.take(row, "accept", count))
        return out_BS

    def residual(self, state, position_B, wanted_B):
        out_B = torch.zeros(wanted_B.shape, dtype=torch.float64)
        for row in wanted_B.nonzero()[:, 0].tolist():
            out_B[row] = self.take(row, "residual", 1)[0]
        return out_B

    def exhausted(self) -> bool:
        return all(next(row, None) is None for row in self.rows)
