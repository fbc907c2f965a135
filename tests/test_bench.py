"""`s2d2 bench`: what a forward costs here."""

from __future__ import annotations

import json
import re

from s2d2cli.config import compose
from tests import published
from tests.test_cli import s2d2  # noqa: F401  the fixture


def test_what_it_prints_fixes_the_curve_of_the_router(s2d2):  # noqa: F811
    assert s2d2("bench", "--rows", "8", "--context", "64", "--batch-size", "2") == 0
    assert "tiny on cpu, 2 samples at once" in s2d2.out and "context 56" in s2d2.out
    line = next(line for line in s2d2.out.splitlines() if line.startswith("router="))
    router = compose([word.strip("'") for word in line.split(" ")]).router
    assert router.rows == [1, 2, 4, 8] and len(router.ms) == 4 and not router.needs_curve
    assert re.search(r"Up to \d rows? a forward takes at most 1.1 times", s2d2.out)


def test_json(s2d2):  # noqa: F811
    assert s2d2("bench", "--rows", "4", "--context", "64", "--json") == 0
    found = json.loads(s2d2.out)
    assert (found["model"], found["device"], found["rows"], found["contexts"]) == ("tiny", "cpu", [1, 2, 4], [15, 60])
    assert [len(line) for line in found["ms"]] == [3, 3]


def test_sizes_that_do_not_fit_are_refused(s2d2):  # noqa: F811
    assert s2d2("bench", "--rows", "64", "--context", "64") == 2
    assert "--rows must lie between 1 and 63, one less than --context, got 64" in s2d2.err
    assert s2d2("bench", "--context", "-5") == 2
    assert "--context must be at least 2, got -5" in s2d2.err
    assert s2d2("bench", "--context", "9999") == 2
    assert "--context must fit the context of tiny, 2048 tokens, got 9999" in s2d2.err


def test_a_model_that_attends_fully_needs_no_decoder_named(s2d2, tmp_path):  # noqa: F811
    published.llada(tmp_path / "llada")
    words = ("--model", str(tmp_path / "llada"), "model.family=llada", "--rows", "2", "--context", "16", "--json")
    assert s2d2("bench", *words) == 0 and json.loads(s2d2.out)["rows"] == [1, 2]
