"""`report --trace`: what the page knows, what it refuses, and how it behaves in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from s2d2cli.errors import PromptError
from s2d2cli.runs.timeline import MOST, timeline
from tests.runs.test_html import chromium as chromium
from tests.test_cli import s2d2 as s2d2

HOSTILE = "</script><img src=x onerror=alert(1)>"
SOURCES = ("unmasked", "accepted", "resampled")


def token(position: int, text: str, source: str = "unmasked", **more: object) -> dict:
    told = {"token": position, "reason": source, "draft_prob": 0.9, "verify_prob": None}
    return {"position": position, "text": text, "source": source} | told | more


def step(number: int, forwards: int, block: int, *tokens: dict, verified: bool = False) -> dict:
    told = {"span": 2, "score": None, "expected": 1.234, "accepted": 1 if verified else 0, "verified": verified}
    return {"step": number, "block": block, "forwards": forwards, "tokens": list(tokens)} | told


def entry(decoder: str = "dynamic", *steps: dict, id: str = "a", prompt: str = "two", **decode: object) -> dict:
    """Two tokens of prompt; blocks of two; the answer has four tokens, the last one a stop token."""
    config = {
        "decoder": decoder,
        "router": {"kind": "always" if decoder == "s2d2" else "never"},
        "model": {"name": "tiny"},
        "task": {"kind": "tiny_math"},
        "unmask": {"kind": "low_confidence_dynamic", "threshold": decode.pop("threshold", 0.9)},
        "decode": {"block_length": 2, "denoising_steps": 2} | decode,
    }
    found = {"id": id, "config": config, "prompt": prompt, "block_length": 2, "prompt_tokens": 2, "tokens": 4}
    return found | {"finish": "stop", "steps": list(steps) or SLOW}


SLOW = [
    step(0, 2, 1, token(2, "A")),
    step(1, 3, 1, token(3, "\n")),
    step(2, 4, 2, token(5, "", reason="owed")),
    step(3, 5, 2, token(4, "  c", reason="confident")),
]
FAST = [
    step(0, 3, 1, token(2, "A", "accepted", verify_prob=0.75), token(3, HOSTILE, "resampled"), verified=True),
    step(1, 4, 2, token(4, "é", reason="owed"), token(5, ""), token(6, "behind the stop")),
]


def written(path: Path, *entries: dict) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in entries))
    return path


@pytest.fixture
def two(tmp_path) -> list[Path]:
    return [written(tmp_path / "slow.jsonl", entry()), written(tmp_path / "fast.jsonl", entry("s2d2", *FAST))]


# What the page knows


def known(paths: list[Path]) -> dict:
    html = timeline(paths).html()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1])


def test_a_lane_per_trace_on_a_common_axis(two):
    data = known(two)
    (sample,) = data["samples"]
    slow, fast = sample["lanes"]
    assert [lane["label"] for lane in (slow, fast)] == ["dynamic block=2", "s2d2 always block=2"]
    assert (slow["forwards"], fast["forwards"]) == (5, 4)
    assert [t["text"] for t in slow["tokens"]] == ["A", "\n", "  c", "∎"]
    assert [t["at"] for t in slow["tokens"]] == [2, 3, 5, 4] and [t["at"] for t in fast["tokens"]] == [3, 3, 4, 4]
    assert fast["bars"] == [
        {"at": 3, "total": 2, "counts": {"accepted": 1, "resampled": 1}},
        {"at": 4, "total": 2, "counts": {"unmasked": 2}},
    ]
    assert set(data["sources"]) == set(SOURCES)


EDITED = [
    step(0, 2, 1, token(2, "A"), token(3, "x")),
    step(1, 3, 1, token(3, "y", "edited", reason="edited")),
    step(2, 4, 2, token(4, "c"), token(5, "")),
]


def test_an_edited_token_stands_until_its_successor_does(tmp_path):
    data = known([written(tmp_path / "edits.jsonl", entry("dynamic", *EDITED))])
    (lane,) = data["samples"][0]["lanes"]
    seen = [(t["text"], t["at"], t["until"]) for t in lane["tokens"]]
    assert seen == [("A", 2, None), ("x", 2, 3), ("y", 3, None), ("c", 4, None), ("∎", 4, None)]
    assert lane["bars"][1] == {"at": 3, "total": 1, "counts": {"edited": 1}}
    assert set(data["sources"]) == {"unmasked", "edited"}


def test_nothing_from_outside_becomes_markup(two):
    html = timeline(two).html()
    assert HOSTILE not in html and html.count("</script>") == 2
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", html.replace("img src=x", ""))
    assert "default-src 'none'" in html and not re.search(r"/\*(css|js|data)\*/", html)


def test_labels_tell_lanes_apart(tmp_path):
    one = written(tmp_path / "a.jsonl", entry(threshold=0.5), entry(threshold=0.9))
    two = written(tmp_path / "b.jsonl", entry(threshold=0.9))
    labels = [lane.label for lane in timeline([one, two]).lanes]
    assert labels[0] == "dynamic block=2 threshold=0.5"
    assert labels[1:] == [f"dynamic block=2 threshold=0.9, {path}" for path in (one, two)]


def test_only_shared_samples_and_not_too_many(tmp_path):
    ids = [f"t/{i}" for i in range(MOST + 5)]
    one = written(tmp_path / "a.jsonl", *(entry(id=i) for i in ["lonely", *ids]))
    two = written(tmp_path / "b.jsonl", *(entry("s2d2", id=i) for i in reversed(ids)))
    made = timeline([one, two])
    assert made.samples == ids and len(known([one, two])["samples"]) == MOST
    other = written(tmp_path / "c.jsonl", entry(id="t/0", prompt="another"), entry(id="t/1"))
    assert timeline([one, other]).samples == ["t/1"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (entry(prompt="another"), "sample 'a' differs in its prompt"),
        (entry(id="b"), "they have no sample in common"),
    ],
)
def test_other_prompts_are_refused(tmp_path, other, reason):
    one, two = written(tmp_path / "a.jsonl", entry()), written(tmp_path / "b.jsonl", other)
    with pytest.raises(PromptError, match=f"must be of the same prompts, and in .* {reason}"):
        timeline([one, two])


# The command


def test_report_writes_the_page_from_real_traces(s2d2):
    for decoder in ("dynamic", "s2d2"):
        words = ("generate", "How many are 2 and 3?", "-b", "8", "-n", "24", "--decoder", decoder)
        assert s2d2(*words, "--trace", f"{decoder}.jsonl") == 0
    assert s2d2("report", "--trace", "dynamic.jsonl", "s2d2.jsonl", "--out", "page") == 0
    assert s2d2.out == "page/timeline.html\n"
    assert s2d2("report", "--trace", "dynamic.jsonl", "--trace", "s2d2.jsonl", "--out", "again") == 0
    assert Path("page/timeline.html").read_text() == Path("again/timeline.html").read_text()
    lanes = known([Path("dynamic.jsonl"), Path("s2d2.jsonl")])["samples"][0]["lanes"]
    for lane, line in zip(lanes, ("dynamic", "s2d2"), strict=True):
        traced = json.loads(Path(f"{line}.jsonl").read_text())
        assert len(lane["tokens"]) == traced["tokens"] and lane["forwards"] == traced["steps"][-1]["forwards"]
    assert s2d2("report", "--trace", "none.jsonl") == 2 and "cannot read the trace 'none.jsonl'" in s2d2.err
    assert s2d2("report", "--trace", "dynamic.jsonl", "page") == 2 and "cannot read the trace 'page'" in s2d2.err


# In a browser


@pytest.fixture
def page(two, tmp_path, chromium):
    file = tmp_path / "timeline.html"
    file.write_text(timeline(two).html(), encoding="utf-8")
    chromium.open(file, "#forwards=3")
    return chromium


def texts(page) -> list[str]:
    """What stands in the lanes, without what is hidden."""
    return page.run("return [...document.querySelectorAll('.lane pre')].map(pre => pre.innerText)")


def stats(page) -> list[str]:
    return page.run("return [...document.querySelectorAll('.stat')].map(one => one.textContent)")


def test_the_lanes_at_a_moment(page):
    assert texts(page) == ["A\n░░░░", f"A{HOSTILE}░░░░"]
    assert stats(page) == ["2 tokens, 3 forwards, 0.67 tokens per forward"] * 2
    page.click("#on")
    assert stats(page)[1] == "done: 4 tokens, 4 forwards, 1.00 tokens per forward"
    assert texts(page) == ["A\n░░∎", f"A{HOSTILE}é∎"]
    page.click("#on")
    page.click("#on")
    assert texts(page)[0] == "A\n  c∎" and stats(page)[0].startswith("done: 4 tokens, 5 forwards")
    page.click("#start")
    assert texts(page) == ["░░░░", "░░░░"] and stats(page)[0].startswith("0 tokens, 0 forwards")
    page.click("#on")
    page.click("#on")
    page.click("#back")
    assert page.run("return document.getElementById('now').textContent") == "1 of 5"
    assert page.complaints() == []


def test_an_edit_takes_the_place_of_its_token(tmp_path, chromium):
    file = tmp_path / "timeline.html"
    file.write_text(timeline([written(tmp_path / "edits.jsonl", entry("dynamic", *EDITED))]).html(), encoding="utf-8")
    chromium.open(file, "#forwards=2")
    assert texts(chromium) == ["Ax"] and stats(chromium)[0].startswith("2 tokens, 2 forwards")
    chromium.click("#on")
    assert texts(chromium) == ["Ay░░░░"] and stats(chromium)[0].startswith("2 tokens, 3 forwards")
    chromium.click("#on")
    assert texts(chromium) == ["Ayc∎"] and stats(chromium)[0].startswith("done: 4 tokens")
    assert chromium.complaints() == []


def test_hovering_tells_a_token_s_story(page):
    page.hover(".lane:nth-child(2) .token.accepted")
    tip = page.run("return document.getElementById('tip').textContent").splitlines()
    assert tip == [
        '"A", position 2, block 1',
        "step 0, after 3 forwards: verified, 1 accepted (1.23 expected)",
        "accepted",
        "draft probability 0.9000",
        "verify probability 0.7500",
    ]
    assert page.run("return document.getElementById('tip').hidden") is False
    page.hover("h1")
    assert page.run("return document.getElementById('tip').hidden") is True


def test_it_plays_to_the_end(page):
    page.run("document.getElementById('speed').value = '20'")
    page.click("#play")
    assert page.run("return document.getElementById('play').textContent") == "pause"
    wait = "const done = arguments[arguments.length - 1]; setTimeout(done, 600)"
    page.ask("POST", "/execute/async", {"script": wait, "args": []})
    assert all(stat.startswith("done") for stat in stats(page))
    assert page.run("return document.getElementById('play').textContent") == "play"
