"""Finished runs with samples, made up: what decodes how fast and gets what right is the test's to say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s2d2cli.decode.meter import PHASES
from s2d2cli.runs.store import RunFolder
from s2d2cli.runs.summary import summarise
from tests.runs.test_report import run


def line(number: int, right: bool, tokens: int, seconds: float, forwards: int) -> dict[str, Any]:
    """A line of samples.jsonl."""
    split = {phase: seconds / len(PHASES) for phase in PHASES}
    return {
        "id": f"q/{number}",
        "problem": f"q/{number}",
        "repeat": 0,
        "prompt_sha256": f"{number:016x}",
        "text": "answer",
        "prompt_tokens": 5,
        "tokens": tokens,
        "token_ids": [],
        "finish": "stop",
        "masked": False,
        "forwards": {"prefill": 1, "draft": forwards - 1},
        "accepted": 0,
        "verified": 0,
        "drafted_steps": forwards - 1,
        "sources": {},
        "cost": {"seconds": split, "latency_s": seconds, "forwards": float(forwards), "query_rows": 4.0 * forwards},
        "correct": right,
        "extracted": "answer",
        "measures": {"paper": [int(right), 1]},
        "detail": {},
        "error": None,
        "alarms": [],
    }


def sampled(
    results: Path, rights: Sequence[bool], seconds: float, forwards: int, *overrides: str, **changes: Any
) -> RunFolder:
    """A run on disk: `seconds` and `forwards` of each sample, which takes longer the higher its number."""
    lines = [line(i, right, 20 + i, seconds * (1 + i / 10), forwards) for i, right in enumerate(rights)]
    return stored(results, lines, *overrides, **changes)


def stored(results: Path, lines: Sequence[dict[str, Any]], *overrides: str, **changes: Any) -> RunFolder:
    """A run on disk of these samples."""
    made = run(0.0, 1.0, 1.0, *overrides, **changes) | summarise(lines) | {"samples": len(lines)}
    made["memory"] = {"peak_bytes": 2**30, "of": "process"}
    made["warm_up"] = "q/0 decoded once before the clock started"
    folder = RunFolder(results / f"run-{len(list(results.glob('run-*'))) if results.is_dir() else 0}")
    folder.path.mkdir(parents=True)
    (folder.path / "run.json").write_text(json.dumps(made))
    (folder.path / "config.yaml").write_text("made: up\n")
    (folder.path / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def rights(share: float, n: int = 60) -> list[bool]:
    return [i < share * n for i in range(n)]
