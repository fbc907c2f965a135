"""What a configuration promises is what it decodes, and tables say it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from s2d2cli.config import compose
from s2d2cli.decode import Request, build_decoder
from s2d2cli.lossless import lossless
from s2d2cli.runs.compare import side_of
from s2d2cli.runs.report import Wish, build, find_runs
from s2d2cli.runs.report_files import markdown
from s2d2cli.runs.tables import outcome_table
from tests.runs.report_runs import rights, sampled

PROMPTS = [[5], [7, 3, 9], list(range(20, 41))]
KEPT = {
    "autoregressive": [
        ["decoder=autoregressive"],
        ["decoder=s2d2"],
        ["decoder=s2d2", "verifier.form=sliding"],
        ["decoder=s2d2", "decode.commit=separate"],
        ["decoder=s2d2_single"],
        ["decoder=s2d2", "unmask=klass", "verifier.ahead=true"],
        ["decoder=s2d2", "unmask=pipelined", "unmask.blocks_in_flight=1"],
    ],
    "static": [["decoder=static"], ["decoder=ssd"], ["decoder=ssd", "verifier.order=mix", "verifier.nodes=6"]],
    "sequential": [["decoder=sequential"], ["decoder=ssd", "unmask=sequential"]],
}
NOT_KEPT = [
    ["decoder=dynamic"],
    ["decoder=d2f"],
    ["decoder=d2f_s2d2"],
    ["decoder=s2d2", "unmask=pipelined"],
    ["decoder=s2d2", "unmask=pipelined", "unmask.blocks_in_flight=1", "unmask.min_tokens_per_step=2"],
    ["decoder=klass"],
    ["decoder=static", "decode.denoising_steps=2"],
    ["decoder=s2d2", "router=min_span"],
    ["decoder=s2d2", "decode.context=block"],
    ["decoder=s2d2", "decode.denoising_steps=2"],
    ["decoder=s2d2", "verifier.acceptance=ratio"],
    ["decoder=s2d2", "verifier.spans=all"],
    ["decoder=s2d2", "verifier.resample=false"],
    ["decoder=s2d2", "verifier.ratio_threshold=0.9"],
    ["decoder=s2d2", "verifier.keep_confident=true"],
    ["decoder=s2d2", "decode.temperature=1", "verifier.tempering=2"],
    ["decoder=s2d2", "decode.temperature=1", "verifier.residual_temperature=0.5"],
    ["decoder=s2d2", "unmask=edit_tokens"],
]


@pytest.mark.parametrize(("kept", "words"), [(kept, words) for kept, all_words in KEPT.items() for words in all_words])
def test_a_promise_is_kept(golden_model, kept, words):
    shared = ["decode.max_new_tokens=24"]
    blocks = [] if words == ["decoder=autoregressive"] else ["decode.block_length=8"]
    config = compose([*words, *shared, *blocks])
    assert lossless(config) == kept
    plain = compose([f"decoder={kept}", *shared, *([] if kept == "autoregressive" else blocks)])
    requests = [Request(str(number), prompt) for number, prompt in enumerate(PROMPTS)]
    found, expected = (
        [g.token_ids for g in build_decoder(one).generate(golden_model, requests).generations]
        for one in (config, plain)
    )
    assert found == expected


@pytest.mark.parametrize("words", NOT_KEPT, ids=" ".join)
def test_nothing_is_promised_in_vain(words):
    assert lossless(compose([*words, "decode.block_length=8"])) is None


def test_a_sampled_promise():
    """Accepting by ratio is exact under sampled drafts, and no other decoder's tokens under greedy ones."""
    assert lossless(compose(["decoder=s2d2", "verifier.acceptance=ratio", "decode.temperature=1"])) == "autoregressive"


def test_tables_tell_it(tmp_path):
    for number, words in enumerate((["decoder=autoregressive"], ["decoder=ssd"], ["decoder=dynamic"])):
        sampled(tmp_path, rights(0.5 + number / 10), 1.0, 10 + number, *words)
    runs = find_runs([tmp_path])
    table = markdown(build(runs, Wish()))
    cells = {
        line.split("|")[1].strip(): line.split("|")[3].strip() for line in table.splitlines() if line.startswith("| ")
    }
    assert {"lossless", "AR", "static", "no"} <= set(cells.values())
    assert (cells["autoregressive"], cells["ssd"], cells["dynamic"]) == ("AR", "static", "no")
    for run in runs:
        console = Console(record=True, width=120, file=io.StringIO())
        console.print(outcome_table(run.record()))
        told = {"autoregressive": "AR", "ssd": "static", "dynamic": "no"}[run.record()["config"]["decoder"]]
        assert f"lossless {told}" in " ".join(console.export_text().split())
        assert ("lossless against" in side_of(run.path).name) == (told != "no")
