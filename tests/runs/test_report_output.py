"""The report as a user meets it: terminals of any width, files, JSON, gates, published figures."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from s2d2cli.runs import published
from s2d2cli.runs.metrics import METRICS, axes
from s2d2cli.runs.report import Wish, build, find_runs
from s2d2cli.runs.report_files import latex, markdown, write
from s2d2cli.runs.report_table import legend, terminal
from s2d2cli.runs.sketch import sketch
from tests.runs.report_runs import rights, sampled
from tests.test_cli import s2d2 as s2d2

SHARED = Path(__file__).parents[3] / "shared" / "paper"
HOSTILE = "m$\\frac{a}$</script><script>alert(1)</script>_&%#{}~^|[red]"


@pytest.fixture
def results(tmp_path):
    """An autoregressive run, plain diffusion at two thresholds, and S2D2, of which one is faster and worse."""
    folder = tmp_path / "results"
    sampled(folder, rights(0.9), 2.0, 20, "decoder=autoregressive")
    sampled(folder, rights(0.5), 0.8, 10, "decoder=dynamic", "unmask.threshold=0.5")
    sampled(folder, [i < 31 for i in range(60)], 0.81, 12, "decoder=dynamic", "unmask.threshold=0.9")
    sampled(folder, rights(0.9), 1.0, 14, "decode.block_length=8")
    return folder


def printed(results: Path, width: int, wish: Wish | None = None) -> list[str]:
    wish = wish or Wish()
    (table,) = build(find_runs([results]), wish).tables
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(terminal(table, wish.axes, width))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140])
def test_every_width_is_legible(results, width):
    """No line is longer than the terminal, no cell is cut off, no word is broken, no row is lost."""
    lines = printed(results, width)
    assert all(len(line.rstrip()) <= width for line in lines) and not any("…" in line for line in lines)
    text = "\n".join(lines)
    for words in ("autoregressive", "s2d2 always", "block=16 threshold=0.9", "block=8", "0.900", "0.517"):
        assert words in text
    assert text.count("dynamic") == 2


def test_narrow_means_fewer_columns_then_blocks(results):
    heads = [" ".join(printed(results, width)[1 if width > 100 else 2].split()) for width in (140, 80)]
    assert heads == [
        "decoder settings lossless n accuracy 95 % tok/s tok/fwd vs AR its 95 % p ms/fwd rows/fwd fwd/tok length",
        "decoder settings accuracy 95 % tok/s tok/fwd vs AR",
    ]
    assert "  tok/fwd 3.54*" in printed(results, 40)


def test_chosen_axes_are_the_columns(results):
    wish = Wish(axes=axes("forwards_per_token,peak_gib,speedup"))
    text = " ".join(printed(results, 140, wish)[1].split())
    assert text == "decoder settings lossless n accuracy 95 % fwd/tok GiB vs AR its 95 % p ms/fwd rows/fwd length"
    assert "fwd/tok: forward passes" in legend(build(find_runs([results]), wish)) and "less is better" in legend(
        build(find_runs([results]), wish)
    )


def test_sketch_fits_or_is_not_drawn(results):
    (table,) = build(find_runs([results])).tables
    metric = METRICS["tokens_per_s"]
    assert sketch(table, metric, 40) is None
    for width in (60, 80, 140):
        text = sketch(table, metric, width)
        assert max(map(len, text.splitlines())) <= width
    first, *_, last = text.splitlines()
    assert re.fullmatch(
        r" 0.900 \|.*b.* A", first
    )  # S2D2, on the front, right of autoregressive decoding, which is not
    assert last == "a s2d2 always, b autoregressive, c dynamic; capital: on the front"


def test_a_name_does_not_command_the_terminal(tmp_path, s2d2):
    sampled(
        tmp_path / "results",
        rights(0.9),
        2.0,
        20,
        config__model__name="a\x1b[2Jb",
        config__router__kind="x\x1b]0;y\x07",
    )
    assert s2d2("report") == 0 and "\x1b" not in s2d2.out and "a\u241b[2Jb" in s2d2.out


def test_settings_are_shown_without_their_rounding_errors(tmp_path):
    for threshold in (0.1 + 0.2, 0.5):
        sampled(tmp_path, rights(0.9), 2.0, 20, "decoder=dynamic", f"unmask.threshold={threshold}")
    assert set(build(find_runs([tmp_path])).tables[0].rows["varied"]) == {
        "block=16 threshold=0.3",
        "block=16 threshold=0.5",
    }


def test_a_long_front_keeps_its_figure_small_and_its_labels_apart(tmp_path):
    for number in range(30):
        words = ("decoder=dynamic", f"unmask.threshold={0.5 + number / 100:.2f}")
        sampled(tmp_path / "r", rights(0.3 + number / 50), 1 + number / 100, 20 + number, *words)
    files = write(build(find_runs([tmp_path / "r"])), tmp_path / "out")
    text = files[-1].read_text()
    assert 10 < text.count("dynamic block 16 threshold") <= 2 * 12 and len(text) < 200_000


def test_markdown_and_latex_keep_odd_names_in_their_cells(tmp_path):
    sampled(tmp_path, rights(0.9), 2.0, 20, "decoder=autoregressive", config__model__name=HOSTILE)
    sampled(
        tmp_path,
        rights(0.9),
        2.0,
        20,
        config__decoder="s2d2",
        config__router__kind="a_b&c$|d",
        config__model__name=HOSTILE,
    )
    report = build(find_runs([tmp_path]))
    rows = [line for line in latex(report).splitlines() if line.endswith(r"\\")]
    assert any(r"a\_b\&c\$|d" in line for line in rows)
    assert len({len(re.findall(r"(?<!\\)&", line)) for line in rows}) == 1
    tables = [line for line in markdown(report).splitlines() if line.startswith("|")]
    assert (
        len({len(re.findall(r"(?<!\\)\|", line)) for line in tables}) == 1 and r"a_b&c$\|d" in tables[-1] + tables[-2]
    )


def test_a_model_may_be_called_anything(tmp_path):
    for decoder in ("autoregressive", "dynamic"):
        sampled(tmp_path / "r", rights(0.9), 2.0, 20, f"decoder={decoder}", config__model__name=HOSTILE)
    report = build(find_runs([tmp_path / "r"]))
    files = write(report, tmp_path / "out")
    assert all(file.stat().st_size > 0 and file.parent == tmp_path / "out" for file in files)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<script") == 2 and "alert(1)</script>" not in page


def test_files_name_what_was_measured_how(results, tmp_path):
    """Fast-dLLM#49, ArcticInference#47, perf-eval#82: machine, batch, format, backend, and what was not timed."""
    write(build(find_runs([results])), tmp_path / "out")
    rows = pd.read_csv(tmp_path / "out" / "report.csv")
    for name in ("hardware", "devices", "batch_size", "dtype", "backend", "tokens", "forwards", "seconds", "folder"):
        assert rows[name].notna().all(), name
    assert rows["warm_up"].str.contains("before the clock started").all()
    assert "no loading, warm-up or scoring" in (tmp_path / "out" / "report.md").read_text()
    assert set(rows.loc[rows["front_tokens_per_s"], "decoder"]) == {"s2d2 always", "dynamic"}


