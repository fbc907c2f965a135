"""Is the model a good verifier? The other runs are ordinary ones, and the verdict follows from pairs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from s2d2cli.config import compose, record, run_id
from s2d2cli.runs.store import decoder_name
from s2d2cli.runs.verifier_check import Check, Decoded, autoregressive, compare, table, unverified
from tests.runs import doubles
from tests.test_cli import s2d2 as s2d2

SHARED = ["decode.temperature=1", "decode.top_k=5", "decode.max_new_tokens=40", "limit=9", "seed=3"]
VERIFIED = ["router=min_span", "estimator=margin", "verifier.spans=all", "decode.block_length=8"]


def test_the_other_runs_are_those_that_a_user_would_type():
    config = compose([*SHARED, *VERIFIED])
    assert run_id(autoregressive(config)) == run_id(compose(["decoder=autoregressive", *SHARED]))
    assert run_id(unverified(config)) == run_id(compose(["decoder=dynamic", "decode.block_length=8", *SHARED]))
    static = compose(["unmask=low_confidence_static", "decode.denoising_steps=4", *VERIFIED])
    assert run_id(unverified(static)) == run_id(
        compose(["decoder=static", "decode.block_length=8", "decode.denoising_steps=4"])
    )
    assert (unverified(static).decoder, unverified(config).decoder) == ("static", "dynamic")


@pytest.mark.parametrize("words", [["decoder=s2d2_single"], ["decoder=s2d2_adaptive"], ["verifier.form=sliding"]])
def test_the_other_runs_have_the_plain_verifier(words):
    """A decoder must not be compared with itself under another one's name."""
    config = compose([*SHARED, "decode.block_length=8", *words])
    assert record(autoregressive(config)) == record(compose(["decoder=autoregressive", *SHARED]))
    assert record(unverified(config)) == record(compose(["decoder=dynamic", "decode.block_length=8", *SHARED]))


def test_the_other_runs_of_d2f_s_case():
    """Blocks in flight, verified and not, and the autoregressive mode."""
    shared = ["model=d2f-llada", "decode.max_new_tokens=40"]
    config = compose([*shared, "experiment=d2f_min_span"])
    assert record(autoregressive(config)) == record(compose([*shared, "decoder=autoregressive"]))
    assert record(unverified(config)) == record(compose([*shared, "experiment=d2f_dynamic"]))
    names = [("d2f_s2d2", "min_span"), ("d2f", "always"), ("d2f", "never"), ("dynamic", "min_span")]
    assert [decoder_name(*one) for one in names] == ["d2f_s2d2 min_span", "d2f_s2d2 always", "d2f", "s2d2 min_span"]


def of(name: str, right: int, n: int = 1319) -> Decoded:
    """The first `right` of n samples are solved: nested, as when a worse decoder loses answers and gains none."""
    return Decoded(name, {str(i): i < right for i in range(n)})


def test_pairs():
    first = Decoded("a", {"x": True, "y": False, "z": True, "w": True})
    second = Decoded("b", {"x": True, "y": True, "z": False, "w": False})
    pair = compare(first, second)
    assert (pair.difference, pair.only_first, pair.only_second, pair.p) == (0.25, 2, 1, 1.0)
    assert not pair.first_is_worse and not compare(second, first).first_is_worse


def test_the_paper_s_d2f_case_is_warned_about():
    """GSM8K: 50.0 with dynamic decoding, 20 autoregressively, 33.3 with S2D2."""
    verdict = Check(of("s2d2 always", 439), of("autoregressive", 264), of("dynamic", 660)).verdict
    assert verdict.startswith("warning: verification costs accuracy: s2d2 always 0.333, dynamic 0.500 (p = ")
    assert "the mode that verifies: autoregressive 0.200" in verdict and "docs/verifier.md" in verdict


def test_a_bad_mode_is_warned_about_before_it_costs_anything():
    verdict = Check(of("s2d2 min_span", 655), of("autoregressive", 264), of("dynamic", 660)).verdict
    assert verdict.startswith("warning: the autoregressive mode is clearly worse: autoregressive 0.200, dynamic 0.500")


@pytest.mark.parametrize(("ours", "ar", "plain"), [(700, 700, 660), (658, 657, 660)])
def test_no_warning_without_evidence(ours, ar, plain):
    found = Check(of("s2d2 always", ours), of("autoregressive", ar), of("dynamic", plain))
    assert found.verdict.startswith("Nothing speaks against this verifier on these 1319 samples")
    json.dumps(found.plain(), allow_nan=False)


@pytest.mark.parametrize(("n", "told"), [(199, "199 samples (fewer than 200: rough): "), (200, "200 samples: ")])
def test_few_samples_are_said_to_be_few(n, told):
    heading = table(Check(of("s2d2 always", 90, n), of("autoregressive", 90, n), of("dynamic", 90, n))).renderables[0]
    assert told in str(heading)


def test_eval_measures_and_reuses(s2d2, monkeypatch):
    made = doubles.use(monkeypatch)
    assert s2d2("eval", "task=echo", "decoder=autoregressive") == 0
    assert s2d2("eval", "task=echo", "-b", "8", "--check-verifier") == 0
    assert [decoder.config.decoder for decoder in made] == ["autoregressive", "s2d2", "dynamic"]
    assert (
        "accuracy on 6 samples (fewer than 200: rough): s2d2 always 0.500, autoregressive 0.500, dynamic 0.500"
        in s2d2.out
    )
    assert "Nothing speaks against" in s2d2.out and len(list(Path("results").iterdir())) == 3
    assert s2d2("eval", "task=echo", "-b", "8", "--check-verifier", "--json") == 0
    kept = json.loads(s2d2.out)["verifier_check"]
    assert kept["accuracy"] == {"s2d2 always": 0.5, "autoregressive": 0.5, "dynamic": 0.5} and len(made) == 3
    assert json.loads(next(Path("results").glob("*s2d2*/run.json")).read_text())["verifier_check"] == kept


def test_interrupted_in_the_other_runs(s2d2, monkeypatch):
    made = doubles.use(monkeypatch)
    usual = doubles.EchoSession.batch

    def batch(self, requests):
        if self.decoder.config.decoder == "autoregressive" and len(self.decoder.calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return usual(self, requests)

    monkeypatch.setattr(doubles.EchoSession, "batch", batch)
    words = ("eval", "task=echo", "-b", "8", "batch_size=2", "--check-verifier")
    assert s2d2(*words) == 130
    assert "Interrupted in the verifier check" in s2d2.err and "accuracy 0.500" in s2d2.out and len(made) == 2
    monkeypatch.setattr(doubles.EchoSession, "batch", usual)
    assert s2d2(*words) == 0 and "Nothing speaks against" in s2d2.out
    assert len(made[2].calls) == 3  # the warm-up and two batches: what was left


def test_a_decoder_that_never_verifies_is_refused(s2d2, monkeypatch):
    made = doubles.use(monkeypatch)
    assert s2d2("eval", "task=echo", "decoder=dynamic", "--check-verifier") == 2
    assert "router=never never does" in s2d2.err and made == []
