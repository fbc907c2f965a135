"""SimSD: its mask entry by entry, the decoder against a slow one, what leaks, and what aligned positions are worth."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from s2d2cli.config import compose
from s2d2cli.decode import Request, build_decoder
from s2d2cli.decode.routers import Always
from s2d2cli.decode.simsd import SimSD
from s2d2cli.decode.unmask import LowConfidenceStatic
from s2d2cli.effect import without_effect
from s2d2cli.errors import ConfigError
from s2d2cli.lossless import lossless
from s2d2cli.models import load_model
from s2d2cli.models.plan import ForwardPlan, Kind
from s2d2cli.runs.approximate import approximations
from s2d2cli.runs.labels import config_of, labels, settings
from tests.conftest import make_decoder
from tests.decode.test_draft_target import Watch, chi_square
from tests.decode.two_models import REQUESTS, Drafted, pair, sees, slow_check, slow_draft

NEW = 24


@pytest.fixture(scope="module", params=["sdar", "llada2"])
def target(request):
    return pair(request.param)


@pytest.fixture(scope="module")
def sdar():
    return pair("sdar")


@pytest.fixture(scope="module")
def tiny():
    """The shipped pair, and some word problems."""
    config = compose(["decoder=simsd", "draft_model=tiny-draft"])
    config.task.prepare(allow_code_execution=False)
    model, samples = load_model(config), config.task.samples(10)
    return model, samples, [Request(s.id, model.encode(model.chat_prompt(s.messages))) for s in samples]


def decoder_of(verifier: SimSD | None = None, length: int = 8, **settings):
    shared = dict(block_length=length, max_new_tokens=NEW)
    return make_decoder(Always(), LowConfidenceStatic(), verifier or SimSD(), **shared | settings)


class Seen:
    """Every forward of four quadrants beside what was known when it was made."""

    def __init__(self, model) -> None:
        self.model, self.plans, self.steps = copy.copy(model), [], []
        self.model.forward = lambda plan, cache: self.keep(plan) or model.forward(plan, cache)

    def keep(self, plan: ForwardPlan) -> None:
        if plan.kind == Kind.VERIFY:
            self.plans.append(plan)

    def observe(self, session, draft, verdict, commit) -> None:
        if bool(verdict.verified_B.any()):
            state = session.state
            scratch = session.layout.scratch
            self.steps.append((state.start_B.tolist(), scratch, draft.masked_BL, draft.time_BL, verdict.verified_B))


@pytest.mark.parametrize("mask", ["published", "exact"])
@pytest.mark.parametrize(("length", "steps"), [(4, 4), (8, 3), (8, 8)])
@pytest.mark.parametrize("batch", [REQUESTS[2:], REQUESTS], ids=["batch 1", "ragged 3"])
def test_simsd_mask_is_its_formula_entry_by_entry(sdar, mask, length, steps, batch):
    """Several tokens revealed in one step have the same time; masks stand at the positions of their tokens."""
    seen = Seen(sdar)
    decoder_of(SimSD(mask, "time"), length, denoising_steps=steps).generate(seen.model, batch, observer=seen)
    assert len(seen.plans) == len(seen.steps) > 3
    ties = 0
    for plan, (starts, scratch, masked_BL, time_BL, verified_B) in zip(seen.plans, seen.steps, strict=True):
        for row in verified_B.nonzero()[:, 0].tolist():
            places = masked_BL[row].nonzero()[:, 0].tolist()
            drafted = {starts[row] + i: Drafted(0, int(time_BL[row, i]), 0.0) for i in places}
            ties += len(places) - len({one.time for one in drafted.values()})
            at = rows_of(plan, row, scratch, drafted)
            assert {p for kind, p in at.values() if kind == "M"} == set(drafted)
            for q, one in at.items():
                expected = {
                    slot
                    for slot in range(plan.visible_BQT.shape[2])
                    if (other := column(slot, plan, row, scratch, drafted, starts[row] + length)) is not None
                    and sees(one, other, starts[row], length, drafted, mask == "exact")
                }
                assert set(plan.visible_BQT[row, q].nonzero()[:, 0].tolist()) == expected
    assert (ties > 0) == (steps < length)


def rows_of(plan: ForwardPlan, row: int, scratch: int, drafted: dict) -> dict[int, tuple[str, int]]:
    """The real rows of a sample: kind and position."""
    found = {}
    for q, slot in enumerate(plan.slots_BQ[row].tolist()):
        position = int(plan.positions_BQ[row, q])
        if slot:
            found[q] = ("M" if slot < scratch else "D" if position in drafted else "L", position)
    return found


def column(slot: int, plan: ForwardPlan, row: int, scratch: int, drafted: dict, end: int) -> tuple[str, int] | None:
    """The kind and position of what lies in a cache slot; None where that is nothing of this block or before."""
    if slot >= scratch:
        position = slot - scratch
        return None if position >= end else ("D" if position in drafted else "L", position)
    at = (plan.slots_BQ[row] == slot).nonzero()[:, 0].tolist()
    return ("M", int(plan.positions_BQ[row, at[0]])) if slot and at else None


def slow_simsd(model, prompt: list[int], length: int, steps: int, verifier: SimSD) -> list[int]:
    """Greedy, one sequence, no cache, position by position."""
    tokens, end, mask = list(prompt), len(prompt) + NEW, model.mask_id
    while len(tokens) < end or mask in tokens:
        if mask not in tokens:
            tokens += [mask] * (length - len(tokens) % length)
        start = len(tokens) - length
        left = [p for p in range(start, len(tokens)) if tokens[p] == mask]
        if len(left) < verifier.min_drafts:
            (first, *_) = slow_draft(model, tokens, start, length, length, "static", False).items()
            tokens[first[0]] = first[1].token
            continue
        drafted = slow_draft(model.draft_model, tokens, start, length, steps, "static", False)
        logits = slow_check(model, tokens, drafted, length, verifier.mask == "exact")
        for p in sorted(left, key=lambda p: (drafted[p].time, p) if verifier.order == "time" else p):
            tokens[p] = int(logits[p].argmax())
            if tokens[p] != drafted[p].token:
                break
    return tokens[len(prompt) : end]


VARIANTS = [SimSD(), SimSD("exact"), SimSD(order="time"), SimSD("exact", "time", 3), SimSD(min_drafts=1)]


@pytest.mark.parametrize("verifier", VARIANTS, ids=lambda v: f"{v.mask} {v.order} {v.min_drafts}")
@pytest.mark.parametrize(("length", "steps"), [(4, 4), (8, 3)])
def test_simsd_is_the_slow_one(target, verifier, length, steps):
    """Cached = uncached and batch = singles, for both masks, both orders and what is left to the target."""
    stubborn = copy.copy(target)
    stubborn.stop_ids = ()
    decoder = decoder_of(verifier, length, denoising_steps=steps)
    found = decoder.generate(stubborn, REQUESTS).generations
    assert [g.token_ids for g in found] == [
        slow_simsd(stubborn, r.prompt_ids, length, steps, verifier) for r in REQUESTS
    ]
    assert found == [decoder.generate(stubborn, [request]).generations[0] for request in REQUESTS]
    assert any(g.accepted for g in found) and any("resampled" in g.sources for g in found)


@pytest.mark.parametrize("order", ["position", "time"])
def test_simsd_rows_are_refilled_under_sampling(sdar, order):
    decoder = decoder_of(SimSD(order=order), temperature=1.0)
    requests = [Request(r.sample_id + again, r.prompt_ids) for again in ("", " again") for r in REQUESTS]
    alone = {r.sample_id: decoder.generate(sdar, [r]).generations[0] for r in requests}
    assert {g.sample_id: g for g in decoder.session(sdar, requests, 2).results()} == alone


def test_simsd_in_order_of_time_leaves_holes(sdar):
    """What is accepted behind a rejected position stays where it is, and is never drafted again."""
    watch = Watch()
    decoder_of(SimSD(order="time")).generate(sdar, REQUESTS[2:], observer=watch)
    holes = [tokens for tokens, *_ in watch.seen if sdar.mask_id in tokens[: last_decided(tokens, sdar.mask_id)]]
    assert holes
    prefix = Watch()
    decoder_of(SimSD()).generate(sdar, REQUESTS[2:], observer=prefix)
    assert not [tokens for tokens, *_ in prefix.seen if sdar.mask_id in tokens[: last_decided(tokens, sdar.mask_id)]]


def last_decided(tokens: list[int], mask: int) -> int:
    return max(place for place, token in enumerate(tokens) if token != mask)


def test_simsd_that_leaves_everything_to_the_target_is_static_decoding(target):
    found = decoder_of(SimSD(min_drafts=9)).generate(target, REQUESTS).generations
    plain = make_decoder(unmask=LowConfidenceStatic(), block_length=8, max_new_tokens=NEW).generate(target, REQUESTS)
    assert [(g.token_ids, g.reveal_order) for g in found] == [(g.token_ids, g.reveal_order) for g in plain.generations]
    assert all(g.verified == 0 and g.forwards["draft"] == g.drafted_steps for g in found)


def test_simsd_of_one_position_samples_exactly(target):
    """At block length one nothing can leak, and min(1, q/p) with the residual keeps the target's distribution."""
    settings = dict(max_new_tokens=3, temperature=1.0, top_k=3)
    assert chi_square(target, decoder_of(SimSD(min_drafts=1), 1, **settings), 2000) < 64


