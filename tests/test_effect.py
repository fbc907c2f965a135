"""Settings that do nothing: told once, never a run of their own, and truly without effect."""

from __future__ import annotations

import pytest

from s2d2cli.config import compose, names_of, record, run_id
from s2d2cli.decode import Request, build_decoder
from s2d2cli.effect import warnings, without_effect

WARM = "decode.temperature=1"
COLD = ["unmask.threshold=0.3", "decode.block_length=8", "decode.max_new_tokens=16"]
IDLE = [  # under these settings, this word has no effect
    (["router=never"], "estimator=margin"),
    (["router=always"], "estimator=margin"),
    (["router=min_span"], "estimator.beta=3"),
    (["router=ucb"], "estimator=renyi2"),
    (["router=never"], "verifier.spans=all"),
    (["decoder=dynamic"], "verifier.keep_confident=true"),
    (["router=min_span"], "router.confidence=0.1"),
    (["router=hysteresis"], "router.confidence=0.1"),
    (["router=always"], "verifier.tempering=3"),
    (["router=always"], "verifier.residual_temperature=3"),
    (["router=always"], "verifier.published_temperature=3"),
    (["router=always", WARM], "verifier.acceptance=published"),
    (["router=always", WARM], "verifier.published_temperature=3"),
    (["router=always", WARM, "verifier.resample=false"], "verifier.residual_temperature=3"),
    (["router=always"], "seed=7"),
    (["router=always", "verifier.spans=all", "verifier.keep_confident=true"], "seed=7"),
    (["router=hysteresis", "router.score=dynamic"], "decode.top_k=2"),
    (["decoder=dynamic"], "decode.top_p=0.1"),
    (["router=always", "verifier.ratio_threshold=0.5"], "seed=7"),
    (["router=never", "verifier.acceptance=published", "verifier.ratio_threshold=0.5"], "seed=7"),
    (["router=never", "verifier.acceptance=published", "verifier.ratio_threshold=0.5"], "decode.top_k=2"),
    (["router=always", "decode.context=block"], "verifier.skip_redundant=false"),
    (["router=always", "decode.context=block"], "verifier.ahead=true"),
    (["decoder=s2d2_single"], "unmask.threshold=0.1"),
    (["decoder=s2d2_single"], "estimator=margin"),
    (["decoder=s2d2_single", "verifier.form=sliding"], "seed=7"),
    (["decoder=dynamic"], "decode.cache=dual"),
    (["decoder=s2d2_single"], "decode.top_k=2"),
]
FULLY = ["model=llada-8b", "decoder=dynamic"]
BUSY = [
    (FULLY, "decode.cache=prefix"),
    (["router=score_threshold"], "estimator=margin"),
    (["router=hysteresis"], "estimator.beta=3"),
    (["router=min_span", "router.legacy=true"], "router.confidence=0.1"),
    (["router=hysteresis", "router.score=dynamic"], "router.confidence=0.1"),
    (["router=always", WARM], "verifier.tempering=3"),
    (["router=always", "verifier.acceptance=published"], "verifier.published_temperature=3"),
    (["router=always"], "verifier.spans=all"),
    (["router=always"], "verifier.ahead=true"),
    (["decoder=s2d2_single"], "verifier.form=sliding"),
    (["decoder=s2d2_single", "verifier.max_rows=20"], "estimator=margin"),
    (["decoder=s2d2_single", WARM], "seed=7"),
    *((["router=always", WARM], word) for word in ("seed=7", "decode.top_k=2", "decode.top_p=0.1")),
    *((["verifier.acceptance=published"], word) for word in ("seed=7", "decode.top_k=2", "decode.top_p=0.1")),
    *((["verifier.ratio_threshold=0.5"], word) for word in ("decode.top_k=2", "decode.top_p=0.1")),
    (["router=always", "verifier.ratio_threshold=0.5"], "verifier.tempering=3"),
]


def ids(value: list[str] | str) -> str:
    return value if isinstance(value, str) else " ".join(value)


@pytest.mark.parametrize(("settings", "word"), IDLE, ids=ids)
def test_no_effect_means_one_run_one_warning_and_equal_tokens(golden_model, settings, word):
    with_it, without = compose([*COLD, *settings, word]), compose([*COLD, *settings])
    assert run_id(with_it) == run_id(without) and record(with_it) != record(without)
    (sentence,) = warnings([word], [with_it])
    assert sentence.startswith(f"{word} has no effect: ")
    requests = [Request("a", [7, 3, 9]), Request("b", list(range(20, 33)))]
    first, second = (build_decoder(config).generate(golden_model, requests) for config in (with_it, without))
    assert first.generations == second.generations and first.query_rows == second.query_rows


@pytest.mark.parametrize(("settings", "word"), BUSY, ids=ids)
def test_what_has_an_effect_is_a_run_of_its_own(settings, word):
    assert run_id(compose([*settings, word])) != run_id(compose(settings))
    assert warnings([word], [compose([*settings, word])]) == []


def test_nothing_is_committed_where_nothing_is_final():
    with_it, without = compose([*FULLY, "decode.commit=separate"]), compose(FULLY)
    assert run_id(with_it) == run_id(without)
    (sentence,) = warnings(["decode.commit=separate"], [with_it])
    assert sentence.endswith("has no effect: with decode.context=full no keys and values are ever final")


def test_each_router_says_whether_it_asks_for_an_estimate(golden_model, monkeypatch):
    """The claim is checked against what the router does."""
    from s2d2cli.decode.estimators import Entropy

    asked = []
    usual = Entropy.accept_prob
    monkeypatch.setattr(Entropy, "accept_prob", lambda self, draft: asked.append(1) or usual(self, draft))
    for name in names_of("router"):
        asked.clear()
        config = compose([f"router={name}", *COLD])
        build_decoder(config).generate(golden_model, [Request("a", [7, 3, 9])])
        assert bool(asked) == ("estimator" not in without_effect(config)), name


def test_the_sentence():
    config = compose(["estimator=margin", "router=always"])
    expected = "estimator=margin has no effect: router=always asks for no estimate"
    assert warnings(["estimator=margin", "router=always"], [config]) == [expected]


def test_a_word_that_works_in_one_of_several_runs_is_not_told():
    configs = [compose([f"router={name}"]) for name in ("always", "score_threshold")]
    assert warnings(["estimator=entropy,margin"], configs) == []
    assert len(warnings(["estimator=entropy,margin"], configs[:1])) == 1
