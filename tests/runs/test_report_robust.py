"""How sure the report is of what it shows: shares of draws, paired speed-ups, honest baselines, gates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from s2d2cli.decode.meter import PHASES
from s2d2cli.errors import ConfigError
from s2d2cli.runs.compare import compare
from s2d2cli.runs.metrics import METRICS, SPEEDS, axes, gates
from s2d2cli.runs.remarks import failures, remarks
from s2d2cli.runs.report import Report, Wish, build, find_runs
from s2d2cli.runs.report_table import mark
from s2d2cli.runs.samples import ROBUST, percent
from s2d2cli.tasks.statistics import holm
from tests.runs.report_runs import line, rights, sampled, stored

AR = "decoder=autoregressive"
DYNAMIC = "decoder=dynamic"


def reported(results: Path, **wish) -> Report:
    return build(find_runs([results]), Wish(**wish))


def only(results: Path, **wish):
    (table,) = reported(results, **wish).tables
    return table.rows.set_index("decoder")


def test_a_clear_front_is_robust_and_a_close_one_is_not(tmp_path):
    """The near one stands on the front by a single sample of sixty: most draws keep it, too few to be sure."""
    sampled(tmp_path, rights(0.9), 2.0, 20, AR)
    sampled(tmp_path, rights(0.5), 1.0, 10, DYNAMIC)
    sampled(tmp_path, [i < 31 for i in range(60)], 1.01, 10, "decode.block_length=8")
    rows = only(tmp_path)
    assert rows["front_tokens_per_s"].all()
    assert rows.loc["autoregressive", "share_tokens_per_s"] == 1 == rows.loc["dynamic", "share_tokens_per_s"]
    assert 0.5 < rows.loc["s2d2 always", "share_tokens_per_s"] < 0.8
    again = only(tmp_path)
    assert again["share_tokens_per_s"].tolist() == rows["share_tokens_per_s"].tolist()
    assert mark(rows.loc["dynamic"], METRICS["tokens_per_s"]) == "*"
    assert mark(rows.loc["s2d2 always"], METRICS["tokens_per_s"]).startswith("~6")


def test_what_is_not_robust_does_not_read_as_robust():
    row = {"front_tokens_per_s": True, "share_tokens_per_s": ROBUST - 0.0005}
    assert mark(pd.Series(row), METRICS["tokens_per_s"]) == "~94"
    assert mark(pd.Series(row | {"share_tokens_per_s": ROBUST}), METRICS["tokens_per_s"]) == "*"
    assert [percent(count / 2000) for count in range(0, 2001, 20)] == list(range(101))


def test_who_is_off_the_front_by_chance_is_named(tmp_path):
    """One sample of sixty less than the slower one: many draws turn them round."""
    sampled(tmp_path, rights(0.5), 1.0, 10, DYNAMIC)
    sampled(tmp_path, [i >= 31 for i in range(60)], 1.01, 10, "decode.block_length=8")
    sampled(tmp_path, rights(0.2), 4.0, 40, AR)
    report = reported(tmp_path)
    share = only(tmp_path).loc["s2d2 always", "share_tokens_per_s"]
    sentences = [text for text in remarks(report) if text.startswith("Off the front")]
    assert 0.05 < share < 0.5 and sentences[0] == (
        f"Off the front of tokens/s as measured, but on it in some draws: s2d2 always block=8 ({percent(share)} %)."
    )


def test_equal_answers_stay_equal_in_every_draw(tmp_path):
    """The draws are the same for all runs, so a lossless decoder never loses its tie with what it repeats."""
    sampled(tmp_path, rights(0.7), 2.0, 20, AR)
    sampled(tmp_path, rights(0.7), 1.0, 20)
    rows = only(tmp_path)
    assert rows["share_tokens_per_forward"].tolist() == [1, 1]
    assert rows.loc["s2d2 always", "share_tokens_per_s"] == 1 and rows.loc["autoregressive", "share_tokens_per_s"] == 0


def test_every_metric_has_its_direction(tmp_path):
    """Half the seconds, forwards and rows: the faster one is on every front of two equally right ones."""
    sampled(tmp_path, rights(0.7), 2.0, 20, AR)
    sampled(tmp_path, rights(0.7), 1.0, 10)
    rows = only(tmp_path)
    for metric in SPEEDS:
        assert rows.loc["s2d2 always", f"front_{metric.key}"], metric.key
        if metric.key not in ("rows_per_forward", "ms_per_forward", "peak_gib"):  # those are equal
            assert not rows.loc["autoregressive", f"front_{metric.key}"], metric.key
            assert rows[f"share_{metric.key}"].to_dict() == {"autoregressive": 0, "s2d2 always": 1}, metric.key
    s2d2 = rows.loc["s2d2 always"]
    assert s2d2["rows_per_forward"] == 4 and s2d2["peak_gib"] == 1 and s2d2["latency_p50_s"] == pytest.approx(3.95)
    assert s2d2["ms_per_forward"] == pytest.approx(1000 * s2d2["seconds"] / s2d2["forwards"])
    assert s2d2["forwards_per_token"] == pytest.approx(1 / s2d2["tokens_per_forward"])
    assert s2d2["forwards_per_sample"] == pytest.approx(s2d2["forwards"] / s2d2["n"])
    assert s2d2["tokens_per_s"] == pytest.approx(s2d2["tokens"] / s2d2["seconds"])
    for key in ("tokens_per_s", "tokens_per_forward", "forwards_per_token", "seconds_per_sample"):
        assert s2d2[f"{key}_low"] < s2d2[key] < s2d2[f"{key}_high"], key


def test_the_parts_add_up(tmp_path):
    """Fast-dLLM#13, #11: tokens, passes and seconds are all there, and the ratios are theirs."""
    sampled(tmp_path, rights(0.7), 1.0, 10)
    row = only(tmp_path).iloc[0]
    assert sum(row[f"seconds_{phase}"] for phase in PHASES) == pytest.approx(row["seconds"])
    assert row["forwards_prefill"] + row["forwards_draft"] == row["forwards"] == 600
    assert row["tokens_per_forward"] == row["tokens"] / row["forwards"]


