"""The page in a real browser: front, axes, filters, hovering, sorting, links; and that it stays small and safe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from s2d2cli.runs.html import page
from s2d2cli.runs.report import Wish, build, find_runs
from s2d2cli.runs.report_files import write
from tests.runs.browser import Browser, browser, programs
from tests.runs.report_runs import rights, sampled
from tests.runs.test_report_output import HOSTILE


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    found = programs()
    if found is None:
        pytest.skip("no chromium with chromedriver here (apt-get install chromium chromium-driver)")
    with browser(*found, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report_page(tmp_path_factory) -> Path:
    """Four runs on one task under a hostile name, and two on another for which there are published figures."""
    folder = tmp_path_factory.mktemp("page")
    odd = {"config__model__name": HOSTILE}
    sampled(folder / "results", rights(0.9), 2.0, 20, "decoder=autoregressive", **odd)
    sampled(folder / "results", rights(0.5), 0.8, 10, "decoder=dynamic", "unmask.threshold=0.5", **odd)
    sampled(folder / "results", [i < 31 for i in range(60)], 0.81, 12, "decoder=dynamic", "unmask.threshold=0.9", **odd)
    sampled(folder / "results", rights(0.9), 1.0, 14, "decode.block_length=8", **odd)
    for decoder in ("autoregressive", "dynamic"):
        sampled(folder / "results", rights(0.3), 1.0, 20, f"decoder={decoder}", config__task__kind="gsm8k")
    write(build(find_runs([folder / "results"]), Wish(published=True)), folder / "out")
    return folder / "out" / "report.html"


FIRST = "section:first-child"


def settings_of(chromium: Browser) -> list[str]:
    """The rows of the first table as they stand."""
    script = f"return [...document.querySelectorAll('{FIRST} tbody tr')].map(row => row.cells[1].textContent)"
    return chromium.run(script)


def choose(chromium: Browser, control: str, value: str) -> None:
    script = f"const one = document.getElementById('{control}'); one.value = {json.dumps(value)};"
    chromium.run(script + "one.dispatchEvent(new Event('input', {bubbles: true}))")


def front_of(chromium: Browser) -> list[list[float]]:
    script = f"return document.querySelector('{FIRST} polyline').getAttribute('points')"
    return [[float(number) for number in pair.split(",")] for pair in chromium.run(script).split()]


def test_it_opens_without_a_word_of_complaint(chromium, report_page):
    chromium.open(report_page)
    assert chromium.complaints() == []
    assert chromium.run("return performance.getEntriesByType('resource').length") == 0
    assert chromium.run("return document.querySelectorAll('svg[role=img]').length") == 2
    titles = chromium.run("return [...document.querySelectorAll('#tables h2')].map(one => one.textContent)")
    assert titles[0].startswith(f"tiny_math on {HOSTILE}; 60 of 500 samples, fewer than 200: rough;")


def test_points_and_front(chromium, report_page):
    """A point per run at its numbers; the front runs through its points and is steps."""
    chromium.open(report_page)
    assert chromium.run(f"return document.querySelectorAll('{FIRST} .mark').length") == 4
    line = front_of(chromium)
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in zip(line[:-1], line[1:], strict=True))
    assert [point[0] for point in line] == sorted(point[0] for point in line)
    assert [point[1] for point in line] == sorted(point[1] for point in line)  # down the page
    script = f"return [...document.querySelectorAll('{FIRST} .mark')].map(one => one.getAttribute('transform'))"
    at = [[float(number) for number in re.findall(r"[\d.]+", text)] for text in chromium.run(script)]
    on = chromium.run(
        "return data.tables[0].rows.map(row => row.front.tokens_per_s !== '')"  # the order is that of the points
    )
    assert on == [True, False, True, True]
    for place, is_on in zip(at, on, strict=True):
        assert (place in line[1:-1]) == is_on  # beyond its points the line is led on to the edges


def test_the_other_axis_has_the_other_front(chromium, report_page):
    chromium.open(report_page, "#x=forwards_per_token")
    assert chromium.run("return document.querySelector('svg[role=img]').textContent").count("forwards/token") >= 1
    line = front_of(chromium)
    assert [point[1] for point in line] == sorted((point[1] for point in line), reverse=True)  # fewer is better
    choose(chromium, "x", "tokens_per_s")
    assert front_of(chromium) != line and chromium.run("return location.hash") == "#x=tokens_per_s"


def test_filters(chromium, report_page):
    chromium.open(report_page)
    assert len(settings_of(chromium)) == 4
    choose(chromium, "decoder", "dynamic")
    assert settings_of(chromium) == ["block=16 threshold=0.9", "block=16 threshold=0.5"]
    assert chromium.run(f"return document.querySelectorAll('{FIRST} .out').length") == 2
    choose(chromium, "words", "threshold=0.5")
    assert settings_of(chromium) == ["block=16 threshold=0.5"]
    choose(chromium, "words", "")
    choose(chromium, "decoder", "")
    choose(chromium, "router", "always")
    assert settings_of(chromium) == ["block=8"]
    choose(chromium, "router", "")
    choose(chromium, "task", "gsm8k")
    assert chromium.run("return document.querySelectorAll('section svg[role=img]').length") == 1


def test_hovering_tells_the_numbers_and_finds_the_row(chromium, report_page):
    chromium.open(report_page)
    assert chromium.run("return document.getElementById('tip').hidden")
    point = f"{FIRST} svg [data-id] .mark"
    chromium.hover(point)
    told = chromium.run("return document.getElementById('tip').innerText").splitlines()
    assert told[0] == "s2d2 always block=8" and told[1].startswith("accuracy 0.900 (") and "n = 60" in told[1]
    assert told[2].startswith("tokens/s ") and told[3].startswith("2.00 (") and told[4] == "on the Pareto front"
    assert chromium.run("return document.querySelectorAll('tr.lit').length") == 1
    chromium.hover("h1")
    assert chromium.run("return document.getElementById('tip').hidden")
    assert chromium.run("return document.querySelectorAll('.lit').length") == 0


def test_a_point_that_is_not_sure_is_hollow_and_says_its_share(chromium, report_page):
    chromium.open(report_page)
    script = f"return [...document.querySelectorAll('{FIRST} .mark')].map(one => one.getAttribute('fill'))"
    assert [fill == "var(--paper)" for fill in chromium.run(script)] == [False, False, True, False]
    chromium.hover(f"{FIRST} svg g[data-id]:nth-of-type(3) .mark")
    assert re.search(
        r"on the front in \d\d % of the draws", chromium.run("return document.getElementById('tip').innerText")
    )


def test_sorting(chromium, report_page):
    chromium.open(report_page)
    by_accuracy = settings_of(chromium)
    chromium.click(f"{FIRST} th[data-column=tokens_per_s] button")
    assert settings_of(chromium) == [
        "block=16 threshold=0.5", "block=16 threshold=0.9", "block=8", "block=1",
    ] != by_accuracy  # fmt: skip
    chromium.click(f"{FIRST} th[data-column=tokens_per_s] button")
    assert settings_of(chromium)[0] == "block=1"
    assert (
        chromium.run(f"return document.querySelector('{FIRST} [aria-sort=ascending]').dataset.column") == "tokens_per_s"
    )
    chromium.click(f"{FIRST} th[data-column=p] button")
    assert settings_of(chromium)[-1] == "block=1"  # the baseline has no p-value, so it stands last


def test_links_lead_to_the_run(chromium, report_page):
    """Streaming-dLLM#2: every figure leads to the run that it comes from."""
    chromium.open(report_page)
    targets = chromium.run("return [...document.querySelectorAll('td a')].map(one => one.href)")
    assert len(targets) == 24
    for target in targets:
        assert Path(target.removeprefix("file://")).exists(), target