def changed(model, plan: ForwardPlan, logits_BRV: torch.Tensor, cache, place: int) -> list[float]:
    """How far each mask's logits move when the drafted token at the place-th mask is another one."""
    position = plan.positions_BQ[0, -plan.read_BR.shape[1] + place]
    (row,) = ((plan.positions_BQ[0] == position) & (plan.tokens_BQ[0] != model.mask_id)).nonzero()[:, 0].tolist()
    tokens_BQ = plan.tokens_BQ.clone()
    tokens_BQ[0, row] = (tokens_BQ[0, row] + 1) % model.mask_id
    moved_BRV = model.forward(replace(plan, tokens_BQ=tokens_BQ), cache) - logits_BRV
    return moved_BRV[0].nan_to_num().abs().amax(-1).tolist()  # -inf of the mask token less itself


@pytest.mark.parametrize("mask", ["published", "exact"])
@pytest.mark.parametrize("name", ["golden", "tiny"])
def test_simsd_leaks_a_drafted_token_into_its_own_slot(request, name, mask):
    """decoders.md, finding 1. Published: everywhere but at the token revealed last. Exact mask: nowhere."""
    model, batch = (
        (request.getfixturevalue("sdar"), REQUESTS) if name == "golden" else request.getfixturevalue("tiny")[::2]
    )
    seen = Seen(model)
    seen.model.forward = lambda plan, cache: held(model, plan, cache, seen)
    decoder_of(SimSD(mask)).generate(seen.model, batch[:1], observer=seen)
    assert seen.steps
    for (plan, moved), (_, _, masked_BL, time_BL, _) in zip(seen.plans, seen.steps, strict=True):
        times = time_BL[0][masked_BL[0]].tolist()
        for place, rows in enumerate(moved):
            leaks = mask == "published" and times[place] < max(times)
            assert (rows[place] > 1e-5) == leaks, (plan.positions_BQ, times)
            if mask == "exact":  # it reaches just the slots of what was revealed after it
                assert [row > 1e-6 for row in rows] == [time > times[place] for time in times]


