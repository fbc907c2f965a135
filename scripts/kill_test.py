"""A sweep under random SIGKILL: each point must end up done once, with the values of an undisturbed run.

    python scripts/kill_test.py --json          # 60 points, 4 workers, a stand-in for the decoder: no torch, a minute
    python scripts/kill_test.py --real --json   # the same on the model `tiny`, through `s2d2 sweep --worker`

Workers are processes of their own, killed at random moments and started again as a scheduler would. The stand-in goes
through the manifest, claims, rows and run folders that every sweep goes through; only the tokens are made up.
The last line of output is one JSON object. Leaves with 1 when anything is missing, twice, torn or different.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from s2d2cli.runs.ledger import OK, Ledger, parsed  # noqa: E402
from s2d2cli.runs.manifest import Entry, Manifest, SweepFolder  # noqa: E402
from s2d2cli.runs.store import ROW, RunFolder, lacking  # noqa: E402
from s2d2cli.runs.workers import Finish, Worker  # noqa: E402

SAMPLES = 10
PAUSE = {"killed": 0.03, "whole": 0.0}  # seconds per sample; nobody kills the run that is only compared with
REAL = [
    "task=tiny_math",
    "limit=8",
    "batch_size=4",
    "decode.max_new_tokens=64",
    "decode.temperature=0.7",
    "decode.block_length=4,8,16",
    "router=always,min_span",
]


def stand_in(entry: Entry, sweep: SweepFolder) -> Finish:
    """In place of the model: each sample's text follows from the point's settings and its own name, after a while."""
    folder = RunFolder(sweep.results / f"stand-in-{entry.run_id}")
    with folder.locked():
        done = folder.rows()
        for number in range(SAMPLES):
            if f"made/{number}" not in done:
                time.sleep(PAUSE[sweep.results.name])
                folder.append(sample(entry, number))
        texts = "".join(folder.rows()[f"made/{number}"]["text"] for number in range(SAMPLES))
        folder.write({"status": "success", "n": SAMPLES, "config": entry.config, "accuracy": int(digest(texts), 16)})
    return Finish(folder.path, interrupted=False)


def sample(entry: Entry, number: int) -> dict[str, object]:
    """A row of samples.jsonl, complete as the store demands it."""
    empty = {str: "", int: 0, bool: False, dict: {}, object: None, list: []}
    row: dict[str, object] = {name: empty.get(kind, 0) for name, kind in ROW.items() if "." not in name}
    cost = {"seconds": {}, "latency_s": 0.0, "forwards": 0.0, "query_rows": 0.0}
    row |= {"id": f"made/{number}", "text": digest(f"{entry.config}/{number}"), "cost": cost}
    assert not lacking(row, ROW)
    return row


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def made_up(folder: Path, points: int) -> SweepFolder:
    """A sweep of `points` points for the stand-in."""
    sweep = SweepFolder(folder / "sweeps" / "kill")
    entries = [Entry(digest(f"point {seed}"), [f"seed={seed}"], {"seed": seed}, "") for seed in range(points)]
    sweep.write(Manifest(entries, str(ROOT)))
    return sweep


def real(folder: Path, points: int) -> SweepFolder:
    """A sweep of the shipped model; sampled, so that each seed is a point of its own."""
    seeds = f"seed=range({-(-points // 6)})"
    command = [sys.executable, "-m", "s2d2cli", "sweep", *REAL, seeds, "--workers", "0", "--results", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, stderr=subprocess.DEVNULL)
    (path,) = (folder / "sweeps").iterdir()
    return SweepFolder(path)


@dataclass
class Killer:
    """Keeps `workers` processes going, and kills one of them every now and then until all points are done."""

    sweep: SweepFolder
    command: Sequence[str]
    workers: int
    pause: tuple[float, float]  # between kills
    most: int
    kills: int = 0

    def run(self, rng: random.Random) -> None:
        crew = [self.start() for _ in range(self.workers)]
        ledger, total = Ledger(self.sweep.path / "rows"), len(self.sweep.read().entries)
        due = time.monotonic() + rng.uniform(*self.pause)
        while len(done(ledger)) < total:
            time.sleep(0.02)
            if time.monotonic() >= due and self.kills < self.most:
                due = time.monotonic() + rng.uniform(*self.pause)
                victim = rng.choice(crew)
                self.kills += victim.poll() is None
                victim.kill()
            crew = [self.start() if process.poll() is not None else process for process in crew]
        for process in crew:
            process.wait()

    def start(self) -> subprocess.Popen[bytes]:
        with (self.sweep.path / "logs" / "workers.log").open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log, cwd=ROOT)


def done(ledger: Ledger) -> set[str]:
    ledger.refresh()
    return {name for name, rows in ledger.rows.items() if any(row.status == OK for row in rows)}


def values(sweep: SweepFolder) -> dict[str, str]:
    """What each point came to: its samples without what they cost."""
    found = {}
    for entry in sweep.read().entries:
        (folder,) = sweep.results.glob(f"*-{entry.run_id}")
        rows = RunFolder(folder).rows()
        kept = {name: {k: v for k, v in row.items() if k != "cost"} for name, row in rows.items()}
        found[entry.run_id] = json.dumps(kept, sort_keys=True)
    return found


def torn(sweep: SweepFolder) -> int:
    """Lines that cannot be read: of rows and of samples."""
    rows = [line for file in (sweep.path / "rows").glob("*.jsonl") for line in file.read_bytes().split(b"\n")]
    samples = [line for file in sweep.results.glob("*/samples.jsonl") for line in file.read_bytes().split(b"\n")]
    return sum(parsed(line) is None for line in rows if line) + sum(not readable(line) for line in samples if line)


def readable(line: bytes) -> bool:
    try:
        return not lacking(json.loads(line), ROW)
    except ValueError:
        return False


def twice(sweep: SweepFolder) -> int:
    """Points with a second ok row, and samples that stand there a second time."""
    ledger = Ledger(sweep.path / "rows")
    ledger.refresh()
    points = sum(max(0, sum(row.status == OK for row in rows) - 1) for rows in ledger.rows.values())
    files = [file.read_text(encoding="utf-8").splitlines() for file in sweep.results.glob("*/samples.jsonl")]
    ids = [Counter(json.loads(line)["id"] for line in lines if readable(line.encode())) for lines in files]
    return points + sum(count - 1 for counter in ids for count in counter.values())


def compare(make: Callable[[Path, int], SweepFolder], args: argparse.Namespace, folder: Path) -> dict[str, object]:
    began = time.monotonic()
    disturbed, whole = make(folder / "killed", args.points), make(folder / "whole", args.points)
    script = [sys.executable, str(Path(__file__).resolve())]
    module = [sys.executable, "-m", "s2d2cli", "sweep"]
    command = [*(module if args.real else script), "--worker"]
    pause = (3.0, 15.0) if args.real else (0.1, 0.5)
    killer = Killer(disturbed, [*command, str(disturbed.path)], args.workers, pause, most=args.points)
    killer.run(random.Random(args.seed))
    if args.real:
        subprocess.run([*command, str(whole.path)], check=True, cwd=ROOT, stderr=subprocess.DEVNULL)
    else:
        work(whole)
    before, after = values(whole), values(disturbed)
    ledger = Ledger(disturbed.path / "rows")
    finished = done(ledger)
    return {
        "points": len(before),
        "rows": len(finished),
        "duplicates": twice(disturbed),
        "torn": torn(disturbed),
        "differing": sum(before[name] != after[name] for name in before),
        "kills": killer.kills,
        "taken_over": sum(row.died for rows in ledger.rows.values() for row in rows),
        "seconds": round(time.monotonic() - began, 1),
    }


def work(sweep: SweepFolder) -> None:
    for _ in Worker(sweep, stand_in).run():
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print nothing but the object")
    parser.add_argument("--real", action="store_true", help="on the model tiny; takes minutes")
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=None, help="of the moments of the kills; any by default")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(SweepFolder(args.worker))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = compare(real if args.real else made_up, args, Path(folder))
    good = found["rows"] == found["points"] and not any(found[k] for k in ("duplicates", "torn", "differing"))
    if not args.json:
        print("every point once, and as undisturbed" if good else "something is lost, twice, torn or different")
    print(json.dumps(found))
    sys.exit(not good)


if __name__ == "__main__":
    main()
