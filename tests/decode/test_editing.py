"""Token editing: against a slow reference, its bounds, what it is refused with."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest

from s2d2cli.config import compose
from s2d2cli.decode import Request, StepLog
from s2d2cli.decode.bandit import ContextualUCB
from s2d2cli.decode.routers import Always
from s2d2cli.decode.unmask import EditTokens, LowConfidenceDynamic
from s2d2cli.errors import ConfigError
from tests import reference
from tests.conftest import make_decoder

PROMPTS = [[5], list(range(20, 28)), [284, 65, 141, 270, 111, 94, 3, 188, 129, 22, 216, 270, 270]]
RULES = [
    EditTokens(0.05, 0.15, num_to_transfer=6),
    EditTokens(0.1, 0.05, max_post_steps=2),
    EditTokens(0.1, 0.2, num_to_transfer=3, max_post_steps=0),
]


@pytest.mark.parametrize("length", [4, 16])
@pytest.mark.parametrize("rule", RULES, ids=["many", "few post steps", "no post steps"])
def test_cached_equals_uncached(llada2_model, rule, length):
    decoder = make_decoder(unmask=rule, block_length=length, max_new_tokens=27)
    edits = 0
    for prompt in PROMPTS:
        generation = decoder.generate(llada2_model, [Request("x", prompt)]).generations[0]
        found = (generation.token_ids, generation.forwards["draft"], generation.edits)
        assert found == reference.edit_tokens(llada2_model, prompt, 27, length, rule)
        edits += generation.edits
    assert edits > 0


def test_without_edits_it_is_the_dynamic_rule(llada2_model):
    """No softmax exceeds 1."""
    requests = [Request(str(number), prompt) for number, prompt in enumerate(PROMPTS)]
    settings = dict(block_length=8, max_new_tokens=20)
    rules = LowConfidenceDynamic(0.3), EditTokens(0.3, 1.0, max_post_steps=0)
    dynamic, editing = (make_decoder(unmask=rule, **settings).generate(llada2_model, requests) for rule in rules)
    assert [g.token_ids for g in editing.generations] == [g.token_ids for g in dynamic.generations]
    confirmed = make_decoder(unmask=EditTokens(0.3, 1.0), **settings).generate(llada2_model, requests)
    for one, two in zip(editing.generations, confirmed.generations, strict=True):
        blocks = two.drafted_steps - one.drafted_steps  # one step each finds nothing to edit
        assert one.token_ids == two.token_ids and blocks in (3, 4)


def test_a_stop_token_counts_once_its_block_is_finished(llada2_model):
    """Before, an edit may take it back; then nothing behind it is told, and no further block is decoded."""
    request, rule = Request("x", PROMPTS[2]), RULES[0]
    decoder = make_decoder(unmask=rule, block_length=16, max_new_tokens=60)
    free = decoder.generate(llada2_model, [request]).generations[0].token_ids
    model = copy.copy(llada2_model)
    model.stop_ids = (free[8],)
    stopped = decoder.generate(model, [request]).generations[0]
    first = free.index(free[8])
    assert (stopped.token_ids, stopped.finish) == (free[: first + 1], "stop")
    block_end = (len(request.prompt_ids) + first) // 16 * 16 + 16 - len(request.prompt_ids)
    cut = make_decoder(unmask=rule, block_length=16, max_new_tokens=block_end).generate(llada2_model, [request])
    assert stopped.forwards == cut.generations[0].forwards


def test_a_stream_tells_finished_blocks_only(llada2_model):
    """What it has told is never edited."""
    decoder = make_decoder(unmask=RULES[1], block_length=8, max_new_tokens=30)
    parts = list(decoder.stream(llada2_model, Request("x", PROMPTS[2])))
    assert all(longer[: len(shorter)] == shorter for shorter, longer in zip(parts, parts[1:], strict=False))
    assert {(len(part) + len(PROMPTS[2])) % 8 for part in parts[:-1]} <= {0, len(PROMPTS[2]) % 8}
    assert decoder.last.generations[0].edits > 0


def test_a_bandit_learns_nothing_where_there_is_nothing_to_verify(llada2_model):
    router = ContextualUCB()
    decoder = make_decoder(router, EditTokens(0.1, 0.1), block_length=8, max_new_tokens=24)
    session = decoder.session(llada2_model, [Request("x", PROMPTS[1])])
    seen = []
    for _ in session.run():
        seen.append((int(router.time_B), int(router.count_BCA.sum())))
    assert all(time == count for time, count in seen)
    assert sum(one == two for one, two in pairwise(seen)) > 1, "there must be steps that met no mask"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["decoder=s2d2_single"], "needs verifier=self .*, got verifier=single"),
        (["verifier.form=sliding"], "with verifier.form=aligned and verifier.ahead=false"),
        (["verifier.ahead=true"], "with verifier.form=aligned and verifier.ahead=false"),
        (["decode.denoising_steps=2", "decode.block_length=8"], "decode.denoising_steps must be left out, got 2"),
        (["unmask.edit_threshold=-1"], "unmask.edit_threshold must be 0 or more, got -1"),
        (["unmask.num_to_transfer=0"], "unmask.num_to_transfer must be at least 1, got 0"),
        (["unmask.max_post_steps=-1"], "unmask.max_post_steps must be 0 or more, got -1"),
    ],
)
def test_what_does_not_go_together_is_refused(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        compose([*words, "unmask=edit_tokens"])


def test_a_verified_token_may_be_edited(llada2_model):
    """So a verifier that accepts exactly makes no lossless decoder of it."""
    settings = dict(block_length=16, max_new_tokens=60, temperature=1.2)
    decoder = make_decoder(Always(), EditTokens(0.1, 0.05, 4), **settings)
    log = StepLog()
    decoder.generate(llada2_model, [Request("x", PROMPTS[2])], observer=log)
    events = [token for step in log.steps["x"] for token in step["tokens"]]
    accepted = {token["position"]: token["token"] for token in events if token["source"] == "accepted"}
    assert any(accepted.get(token["position"]) == token["was"] for token in events if token["source"] == "edited")