def held(model, plan: ForwardPlan, cache, seen: Seen) -> torch.Tensor:
    logits_BRV = model.forward(plan, cache)
    if plan.kind == Kind.VERIFY:
        num = plan.read_BR.shape[1]
        moved = [changed(model, plan, logits_BRV, cache, place) for place in range(num)]
        seen.plans.append((plan, moved))
        model.forward(plan, cache)  # leaves the cache as it was
    return logits_BRV


def test_simsd_without_aligned_positions_collapses(tiny):
    """Its ablation: masks that stand behind the drafted tokens instead of at their positions."""
    model, samples, requests = tiny
    words = ["decoder=simsd", "draft_model=tiny-draft", "decode.block_length=8", "decode.max_new_tokens=100"]
    config = compose(words)

    def behind(plan: ForwardPlan, cache) -> torch.Tensor:
        if plan.kind == Kind.VERIFY:
            masks_BQ = torch.arange(plan.tokens_BQ.shape[1]) >= plan.tokens_BQ.shape[1] - plan.read_BR.shape[1]
            plan = replace(plan, positions_BQ=plan.positions_BQ + 8 * masks_BQ)
        return model.forward(plan, cache)

    apart = copy.copy(model)
    apart.forward = behind
    right, accepted = {}, {}
    for name, one in (("aligned", model), ("behind", apart)):
        found = build_decoder(config).generate(one, requests).generations
        right[name] = sum(
            config.task.score(s, model.text(g.token_ids)).correct for s, g in zip(samples, found, strict=True)
        )
        accepted[name] = sum(g.accepted for g in found) / sum(g.verified for g in found)
    assert right["behind"] <= 1 and right["aligned"] >= right["behind"] + 3
    assert accepted["behind"] < 0.5 * accepted["aligned"]


def test_simsd_is_called_approximate():
    config = compose(["decoder=simsd", "draft_model=tiny"])
    assert lossless(config) is None and approximations(settings(config_of(config))) == {"verifier.kind": "simsd"}
    assert labels([config_of(config)]) == ["simsd block=16 verifier=simsd draft_model=tiny"]
    assert {"seed", "decode.top_k"} <= without_effect(config).keys()  # greedy means greedy
    warm = compose(["decoder=simsd", "draft_model=tiny", "decode.temperature=1"])
    assert not {"seed", "unmask", "draft_model"} & without_effect(warm).keys()


def test_simsd_refuses_what_it_cannot_do():
    two = ["decoder=simsd", "draft_model=tiny"]
    for words, sentence in (
        (["decoder=simsd"], "verifier=simsd needs a draft model, and none is given"),
        ([*two, "verifier.mask=none"], "verifier.mask must be one of published, exact, got 'none'"),
        ([*two, "verifier.order=size"], "verifier.order must be one of position, time, got 'size'"),
        ([*two, "verifier.min_drafts=0"], "verifier.min_drafts must be at least 1, got 0"),
        ([*two, "decode.context=causal"], "verifier=simsd needs decode.context=block, got causal"),
        ([*two, "router=min_span"], "verifier=simsd needs router=always, got min_span"),
        ([*two, "model=fast-dllm-v2-7b"], "model.family=fast_dllm_v2 has it one place further left"),
    ):
        with pytest.raises(ConfigError) as caught:
            compose(words)
        assert sentence in str(caught.value)