def test_a_click_opens_the_settings(chromium, report_page):
    chromium.open(report_page)
    chromium.click(f"{FIRST} tbody tr")
    told = chromium.run("return document.querySelector('.opened').innerText")
    for words in (
        "decode.block_length\n8",
        "seconds prefill",
        "answers of 17 to 32 tokens",
        "batch_size",
        "warm_up",
        "s2d2 compare",
    ):
        assert words in told
    chromium.click(f"{FIRST} tbody tr")
    assert chromium.run("return document.querySelector('.opened')") is None


def test_intervals_and_published_rows_can_be_left_out(chromium, report_page):
    chromium.open(report_page, "#x=speedup&task=gsm8k")
    bars, beside = (
        "return document.querySelectorAll('svg .bar').length",
        "return document.querySelectorAll('g.published').length",
    )
    assert chromium.run(bars) >= 2 and chromium.run(beside) >= 5
    chromium.hover("g.published path")
    told = chromium.run("return document.getElementById('tip').innerText").splitlines()
    assert told[0] == "SDAR-8B ar block=1" and told[1].startswith("published, not measured here")
    assert told[2:] == ["accuracy 0.893", "speed-up 1.00", "Han et al. 2026, arXiv 2603.25702"]
    chromium.click("#bars")
    chromium.click("#published")
    assert chromium.run(bars) == 0 and chromium.run(beside) == 0
    assert chromium.run("return document.querySelector('table.published')") is None


def test_light_and_dark(chromium, report_page):
    chromium.open(report_page)
    ask = "return getComputedStyle(document.body).backgroundColor"
    seen = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chromium.ask(
            "POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        )
        seen.append(chromium.run(ask))
    assert seen == ["rgb(255, 255, 255)", "rgb(23, 24, 26)"]


def test_forty_runs_stay_small_and_ask_for_nothing(tmp_path):
    for number in range(40):
        sampled(tmp_path, rights(number / 40, 8), 1.0, 10, f"unmask.threshold={0.5 + number / 100}", "router=min_span")
    text = page(build(find_runs([tmp_path])), tmp_path / "out")
    assert len(text.encode()) < 300_000
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and "src=" not in text and "@import" not in text