def test_json_is_the_only_thing_on_stdout(s2d2, results):
    assert s2d2("report", "--json") == 0
    found = json.loads(s2d2.out)
    assert [row["decoder"] for row in found["rows"]] == ["s2d2 always", "autoregressive", "dynamic", "dynamic"]
    assert found["rows"][1]["p_value"] is None and found["rows"][0]["share_tokens_per_s"] == 1
    assert "results/report/report.html" in s2d2.err and found["published"] == []
    assert s2d2("report", "results/nothing", "--json") == 2 and s2d2.out == ""


def test_gate(s2d2, results):
    assert s2d2("report", "--fail-under", "accuracy=0.5") == 0
    assert s2d2("report", "--fail-under", "accuracy=0.7", "--fail-under", "tokens_per_s=1") == 3
    assert s2d2.err.count("failed: accuracy of dynamic") == 2
    assert (results / "report" / "report.html").is_file()
    assert s2d2("report", "--fail-under", "acc=0.7") == 2 and "--fail-under must be METRIC=NUMBER" in s2d2.err


def test_an_empty_gate_is_shut(s2d2, tmp_path):
    (tmp_path / "results").mkdir()
    assert s2d2("report", "--fail-under", "accuracy=0.1") == 3 and "there is no finished run" in s2d2.err


def test_sweep_to_figure_in_one_command(s2d2, results):
    """aiperf#874."""
    assert s2d2("report", "--x", "tokens_per_s,forwards_per_token,peak_gib") == 0
    names = {file.name for file in (results / "report").iterdir()}
    assert {"report.csv", "report.html", "report.tex", "pareto-1-tiny_math-tiny.png"} <= names


# Published figures


def test_published_figures_are_those_that_were_given():
    if not SHARED.is_dir():
        pytest.skip("the figures as they were given are not here")
    for name in ("s2d2.csv", "neighbours.csv"):
        ours, theirs = (
            list(csv.DictReader((folder / name).read_text().splitlines())) for folder in (published.FOLDER, SHARED)
        )
        assert all(row.pop("source") for row in ours) and ours == theirs


def test_published_figures_in_our_units():
    rows = published.published(["gsm8k"]).set_index(["model", "method", "setting"])
    row = rows.loc[("SDAR-8B", "s2d2", "A block=4")]
    assert (row["accuracy"], row["speedup"]) == (pytest.approx(0.896), 2.0) and "2603.25702" in row["source"]
    assert rows["accuracy"].dropna().between(0, 1).all()
    other = rows.loc[("SDAR-8B + SDAR-1.7B draft", "simsd", "B=4")]
    assert other["tokens_per_s"] == 72.6 and math.isnan(other["accuracy"]) and "2606.02544" in other["source"]


def test_published_rows_stand_beside_and_never_among(tmp_path, s2d2):
    for decoder in ("autoregressive", "dynamic"):
        sampled(tmp_path / "results", rights(0.3), 2.0, 20, f"decoder={decoder}", config__task__kind="gsm8k")
    assert s2d2("report") == 0
    plain = pd.read_csv(tmp_path / "results/report/report.csv")
    assert s2d2("report", "--published") == 0
    assert "Published, not measured here" in s2d2.out and "[Han et al. 2026, arXiv 2603.25702]" in s2d2.out
    pd.testing.assert_frame_equal(plain, pd.read_csv(tmp_path / "results/report/report.csv"))
    text = (tmp_path / "results/report/report.md").read_text()
    measured, beside = text.split("### Published, not measured here")
    assert "SDAR-8B" not in measured and beside.count("2603.25702") > 5
    assert "published, not measured" in (tmp_path / "results/report/pareto-1-gsm8k-tiny.svg").read_text()
    page = (tmp_path / "results/report/report.html").read_text()
    (table,) = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["tables"]
    assert len(table["rows"]) == 2 and len(table["published"]) > 5


def test_nothing_published_about_a_task_is_said_by_silence(s2d2, results):
    assert s2d2("report", "--published") == 0 and "Published" not in s2d2.out