def test_speedups_and_p_values_are_those_of_compare(tmp_path):
    base = sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    worse = sampled(tmp_path, rights(0.4), 1.0, 10, DYNAMIC)
    alike = sampled(tmp_path, [i < 47 for i in range(60)], 0.9, 9)
    rows = only(tmp_path)
    pairs = [compare(folder.path, base.path) for folder in (worse, alike)]
    for name, pair, adjusted in zip(
        ("dynamic", "s2d2 always"), pairs, holm([pair.accuracy.p_value for pair in pairs]), strict=True
    ):
        row = rows.loc[name]
        assert row["speedup"] == pytest.approx(pair.speed_up("seconds").ratio)
        assert (row["speedup_low"], row["speedup_high"]) == pair.speed_up("seconds").interval
        assert (row["p_value"], row["p_holm"]) == (pair.accuracy.p_value, adjusted)
    assert np.isnan(rows.loc["autoregressive", "p_value"]) and rows.loc["autoregressive", "speedup"] == 1
    assert rows.loc["dynamic", "p_holm"] == 2 * rows.loc["dynamic", "p_value"] < 1e-5
    (sentence,) = [text for text in remarks(reported(tmp_path)) if "s2d2 compare" in text]
    assert sentence.startswith("s2d2 always block=16, the most accurate beside autoregressive decoding: 2.22x its")
    assert sentence.endswith(f"s2d2 compare {alike.path} {base.path} --flips") and "after Holm over 2" in sentence


def test_another_measure_is_compared_by_that_measure(tmp_path):
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    sampled(tmp_path, rights(0.4), 1.0, 10, DYNAMIC)
    rows = only(tmp_path, measure="paper")
    assert rows.loc["dynamic", "p_value"] < 1e-5 and rows.loc["dynamic", "share_tokens_per_s"] == 1


def test_the_baseline_is_the_honest_one(tmp_path):
    """Twice the forwards, for a pass that only writes the cache, makes a baseline slow and a speed-up large."""
    sampled(tmp_path, rights(0.8), 4.0, 40, AR, "decode.commit=separate")
    assert only(tmp_path)["baseline"].isna().all()
    honest = sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    sampled(tmp_path, rights(0.8), 1.0, 10, DYNAMIC)
    rows = only(tmp_path)
    assert set(rows["baseline"]) == {str(honest.path)} and rows.loc["dynamic", "speedup"] == pytest.approx(2)
    (label,) = [line for line in remarks(reported(tmp_path)) if "published code" in line]
    assert label.endswith("(decode.commit=separate): autoregressive block=1 commit=separate.")


@pytest.mark.parametrize("wanted", ["dynamic", "threshold=0.5", "run id"])
def test_a_baseline_can_be_named(tmp_path, wanted):
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    named = sampled(tmp_path, rights(0.8), 1.0, 10, DYNAMIC, "unmask.threshold=0.5")
    sampled(tmp_path, rights(0.8), 4.0, 10, DYNAMIC, "unmask.threshold=0.6")
    report = reported(tmp_path, baseline=named.record()["run_id"][:6] if wanted == "run id" else wanted)
    assert set(report.tables[0].rows["baseline"]) == {str(named.path)}
    slow = "autoregressive block=1 is slower than dynamic block=16 threshold=0.5 (0.50x, 0.50-0.50)."
    assert slow in remarks(report)


def test_who_only_seems_slower_is_not_called_so(tmp_path):
    """Slower by 1 % in all, on half of the samples by a half and on the others faster: the interval covers 1."""
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    uneven = [line(i, True, 20 + i, 2.02 * (1 + i / 10) * (1.5 if i % 2 else 0.5), 20) for i in range(60)]
    stored(tmp_path, uneven, DYNAMIC)
    row = only(tmp_path).loc["dynamic"]
    assert row["speedup_low"] < row["speedup"] < 1 < row["speedup_high"]
    (sentence,) = [text for text in remarks(reported(tmp_path)) if " slower " in text]
    between = f"{row['speedup']:.2f}x, {row['speedup_low']:.2f}-{row['speedup_high']:.2f}"
    told = f"dynamic block=16 is not clearly slower or faster than autoregressive decoding ({between})."
    assert sentence == told


