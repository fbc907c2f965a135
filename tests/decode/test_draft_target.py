"""A draft model and the target's exact verifier: the target's tokens and distribution, whatever is drafted."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

import pytest
import torch

from s2d2cli.config import compose, record, run_id
from s2d2cli.decode import Request, StepLog
from s2d2cli.decode.draft_target import DraftTarget
from s2d2cli.decode.routers import Always
from s2d2cli.decode.unmask import EntropyBounded, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.errors import CheckpointError, ConfigError, DecodeError, PromptError
from s2d2cli.lossless import lossless
from s2d2cli.models import load_model, need_same_vocabulary
from s2d2cli.models.adapter import Vocabulary
from s2d2cli.restore import restore
from tests import reference
from tests.conftest import load_golden, make_decoder
from tests.decode.test_equivalence import exact_outcomes
from tests.decode.two_models import PROMPTS, REQUESTS, Drafted, pair, slow_draft

TINY = Path(__file__).parents[2] / "s2d2cli" / "assets" / "tiny"
RULES = {
    "sequential": Sequential(),
    "static": LowConfidenceStatic(),
    "dynamic": LowConfidenceDynamic(0.2),
    "entropy": EntropyBounded(0.5),
}
TARGETS = ["sdar", "llada2", "fast_dllm_v2"]


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    return pair(request.param)


@pytest.fixture(scope="module")
def sdar():
    return pair("sdar")


def decoder_of(rule: str = "sequential", length: int = 8, **settings):
    shared = dict(context="causal", block_length=length, max_new_tokens=30)
    return make_decoder(Always(), RULES[rule], DraftTarget(), **shared | settings)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("length", "steps"), [(1, 1), (4, 4), (8, 1), (8, 3), (16, 16)])
def test_draft_target_is_the_target_alone_when_greedy(target, rule, length, steps):
    """For a draft of each order, and however many of its tokens each forward reveals; batch = singles."""
    expected = [reference.autoregressive(target, prompt, 30) for prompt in PROMPTS]
    decoder = decoder_of(rule, length, denoising_steps=steps)
    found = decoder.generate(target, REQUESTS).generations
    assert [generation.token_ids for generation in found] == expected
    assert found == [decoder.generate(target, [request]).generations[0] for request in REQUESTS]
    assert length == 1 or any(generation.accepted for generation in found)


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}], ids=["greedy", "sampled"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_draft_target_rows_are_refilled_and_dropped(sdar, settings, width):
    """Whoever had the row before, and whoever shares the batch, does not matter."""
    stopping = copy.copy(sdar)
    decoder = decoder_of(**settings)
    stopping.stop_ids = (decoder.generate(sdar, REQUESTS).generations[0].token_ids[7],)
    requests = [Request(r.sample_id + again, r.prompt_ids) for again in ("", " again") for r in REQUESTS]
    alone = {r.sample_id: decoder.generate(stopping, [r]).generations[0] for r in requests}
    found = list(decoder.session(stopping, requests, width).results())
    assert {generation.sample_id: generation for generation in found} == alone
    assert len({len(generation.token_ids) for generation in found}) > 1


class Watch:
    """Each step's draft, as plain numbers per sample."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[int], int, dict[int, Drafted]]] = []

    def observe(self, session, draft, verdict, commit) -> None:
        state = session.state
        start, end = int(state.start_B[0]), int(state.block_end_B[0])
        drafted = {
            start + place: Drafted(int(draft.tokens_BL[0, place]), int(draft.time_BL[0, place]), float(prob))
            for place, prob in enumerate(draft.confidence_BL[0].tolist())
            if bool(draft.masked_BL[0, place])
        }
        self.seen.append((state.canvas_BT[0, :end].tolist(), start, drafted))


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("rule", ["sequential", "static"])
@pytest.mark.parametrize(("length", "steps", "context"), [(4, 4, "causal"), (8, 3, "causal"), (8, 8, "block")])
def test_draft_target_drafts_as_a_model_without_a_cache(family, rule, length, steps, context):
    """Tokens, order and probabilities of every draft, with what the cache keeps of accepted ones."""
    model = pair(family)
    for request in REQUESTS:
        watch = Watch()
        decoder_of(rule, length, denoising_steps=steps, context=context).generate(model, [request], observer=watch)
        assert len(watch.seen) > 3
        for tokens, start, drafted in watch.seen:
            expected = slow_draft(model.draft_model, tokens, start, length, steps, rule, context == "causal")
            assert {p: (d.token, d.time) for p, d in drafted.items()} == {
                p: (d.token, d.time) for p, d in expected.items()
            }
            assert all(drafted[p].prob == pytest.approx(expected[p].prob, abs=1e-4) for p in expected)


