"""Recorded runs of the published code: their settings as ours, and their random numbers in their order."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace

import torch

from s2d2cli.decode import Decoder
from s2d2cli.decode.bandit import ContextualUCB
from s2d2cli.decode.estimators import Confidence, Entropy, EntropyThreshold, LinearMargin, Margin, Renyi2
from s2d2cli.decode.rng import SampleStreams
from s2d2cli.decode.routers import Hysteresis, MinSpan, Never, ScoreThreshold
from s2d2cli.decode.unmask import EntropyBounded, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.decode.verifiers import SelfVerifier, redundant
from tests.conftest import GOLDEN, make_decoder

CASES = GOLDEN / "sdar"
CONTEXTS = {
    (False, False): "block",
    (True, True): "causal",
    (True, False): "causal_cache",
    (False, True): "causal_draft",
}
NAMES = [path.stem for path in sorted(CASES.glob("*.json"))]


def load_case(name: str) -> dict:
    return json.loads((CASES / f"{name}.json").read_text())


def case_decoder(case: dict, commit: str) -> Decoder:
    """The published settings as ours."""
    args = case["args"]
    speculative = case["function"] == "ssd_policy"
    sampled = args["do_sample"] and args["temperature"] > 0
    return make_decoder(
        router=router_of(args) if speculative else Never(),
        unmask=unmask_of(args),
        estimator=estimator_of(args) if speculative else None,
        verifier=verifier_of(args) if speculative else None,
        block_length=args["block_length"],
        denoising_steps=args["denoising_steps"],
        max_new_tokens=num_new_tokens(case),
        temperature=args["temperature"] if sampled else 0.0,
        top_k=args["top_k"],
        top_p=args["top_p"],
        context=CONTEXTS[args.get("cache_ver", False), args.get("draft_ver", False)],
        commit=commit,
    )


def unmask_of(args: dict):
    return {
        "sequential": Sequential(),
        "low_confidence_static": LowConfidenceStatic(),
        "low_confidence_dynamic": LowConfidenceDynamic(args["confidence_threshold"]),
        "entropy_bounded": EntropyBounded(args["eb_threshold"] or 0.0, whole_sum=True),
    }[args["remasking_strategy"]]


def verifier_of(args: dict) -> SelfVerifier:
    """`acceptance=published` is the compatibility setting: acceptance by ratio under greedy drafts, and a rejected
    token that is committed when nothing is resampled. The published code also pays for verifications that cannot
    change anything."""
    threshold = args["ssd_ratio_threshold"]
    return SelfVerifier(
        acceptance="published",
        published_temperature=args["temperature"],
        skip_redundant=False,
        resample=args["allow_resample"],
        tempering=args["ssd_ratio_tempering_factor"],
        ratio_threshold=None if threshold < 0 else threshold,
        ratio_spans="all" if args["ssd_threshold_all_spans"] else "first",
        keep_confident=args["always_check_high_confidence"],
    )


def router_of(args: dict):
    line = args["confidence_threshold"]
    scored = dict(confidence=line, score=args["do_verify_score_type"].split("_")[1], cost=args["score_penalty_coef"])
    on, off = args["hysteresis_threshold_on"], args["hysteresis_threshold_off"]
    return {
        "mask_span_length": MinSpan(line, args["min_ssd_span_length"], args["legacy_ssd_span_strategy"]),
        "score_threshold": ScoreThreshold(**scored, tau_score=args["do_verify_score_threshold"]),
        "score_hysteresis": Hysteresis(**scored, tau_on=on, tau_off=off),
        "contextual_bandit_ucb": ContextualUCB(
            beta=args["ucb_beta"],
            span_bins=args["ucb_span_length_bins"],
            progress_bins=args["ucb_block_progress_bins"],
            entropy_bins=args["ucb_entropy_bins"],
            entropy_of=args["ucb_entropy_source"],
        ),
    }[args["do_verify_policy"]]


def estimator_of(args: dict):
    return {
        "hard_margin_threshold": Margin(args["ssd_confidence_margin_threshold"]),
        "hard_entropy_threshold": EntropyThreshold(args["ssd_entropy_threshold"]),
        "soft_confidence_power": Confidence(args["ssd_confidence_power"]),
        "soft_clipped_linear_margin": LinearMargin(args["ssd_confidence_margin_coef"]),
        "soft_entropy_negexp": Entropy(args["ssd_entropy_temperature"]),
        "soft_renyi_2_entropy": Renyi2(),
    }[args["token_acceptance_estimator"]]


def num_new_tokens(case: dict) -> int:
    """The published length is rounded up to whole blocks; a run that stopped early is asked for what it was asked."""
    args = case["args"]
    if args["stopping_criteria_idx"]:
        return args["gen_length"]
    return len(case["output_ids"]) - len(case["prompt_ids"])


@dataclass
class Saving(SelfVerifier):
    """No verification of a draft that nothing could reject, although the published code drew a number for it."""

    def verify(self, draft, session, verify_B):
        session.uniforms.skip(verify_B & redundant(draft, session))
        return super().verify(draft, session, verify_B)


def with_savings(decoder: Decoder) -> Decoder:
    """The same decoder with all that spends fewer forwards for the same tokens. A bandit is rewarded by forwards, so
    for it verifications that cannot change anything stay what they are."""
    settings = {field.name: getattr(decoder.verifier, field.name) for field in fields(SelfVerifier)}
    learns = isinstance(decoder.router, ContextualUCB)
    verifier = Saving(**{**settings, "skip_redundant": not learns, "ahead": True})
    return replace(decoder, verifier=verifier, settings=replace(decoder.settings, commit="pending"))


class ReplayUniforms:
    """One row gets its recorded numbers in recorded order, and any other request of it fails; the rest are streams."""

    def __init__(self, recorded: list[dict], row: int, others: SampleStreams) -> None:
        self.recorded, self.row, self.others = iter(recorded), row, others

    def take(self, kind: str, count: int) -> torch.Tensor:
        request = next(self.recorded)
        assert (request["kind"], request["n"]) == (kind, count)
        return torch.tensor(request["values"], dtype=torch.float64)

    def rows(self, index_R):
        """The batch shrinks; once the recorded row has left it, nothing is taken any more."""
        self.row = index_R.tolist().index(self.row) if self.row in index_R.tolist() else None
        self.others = self.others.rows(index_R)
        return self

    def enter(self, index_R, sample_ids):
        self.others.enter(index_R, sample_ids)

    def draft(self, state):
        uniform_BL = self.others.draft(state)
        if self.row is not None and state.active_B[self.row]:
            uniform_BL[self.row, state.sub_block_BL[self.row]] = self.take("draft", state.sub_block)
        return uniform_BL

    def accept(self, state, positions_BS, wanted_BS):
        uniform_BS = self.others.accept(state, positions_BS, wanted_BS)
        count = 0 if self.row is None else int(wanted_BS[self.row].sum())
        if count:
            uniform_BS[self.row, :count] = self.take("accept", count)
        return uniform_BS

    def residual(self, state, positions_BS, wanted_BS):
        uniform_BS = self.others.residual(state, positions_BS, wanted_BS)
        if self.row is not None and wanted_BS[self.row].any():
            uniform_BS[self.row, wanted_BS[self.row]] = self.take("residual", 1)
        return uniform_BS

    def skip(self, rows_B):
        """The published code drew a number for these rows' only draft, where nothing could be rejected."""
        if self.row is not None and rows_B[self.row]:
            self.take("accept", 1)

    def exhausted(self) -> bool:
        return next(self.recorded, None) is None