def test_a_baseline_that_fits_nothing_is_a_mistake(tmp_path):
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    with pytest.raises(ConfigError, match="--baseline must be a decoder .autoregressive., .* got 'statik'"):
        reported(tmp_path, baseline="statik")


def test_without_a_baseline_there_is_no_speedup_and_it_is_said(tmp_path):
    """SDAR#35: the equivalent autoregressive run is measured alongside, or the report asks for it."""
    sampled(tmp_path, rights(0.8), 2.0, 20, DYNAMIC)
    sampled(tmp_path, rights(0.8), 1.0, 10)
    report = reported(tmp_path)
    assert report.tables[0].rows["speedup"].isna().all()
    assert any("has no baseline, so no speed-up: measure decoder=autoregressive" in text for text in remarks(report))


def test_other_code_is_told_or_set_apart(tmp_path):
    sampled(tmp_path, rights(0.8), 2.0, 20, AR, environment__revision="aaa")
    sampled(tmp_path, rights(0.8), 1.0, 10, environment__revision="bbb+")
    loose, strict = reported(tmp_path), reported(tmp_path, strict_code=True)
    assert len(loose.tables) == 1 and any("made by different code" in text for text in remarks(loose))
    assert len(strict.tables) == 2 and "because code differs between runs" in strict.notes[0]
    assert all("code None" in table.title and len(table.rows) == 1 for table in strict.tables)


def test_the_number_of_devices_is_no_detail(tmp_path):
    """vllm#56111: 100 tokens/s on eight GPUs are not the 100 tokens/s of one."""
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    sampled(tmp_path, rights(0.8), 1.0, 10, environment__devices=8)
    report = reported(tmp_path)
    assert len(report.tables) == 2 and "because devices differs between runs" in report.notes[0]
    assert [table.title.endswith("devices 8") for table in report.tables] == [False, True]


def test_samples_that_are_not_those_of_the_others_say_nothing_about_the_front(tmp_path):
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    other = sampled(tmp_path, rights(0.8), 1.0, 10)
    lines = [json.loads(text) for text in (other.path / "samples.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(one | {"prompt_sha256": "f" * 16}) + "\n" for one in lines)
    (other.path / "samples.jsonl").write_text(text)
    rows, said = only(tmp_path), remarks(reported(tmp_path))
    assert np.isnan(rows.loc["s2d2 always", "share_tokens_per_s"]) and np.isnan(rows.loc["s2d2 always", "p_value"])
    assert rows.loc["s2d2 always", "speedup"] == pytest.approx(2)
    assert any(text.startswith("How sure the front is of s2d2 always block=16 is not known") for text in said)


def test_a_row_without_the_number_is_listed(tmp_path):
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    gone = sampled(tmp_path, rights(0.8), 1.0, 10)
    record = gone.record()
    record["memory"] = None
    gone.write(record)
    report = reported(tmp_path, axes=axes("peak_gib"))
    assert "No peak memory is known of s2d2 always block=16, so it is on no front against that." in remarks(report)
    rows = only(tmp_path, axes=axes("peak_gib"))
    assert rows["front_peak_gib"].to_dict() == {"autoregressive": True, "s2d2 always": False}


def test_axes_and_gates_are_checked():
    assert [metric.key for metric in axes("peak_gib, tokens_per_s,peak_gib")] == ["peak_gib", "tokens_per_s"]
    with pytest.raises(ConfigError, match="--x must name some of tokens_per_s, .* got 'tps'"):
        axes("tokens_per_s,tps")
    for wrong in ("accuracy", "accuracy=high", "acc=0.7"):
        with pytest.raises(ConfigError, match="--fail-under must be METRIC=NUMBER with one of accuracy"):
            gates([wrong])


def test_a_gate_is_passed_by_what_was_measured_and_good_enough(tmp_path):
    sampled(tmp_path, rights(0.8), 2.0, 20, AR)
    sampled(tmp_path, rights(0.5), 1.0, 10, DYNAMIC)
    report = reported(tmp_path)
    assert failures(report, gates(["accuracy=0.5", "forwards_per_token=0.5"])) == []
    assert failures(report, gates(["accuracy=0.7"])) == [
        "accuracy of dynamic block=16 is 0.500, and must be at least 0.7"
    ]
    (slow,) = failures(report, gates(["forwards_per_token=0.3"]))
    assert slow.startswith("forwards/token of autoregressive") and slow.endswith("at most 0.3")
    failed = find_runs([tmp_path])[0].record() | {"status": "error", "error": {"type": "E", "message": "x"}}
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "run.json").write_text(json.dumps(failed))
    assert len(failures(reported(tmp_path), gates(["accuracy=0.1"]))) == 1
