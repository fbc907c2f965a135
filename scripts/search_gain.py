"""Does a search reach the front of a grid with a quarter of its runs?

    python scripts/search_gain.py --json                  # sweeps/routing_tiny.yaml: 235 runs, then 58; 15 minutes
    python scripts/search_gain.py --results DIR --seed 1  # goes on in DIR, where the grid may be finished already

Fronts are of accuracy and tokens per forward, which repeat exactly; they are compared by the area that they dominate,
above 0 and above the worst values of the grid. The last line of output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from s2d2cli.runs.metrics import ACCURACY, PER_FORWARD  # noqa: E402
from s2d2cli.runs.pareto import hypervolume  # noqa: E402
from s2d2cli.runs.report import find_runs  # noqa: E402
from s2d2cli.runs.search_front import values_of  # noqa: E402

Values = list[list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="where the runs are kept; a temporary folder by default")
    parser.add_argument("--sweep", default="routing_tiny", help="sweep file, or the name of a shipped one")
    parser.add_argument("--share", type=int, default=4, help="the search gets one in so many of the grid's runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print nothing but the object")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = compared(wanted, wanted.results or Path(folder))
    print(json.dumps(found))
    sys.exit(found["above_0"] < 0.98)


def compared(wanted: argparse.Namespace, results: Path) -> dict[str, float]:
    s2d2(wanted, "sweep", wanted.sweep, "-o", results / "grid")
    grid = front_values(results / "grid")
    trials = len(grid) // wanted.share
    mine = results / f"search-{wanted.seed}"
    s2d2(wanted, "search", wanted.sweep, "-o", mine, "--trials", trials, "--seed", wanted.seed)
    found = front_values(mine)
    worst = (min(a for a, _ in grid), min(b for _, b in grid))
    return {
        "grid": len(grid),
        "trials": trials,
        "runs": len(found),  # baselines included
        "above_0": area(found) / area(grid),
        "above_worst": area(found, worst) / area(grid, worst),
    }


def s2d2(wanted: argparse.Namespace, *words: object) -> None:
    line = [sys.executable, "-m", "s2d2cli", *map(str, words)]
    subprocess.run(line, check=True, cwd=ROOT, stdout=subprocess.DEVNULL if wanted.json else None)


def front_values(results: Path) -> Values:
    records = [folder.record() for folder in find_runs([results])]
    found = [values_of(record, (ACCURACY, PER_FORWARD)) for record in records if record is not None]
    return [pair for pair in found if pair is not None]


def area(values: Values, reference: tuple[float, float] = (0.0, 0.0)) -> float:
    return hypervolume([a for a, _ in values], [b for _, b in values], reference)


if __name__ == "__main__":
    main()