def chi_square(model, decoder, num_samples: int) -> float:
    """Of three tokens' outcomes under top-k 3 against the target's exact probabilities."""
    prompt = PROMPTS[2][:4]
    expected = exact_outcomes(model, prompt, 3, top_k=3)
    result = decoder.generate(model, [Request(str(number), prompt) for number in range(num_samples)])
    outcomes = Counter(tuple(generation.token_ids) for generation in result.generations)
    assert outcomes.keys() <= expected.keys()
    assert sum("resampled" in g.sources for g in result.generations) > num_samples / 20
    rare = [outcome for outcome, mass in expected.items() if mass * num_samples < 5]  # together one cell
    cells = [(mass, outcomes[outcome]) for outcome, mass in expected.items() if outcome not in rare]
    cells.append((sum(expected[outcome] for outcome in rare), sum(outcomes[outcome] for outcome in rare)))
    return sum((count - mass * num_samples) ** 2 / (mass * num_samples) for mass, count in cells)


@pytest.mark.parametrize(("rule", "steps"), [("sequential", 4), ("sequential", 2), ("sequential", 1), ("static", 1)])
def test_draft_target_keeps_the_targets_distribution(target, rule, steps):
    """At most 26 degrees of freedom stay below 64 with probability 1 - 4e-5; the seed is fixed."""
    decoder = decoder_of(rule, 4, denoising_steps=steps, max_new_tokens=3, temperature=1.0, top_k=3)
    assert chi_square(target, decoder, 2000) < 64


def test_draft_target_sampled_in_order_of_confidence_would_not(sdar):
    """Why that is refused: a token drawn with later ones in sight is judged as if it had not seen them."""
    order = (
        "decode.temperature above 0 use unmask=sequential or decode.denoising_steps=1, got unmask=low_confidence_static"
    )
    with pytest.raises(ConfigError, match=order):
        compose(["decoder=draft_target", "draft_model=tiny", "decode.temperature=1", "unmask=low_confidence_static"])
    decoder = decoder_of("static", 4, max_new_tokens=3, temperature=1.0, top_k=3)
    assert chi_square(sdar, decoder, 2000) > 200


def test_draft_target_counts_the_forwards_of_both(sdar):
    """One of the target for each step, and those of the draft model by themselves."""
    for steps in (8, 2):
        found = decoder_of(denoising_steps=steps).generate(sdar, REQUESTS[:1])
        (generation,) = found.generations
        forwards = generation.forwards
        assert forwards["verify"] == generation.verified == generation.drafted_steps
        assert (forwards["draft"], forwards["commit"], forwards["prefill"]) == (0, 0, 0)  # the prompt is no whole block
        assert generation.verified <= forwards["draft_model"] <= steps * generation.verified
        assert found.cost.seconds["draft_model"] > 0 and found.cost.seconds["draft"] == 0


def test_draft_target_with_itself_as_the_draft_model_accepts_most(sdar):
    own = copy.copy(sdar)
    own.draft_model = load_golden("sdar")
    ours, theirs = (decoder_of(max_new_tokens=60).generate(model, REQUESTS).generations for model in (own, sdar))
    assert [g.token_ids for g in ours] == [g.token_ids for g in theirs]
    assert sum(g.accepted for g in ours) > sum(g.accepted for g in theirs)
    assert sum(g.verified for g in ours) < sum(g.verified for g in theirs)


def test_draft_target_refuses_what_it_cannot_do():
    two = ["decoder=draft_target", "draft_model=tiny"]
    for words, sentence in (
        (
            ["decoder=draft_target"],
            "verifier=draft_target needs a draft model, and none is given; add draft_model=NAME",
        ),
        (
            ["draft_model=tiny"],
            "draft_model=tiny has no use under verifier=self; leave it out, or use decoder=draft_target",
        ),
        ([*two, "draft_model=null"], "needs a draft model"),
        (["decoder=draft_target", "draft_model=llada-8b"], "and llada-8b (model.family=llada) does not"),
        ([*two, "model=llada-8b"], "decode.context must be full for model.family=llada"),
        (
            [*two, "model.family=d2f_llada"],
            "counted from the sequence's beginning, and tiny (model.family=d2f_llada) does",
        ),
        (["decoder=draft_target", "draft_model=tyni"], "no draft_model 'tyni': give a folder, a hub id owner/name"),
        (["decoder=draft_target", "draft_model=./no/folder"], "no folder './no/folder'"),
        ([*two, "router=never"], "verifier=draft_target needs router=always, got never"),
        ([*two, "decode.commit=separate"], "verifier=draft_target needs decode.commit=pending, got separate"),
        ([*two, "decode.sub_block_length=4"], "verifier=draft_target needs decode.sub_block_length=null, got 4"),
        ([*two, "decode.context=block"], "verifier=draft_target needs decode.context=causal, got block"),
        ([*two, "draft_device=tpu"], "draft_device must be one of auto, cpu, cuda, got 'tpu'"),
        ([*two, "unmask=klass"], "drafts by a rule that remembers nothing between steps, got unmask=klass"),
        ([*two, "unmask=edit_tokens"], "unmask=edit_tokens may edit a block until it is finished"),
    ):
        with pytest.raises((ConfigError, CheckpointError)) as caught:
            compose(words)
        assert sentence in str(caught.value)


