"""scripts/kill_test.py, with fewer points than the full run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "kill_test.py"


def killed(*words: str) -> dict[str, int]:
    done = subprocess.run([sys.executable, str(SCRIPT), "--json", *words], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_small_sweep_survives_kills():
    found = killed("--points", "12", "--workers", "3", "--seed", "1")
    assert (found["points"], found["rows"]) == (12, 12) and found["kills"] >= 2
    assert (found["duplicates"], found["torn"], found["differing"]) == (0, 0, 0)


@pytest.mark.slow
def test_the_shipped_model_survives_kills():
    found = killed("--real", "--points", "12", "--workers", "2")
    assert found["rows"] == found["points"] and found["kills"] >= 1


def test_the_stand_in_needs_no_torch():
    """Workers are started again and again; torch alone takes seconds to import."""
    script = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import kill_test; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
