"""What must hold for every setting: hypothesis draws models, prompts and settings."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from s2d2cli.decode import Request
from s2d2cli.decode.bandit import ContextualUCB
from s2d2cli.decode.estimators import Confidence, Entropy, EntropyThreshold, LinearMargin, Margin, Renyi2
from s2d2cli.decode.pipelined import Pipelined
from s2d2cli.decode.routers import Always, Hysteresis, MinSpan, Never, ScoreThreshold
from s2d2cli.decode.session import Session
from s2d2cli.decode.single import SingleForward
from s2d2cli.decode.state import Source
from s2d2cli.decode.unmask import EditTokens, EntropyBounded, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from s2d2cli.decode.verifiers import SelfVerifier
from s2d2cli.errors import ConfigError, PromptError
from s2d2cli.values import VALUES
from tests.conftest import make_decoder, s2d2

ROUTERS = [
    Never(),
    Always(),
    MinSpan(tau_span=1),
    MinSpan(0.2, tau_span=3, legacy=True),
    ScoreThreshold(tau_score=0.5),
    ScoreThreshold(0.2, score="dynamic", cost=0.5),
    Hysteresis(0.2, score="dynamic", tau_on=1.0, tau_off=0.2, reset_per_block=True),
    ContextualUCB(span_bins=3, entropy_of="masked", reset_per_block=True),
]
ESTIMATORS = [Entropy(), EntropyThreshold(0.5), Margin(), LinearMargin(2.0), Confidence(), Renyi2()]
EDITING = [EditTokens(0.2, 0.05, num_to_transfer=2, max_post_steps=3), EditTokens(0.5, 0.0, max_post_steps=0)]
IN_FLIGHT = [
    Pipelined(0.2),
    Pipelined(0.4, 0.5, 0.5, min_tokens_per_step=2),
    Pipelined(0.3, 0.1, 0.3, blocks_in_flight=2),
]
UNMASK = [Sequential(), LowConfidenceStatic(), LowConfidenceDynamic(0.2), EntropyBounded(3.0)]


@st.composite
def decoders(draw):
    length = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    unmask = draw(st.sampled_from(UNMASK))
    shared = dict(
        block_length=length,
        max_new_tokens=draw(st.integers(1, 20)),
        temperature=draw(st.sampled_from([0.0, 0.7, 1.5])),
        top_k=draw(st.sampled_from([0, 1, 5])),
        top_p=draw(st.sampled_from([1.0, 0.5])),
    )
    if draw(st.integers(0, 3)) == 0:
        form, rows = draw(st.sampled_from(["aligned", "sliding"])), draw(st.sampled_from([None, 8, 20]))
        return make_decoder(Always(), unmask, SingleForward(form, rows), context="causal", **shared)
    context = draw(st.sampled_from([word for word in VALUES["decode.context"] if word != "full"]))
    commit = draw(st.sampled_from(["pending", "separate"]))
    if draw(st.integers(0, 4)) == 0:
        router, verifier = draw(st.sampled_from(ROUTERS)), SelfVerifier(resample=draw(st.booleans()))
        return make_decoder(
            router, draw(st.sampled_from(IN_FLIGHT)), verifier, context=context, commit=commit, **shared
        )
    unmask = draw(st.sampled_from([unmask, *EDITING]))
    slides = (context, commit) == ("causal", "pending") and not isinstance(unmask, EditTokens)
    form = draw(st.sampled_from(["aligned", "sliding"] if slides else ["aligned"]))
    parts = [None, *(part for part in range(1, length) if length % part == 0)]
    return make_decoder(
        router=draw(st.sampled_from(ROUTERS)),
        estimator=draw(st.sampled_from(ESTIMATORS)),
        unmask=unmask,
        verifier=SelfVerifier(
            draw(st.sampled_from(["lossless", "ratio", "published"])),
            skip_redundant=draw(st.booleans()),
            ahead=draw(st.booleans()),
            bonus=draw(st.booleans()),
            form=form,
            spans=draw(st.sampled_from(["first", "all"])),
            resample=draw(st.booleans()),
            residual_temperature=draw(st.sampled_from([1.0, 0.5])),
            tempering=draw(st.sampled_from([1.0, 0.5])),
            ratio_threshold=draw(st.sampled_from([None, 0.3])),
            ratio_spans=draw(st.sampled_from(["first", "all"])),
            keep_confident=hasattr(unmask, "threshold") and draw(st.booleans()),
        ),
        **shared,
        denoising_steps=draw(st.integers(1, length)),
        sub_block_length=draw(st.sampled_from(parts if form == "aligned" else [None])),
        context=context,
        commit=commit,
    )


@pytest.fixture(scope="module")
def models(family_model):
    """The trained one, and two of random weights: one that is sure of itself and one that is not."""
    found = [family_model]
    for seed, scale in ((1, 0.3), (2, 0.02)):
        model = copy.copy(family_model)
        model.network = copy.deepcopy(family_model.network)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.network.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        found.append(model)
    return found


prompts = st.lists(st.lists(st.integers(0, 317), min_size=1, max_size=20), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    decoder=decoders(),
    prompts=prompts,
    width=st.integers(1, 3),
    stop_ids=st.sets(st.integers(0, 317), max_size=60),
    which=st.integers(0, 2),
)
def test_every_run_keeps_its_promises(models, decoder, prompts, width, stop_ids, which):
    model = copy.copy(models[which])
    model.stop_ids = tuple(stop_ids)
    session = Session(decoder, model, [Request(str(i), prompt) for i, prompt in enumerate(prompts)], width)
    seen = {number: list(prompt) for number, prompt in enumerate(prompts[:width])}
    check_progress = check_editing if decoder.editor else check_final
    for _ in session.run():
        assert len(session.live) <= width and (not session.queue or len(session.working) == width), "a row is idle"
        canvases = dict(zip(session.live, session.state.canvas_BT.tolist(), strict=True))
        for number in list(seen):
            if number in session.finished and number not in canvases:
                canvases[number] = [*prompts[number], *session.finished[number].token_ids]
                check_progress(seen.pop(number), canvases[number], model.mask_id, at_work=False)
        for row, number in enumerate(session.live):
            at_work = bool(session.state.active_B[row])
            if number not in seen and at_work:  # it has just entered
                seen[number] = canvases[number]
                assert not session.finished.get(number)
                continue
            check_progress(seen[number], canvases[number], model.mask_id, at_work)
            seen[number] = canvases[number]
    for prompt, generation in zip(prompts, session.result.generations, strict=True):
        check_generation(prompt, generation, decoder, model)
        alone = decoder.generate(model, [Request(generation.sample_id, prompt)]).generations[0]
        assert generation == alone, "the neighbours matter"


def check_editing(before: list[int], after: list[int], mask: int, at_work: bool) -> None:
    """What was decided stays decided; a step either decides more or edits or is the last of its block."""
    assert all(token != mask for token, old in zip(after, before, strict=False) if old != mask), "a mask came back"


def check_final(before: list[int], after: list[int], mask: int, at_work: bool) -> None:
    """What was decided stays; a row at work decides at least one token a step."""
    decided = [(i, token) for i, token in enumerate(before[: len(after)]) if token != mask]
    assert all(after[i] == token for i, token in decided), "a decided token changed"
    assert not at_work or sum(token != mask for token in after) > len(decided), "a step decided nothing"


def check_generation(prompt, generation, decoder, model):
    tokens = generation.token_ids
    assert 1 <= len(tokens) <= decoder.settings.max_new_tokens
    assert model.mask_id not in tokens
    assert not any(token in model.stop_ids for token in tokens[:-1])
    stopped = tokens[-1] in model.stop_ids
    assert generation.finish == ("stop" if stopped else "length")
    assert stopped or len(tokens) == decoder.settings.max_new_tokens
    assert len(generation.sources) == len(generation.reveal_steps) == len(tokens)
    known = {"unmasked", "accepted", "resampled", "threshold", "high_confidence", "bonus"}
    assert set(generation.sources) <= known | ({"edited"} if decoder.editor else set())
    assert generation.edits >= generation.sources.count("edited")
    if decoder.editor:
        length, rule = decoder.settings.block_length, decoder.editor
        part = decoder.settings.sub_block_length or length
        blocks = -(-(len(prompt) + len(tokens)) // length) - len(prompt) // length
        assert generation.drafted_steps <= blocks * (
            length // part * -(-part // rule.num_to_transfer) + rule.max_post_steps
        )
    assert all(0 <= step < generation.drafted_steps for step in generation.reveal_steps)
    forwards = generation.forwards
    if isinstance(decoder.verifier, SingleForward):
        assert forwards["draft"] == 0 and generation.verified <= forwards["verify"] == generation.drafted_steps
    else:
        assert forwards["verify"] == generation.verified <= generation.drafted_steps
        ahead = getattr(decoder.verifier, "ahead", False)
        assert forwards["draft"] == generation.drafted_steps or (ahead and forwards["draft"] < generation.drafted_steps)
    assert generation.accepted == generation.sources.count("accepted")


def test_a_batch_sheds_its_finished_rows(golden_model):
    """Rows that stop early are dropped once they are half of the batch; each result stays what it is alone."""
    requests = [Request(str(i), [i + 1, 7, 3]) for i in range(8)]
    decoder = s2d2(block_length=8, max_new_tokens=48)
    free = decoder.generate(golden_model, requests).generations
    model, sizes = copy.copy(golden_model), []
    model.stop_ids = tuple({token for generation in free[:3] for token in generation.token_ids[:8]})
    model.forward = lambda plan, cache: sizes.append(len(plan.tokens_BQ)) or golden_model.forward(plan, cache)
    result = decoder.generate(model, requests)
    lengths = [len(generation.token_ids) for generation in result.generations]
    longest = sum(length == max(lengths) for length in lengths)
    assert max(lengths) > 8 and longest <= 4
    assert sizes[0] == 8 and sizes[-1] < 2 * longest
    assert result.generations == [decoder.generate(model, [request]).generations[0] for request in requests]


def test_each_plan_row_sees_something(family_model):
    """An empty softmax is NaN on some backends; padding rows included."""
    seen = []
    model = copy.copy(family_model)
    model.hidden = lambda plan, cache: seen.append(plan) or family_model.hidden(plan, cache)
    requests = [Request("a", [5]), Request("b", list(range(30)))]
    for verifier in (
        SelfVerifier(),
        SelfVerifier(ahead=True, form="sliding"),
        SingleForward(),
        SingleForward("sliding", 20),
    ):
        decoder = make_decoder(Always(), verifier=verifier, context="causal", block_length=8, max_new_tokens=20)
        decoder.generate(model, requests)
    assert {plan.kind.value for plan in seen} == {"prefill", "draft", "verify"}
    for plan in seen:
        assert plan.visible_BQT.any(-1).all()


def test_stops_at_the_first_stop_token_and_makes_no_further_forward(family_model):
    """The stop token is an ordinary id here: rows stop at different places, each at its own."""
    prompts = [[7, 3, 9], list(range(20, 28)), [5]]
    free = s2d2(block_length=8, max_new_tokens=64).generate(
        family_model, [Request(str(i), p) for i, p in enumerate(prompts)]
    )
    model = copy.copy(family_model)
    model.stop_ids = (free.generations[0].token_ids[10], free.generations[1].token_ids[20])
    result = s2d2(block_length=8, max_new_tokens=64).generate(
        model, [Request(str(i), p) for i, p in enumerate(prompts)]
    )
    for before, after in zip(free.generations, result.generations, strict=True):
        first = next((i for i, token in enumerate(before.token_ids) if token in model.stop_ids), None)
        assert after.token_ids == before.token_ids[: None if first is None else first + 1]
        if first is not None:
            assert after.finish == "stop"
        if first is not None and first < 56:  # in the last block there may be no further forward to save
            assert sum(after.forwards.values()) < sum(before.forwards.values())


def test_a_stop_token_in_the_prompt_does_not_stop(family_model):
    model = copy.copy(family_model)
    model.stop_ids = (9,)
    prompt = [9, 9, 9, 4]
    result = make_decoder(block_length=8, max_new_tokens=5).generate(model, [Request("x", prompt)])
    free = make_decoder(block_length=8, max_new_tokens=5).generate(family_model, [Request("x", prompt)])
    assert 9 not in free.generations[0].token_ids
    assert result.generations[0].token_ids == free.generations[0].token_ids


def test_a_model_that_only_wants_the_mask_token_still_fills_the_block(family_model):
    model = copy.copy(family_model)
    model.network = copy.deepcopy(family_model.network)
    with torch.no_grad():
        model.network.lm_head.weight[model.mask_id] = 0
        model.network.lm_head.weight[: model.mask_id] *= 1e-3
    settings = dict(block_length=8, max_new_tokens=12)
    for decoder in (make_decoder(**settings), s2d2(**settings), make_decoder(unmask=EditTokens(0.0, 0.0), **settings)):
        tokens = decoder.generate(model, [Request("x", [1, 2, 3])]).generations[0].token_ids
        assert len(tokens) == 12
        assert model.mask_id not in tokens


def test_prompts_that_do_not_fit_are_refused(golden_model):
    decoder = make_decoder(block_length=8, max_new_tokens=48)
    decoder.generate(golden_model, [Request("fits", [1] * 2000)])
    with pytest.raises(PromptError, match="sample long has 2001 \\+ 48"):
        decoder.generate(golden_model, [Request("long", [1] * 2001)])
    with pytest.raises(PromptError, match="sample empty has none"):
        decoder.generate(golden_model, [Request("empty", [])])
    assert decoder.generate(golden_model, []).generations == []
    with pytest.raises(ConfigError, match="block_length must fit the context of golden-sdar, 2048 tokens, got 2049"):
        make_decoder(block_length=2049, max_new_tokens=8).generate(golden_model, [Request("x", [1])])


def test_streaming_grows_to_the_same_answer(family_model):
    request = Request("x", [7, 3, 9])
    for decoder in (s2d2(block_length=8, max_new_tokens=30), make_decoder(block_length=8, max_new_tokens=30)):
        parts = list(decoder.stream(family_model, request))
        assert decoder.last.generations == decoder.generate(family_model, [request]).generations
        assert parts[-1] == decoder.last.generations[0].token_ids
        assert all(longer[: len(shorter)] == shorter for shorter, longer in zip(parts, parts[1:], strict=False))


def test_quota_is_spread_over_the_steps(golden_model):
    """Block length 8 in 3 steps: 3, 3, 2 tokens."""
    decoder = make_decoder(unmask=LowConfidenceStatic(), block_length=8, denoising_steps=3, max_new_tokens=8)
    steps = decoder.generate(golden_model, [Request("x", [1] * 8)]).generations[0].reveal_steps
    assert [steps.count(step) for step in range(3)] == [3, 3, 2]


def test_sources_tell_where_tokens_come_from(family_model):
    plain = make_decoder(block_length=8, max_new_tokens=16).generate(family_model, [Request("x", [1, 2])])
    assert set(plain.generations[0].sources) == {"unmasked"}
    checked = s2d2(block_length=8, max_new_tokens=16).generate(family_model, [Request("x", [1, 2])])
    assert {"accepted", "resampled"} <= set(checked.generations[0].sources)
    assert Source.PROMPT.name.lower() not in checked.generations[0].sources