def test_draft_target_needs_two_models_of_one_vocabulary(sdar):
    for vocabulary, sentence in (
        (
            Vocabulary(999, 319, ()),
            "must have the vocabulary size of its target, and other has 999 where golden-sdar has 320",
        ),
        (Vocabulary(320, 7, ()), "must have the mask id of its target, and other has 7 where golden-sdar has"),
    ):
        other = copy.copy(sdar)
        other.name, other.vocabulary = "other", vocabulary
        with pytest.raises(CheckpointError, match=sentence):
            need_same_vocabulary(sdar, other)
    tiny = load_model(compose())
    other = copy.copy(tiny)
    other.tokenizer = copy.deepcopy(tiny.tokenizer)
    other.tokenizer.add_tokens(["zebra"])
    with pytest.raises(
        CheckpointError, match="the tokenizer of its target, and tiny and tiny differ, first in 'zebra'"
    ):
        need_same_vocabulary(tiny, other)


def test_draft_target_needs_a_draft_model_of_enough_context(sdar):
    short = copy.copy(sdar)
    short.draft_model = copy.copy(sdar.draft_model)
    short.draft_model.context = 40
    with pytest.raises(PromptError, match="the context of 40 tokens of perturbed golden-sdar; sample sample-2"):
        decoder_of().generate(short, REQUESTS)
    with pytest.raises(ConfigError, match="golden-sdar was loaded without one; load it with draft_model=NAME"):
        decoder_of().generate(load_golden("sdar"), REQUESTS)


@pytest.mark.parametrize("broken", ["target", "draft"])
def test_draft_target_names_the_model_whose_scores_are_no_numbers(sdar, broken):
    model = copy.copy(sdar)
    model.draft_model = copy.copy(sdar.draft_model)
    bad = model if broken == "target" else model.draft_model
    bad.logits = lambda hidden, read: torch.full((*read.shape, 320), torch.nan)
    bad.forward = lambda plan, cache: bad.logits(None, plan.read_BR)
    with pytest.raises(DecodeError, match=f"those of {bad.name} in torch.float32 are NaN at sample sample-0"):
        decoder_of().generate(model, REQUESTS)


def test_draft_target_is_in_the_record():
    words = ["decoder=draft_target", "decode.block_length=8"]
    config = compose([*words, "draft_model=tiny", "draft_device=cpu"])
    plain = record(config)
    assert plain["draft_model"]["source"] == "package:tiny" and plain["draft_device"] == "cpu"
    assert restore({"config": plain}) == config and lossless(config) == "autoregressive"
    folder = compose([*words, f"draft_model={TINY}"])
    assert folder.draft_model.name == "tiny" and folder.draft_model.source == str(TINY)
    assert len({run_id(one) for one in (config, folder, compose([*words, "draft_model=tiny"]))}) == 3
    old = {key: value for key, value in record(compose()).items() if not key.startswith("draft")}
    assert run_id(restore({"config": old})) == run_id(compose())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["decoder=static", "draft_model.source=x"],
            "draft_model.source is a setting of a draft model, and there is none",
        ),
        (["decoder=draft_target", "draft_model="], "verifier=draft_target needs a draft model, and none is given"),
    ],
)
def test_draft_target_settings_without_a_draft_model_get_a_sentence(words, sentence):
    with pytest.raises(ConfigError) as caught:
        compose(words)
    assert sentence in str(caught.value)


def test_draft_target_errors_name_the_draft_model():
    config = compose(["decoder=draft_target", "draft_model=tiny-draft", "draft_model.family=llada2"])
    with pytest.raises(CheckpointError, match="the draft model tiny-draft: model.family=llada2 needs"):
        load_model(config)


def test_draft_target_log_tells_the_forward_that_proposed_a_token():
    """Of the draft model, in the step that committed it; the target's own tokens have none."""
    settings, log = dict(context="causal", block_length=8, max_new_tokens=24), StepLog()
    make_decoder(Always(), Sequential(), DraftTarget(), **settings).generate(pair("sdar"), REQUESTS, observer=log)
    tokens = [token for steps in log.steps.values() for step in steps for token in step["tokens"]]
    assert {token["proposed_at"] for token in tokens if token["source"] == "accepted"} >= {0, 1, 2}
    assert {token["proposed_at"] for token in tokens if token["source"] in ("resampled", "bonus")} == {None}
