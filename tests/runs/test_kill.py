"""kill -9 at any moment: the same command again, and the file is what an undisturbed run writes."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from s2d2cli.config import RunConfig, compose
from s2d2cli.runs.evaluate import Models, evaluate

KILLS = 20


def config_for(folder: Path) -> RunConfig:
    words = ["task=tiny_math", "limit=90", "decode.block_length=16", "decode.temperature=0.7", "batch_size=4"]
    return compose([*words, "device=cpu", "threads=1"], {"results": str(folder)})


def killed(folder: Path, more: int, delay: float) -> bool:
    """Run in a child until so many more samples are written and a moment has passed; False when it ended before."""
    before, child = lines(folder), os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            evaluate(config_for(folder), Models())
        finally:
            os._exit(0)
    while lines(folder) < before + more and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def lines(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("*/samples.jsonl"))


def records(folder: Path) -> dict[str, str]:
    """Every line without what it cost, by id; a line that stands there twice would be two entries of one id."""
    (file,) = folder.glob("*/samples.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows), "a sample was decoded twice"
    return {row["id"]: json.dumps({k: v for k, v in row.items() if k != "cost"}, sort_keys=True) for row in rows}


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path):
    undisturbed = evaluate(config_for(tmp_path / "whole"), Models())
    rng, folder, seen = random.Random(0), tmp_path / "killed", set()
    for number in range(KILLS):
        early = number % 5 == 0  # while it loads, or begins to decode
        assert killed(folder, 0 if early else rng.randint(1, 4), rng.uniform(0.0, 0.5 if early else 0.03))
        seen.add(lines(folder))
    outcome = evaluate(config_for(folder), Models())
    assert len(seen) > 10, "the kills should fall into the run"
    assert records(folder) == records(tmp_path / "whole")
    assert outcome.record["status"] == "success"
    assert outcome.record["measures"] == undisturbed.record["measures"]
    assert outcome.record["speed"]["forwards"] == undisturbed.record["speed"]["forwards"]
