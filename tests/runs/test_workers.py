"""Claims, rows and workers: each point is done once, whoever dies, stops or comes late. No model anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from s2d2cli.errors import BusyError, ConfigError
from s2d2cli.runs import claims, workers
from s2d2cli.runs.claims import Holder
from s2d2cli.runs.launch import Crew, surroundings, visible_gpus
from s2d2cli.runs.ledger import FAILED, INTERRUPTED, OK, Ledger, PointRow
from s2d2cli.runs.manifest import Entry, Manifest, SweepFolder
from s2d2cli.runs.status import standings
from s2d2cli.runs.workers import Finish, Worker, parse_shard

DEAD = Holder(pid=2**22 + 1, started="1")  # above every process number


def sweep_of(folder: Path, points: int = 4, **settings) -> SweepFolder:
    sweep = SweepFolder(folder / "sweeps" / "s")
    entries = [Entry(f"{n:012x}", [f"seed={n}"], {"seed": n}, f"model {n % 2}") for n in range(points)]
    sweep.write(Manifest(entries, str(folder), **settings))
    return sweep


def fine(entry: Entry, sweep: SweepFolder) -> Finish:
    return Finish(sweep.results / f"run-{entry.run_id}", False)


def rows_of(sweep: SweepFolder) -> list[PointRow]:
    return Ledger(sweep.path / "rows").refresh()


def hold(sweep: SweepFolder, name: str, holder: Holder) -> Path:
    path = sweep.path / "claims" / name
    path.write_text(json.dumps(holder.__dict__))
    return path


# Claims


def test_one_of_many_takes_a_point(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: claims.take(tmp_path, "a"), range(64)))
    held = [claim for claim in taken if claim]
    assert len(held) == 1 and claims.holder_of(held[0].path) == held[0].mine
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["a"]
    held[0].release()
    assert claims.take(tmp_path, "a") is not None


def test_the_claim_of_a_dead_process_is_taken_over_by_one(tmp_path):
    sweep = sweep_of(tmp_path)
    hold(sweep, "a", DEAD)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: claims.take(sweep.path / "claims", "a"), range(64)))
    (claim,) = [claim for claim in taken if claim]
    assert claim.died == DEAD


def test_a_process_number_that_was_given_out_again_is_another_process(tmp_path):
    assert not Holder().dead and Holder(started="long ago").dead


def test_a_process_that_is_dead_and_not_yet_waited_for(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = Holder(pid=child.pid, started=claims.started(child.pid))
    assert not holder.dead
    child.kill()
    while not holder.dead:
        time.sleep(0.01)
    child.communicate()


def test_another_host_s_claim_is_stale_only_when_it_is_silent(tmp_path):
    sweep = sweep_of(tmp_path)
    path = hold(sweep, "a", Holder(host="elsewhere", pid=1, started="1"))
    assert claims.take(sweep.path / "claims", "a") is None
    os.utime(path, (0, time.time() - claims.TTL_S - 5))
    claim = claims.take(sweep.path / "claims", "a")
    assert claim is not None and claim.died.host == "elsewhere"


def test_a_claim_is_refreshed_while_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "TTL_S", 0.08)
    claim = claims.take(tmp_path, "a")
    with claim.kept():
        os.utime(claim.path, (0, 0))
        deadline = time.monotonic() + 5
        while claim.path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert claim.path.stat().st_mtime > 0
    assert not claim.path.exists()


def test_a_claim_that_was_taken_over_is_neither_refreshed_nor_released(tmp_path):
    claim = claims.take(tmp_path, "a")
    with claim.kept():
        other = Holder(host="elsewhere")
        (tmp_path / "new").write_text(json.dumps(other.__dict__))
        os.replace(tmp_path / "new", claim.path)
    assert claims.holder_of(tmp_path / "a") == other


def test_claims_can_be_broken(tmp_path):
    sweep = sweep_of(tmp_path)
    hold(sweep, "a", Holder(host="elsewhere"))
    assert [holder.host for holder in claims.break_all(sweep.path / "claims")] == ["elsewhere"]
    assert claims.take(sweep.path / "claims", "a").died is None


# Rows


def test_torn_lines_do_not_count_and_each_row_is_read_once(tmp_path):
    row = PointRow("a", OK, 1, 0.0, 1.0, "h", 1, "v")
    writer, reader = Ledger(tmp_path), Ledger(tmp_path)
    writer.append(row)
    (tmp_path / "dead.jsonl").write_bytes(b'{"run_id": "b", "sta')
    assert reader.refresh() == [row] and reader.refresh() == []
    with (tmp_path / "dead.jsonl").open("ab") as file:
        file.write(b"\n")
    writer.append(replace(row, run_id="c"))
    assert [r.run_id for r in reader.refresh()] == ["c"]


def test_an_ok_row_settles_a_point_whatever_else_there_is(tmp_path):
    book, entry = Ledger(tmp_path), Entry("a", [], {}, "")
    row = PointRow("a", INTERRUPTED, 1, 0.0, 1.0, "h", 1, "v")
    for number, status in enumerate((INTERRUPTED, OK, FAILED), 1):
        book.append(replace(row, status=status, attempt=number))
    book.refresh()
    assert book.verdict(entry).status == OK
    assert book.verdict(replace(entry, after=2)).status == FAILED
    assert book.verdict(replace(entry, after=3)) is None and book.attempts("a") == 3


# Workers


def test_every_point_once_and_the_loaded_model_first(tmp_path):
    sweep = sweep_of(tmp_path, 6)
    seen = []
    for _ in Worker(sweep, lambda entry, s: seen.append(entry.model) or fine(entry, s)).run():
        pass
    assert seen == ["model 0"] * 3 + ["model 1"] * 3
    assert sorted(row.run_id for row in rows_of(sweep)) == [f"{n:012x}" for n in range(6)]
    assert list(Worker(sweep, fine).run()) == [] and not list((sweep.path / "claims").glob("[!.]*"))


def test_an_error_is_a_row_and_the_others_go_on(tmp_path):
    """hydra#2551, #1462: one out-of-memory ended the sweep."""

    def bad(entry, sweep):
        if entry.config["seed"] == 1:
            raise MemoryError("out of memory [on purpose]")
        return fine(entry, sweep)

    rows = list(Worker(sweep_of(tmp_path), bad).run())
    assert [(row.status, row.error) for row in rows if row.status != OK] == [
        (FAILED, "MemoryError: out of memory [on purpose]")
    ]
    assert len(rows) == 4


def test_fail_fast_begins_no_further_point(tmp_path):
    """hydra#2824: all jobs failed the same way, and the sweep ran to its end."""

    def bad(entry, sweep):
        raise ValueError("no")

    sweep = sweep_of(tmp_path, fail_fast=True)
    assert len(list(Worker(sweep, bad).run())) == 1
    assert list(Worker(sweep, fine).run()) == []


def test_a_point_that_another_program_is_writing_is_left_alone(tmp_path):
    def busy(entry, sweep):
        if entry.config["seed"] == 1:
            raise BusyError("being written")
        return fine(entry, sweep)

    sweep = sweep_of(tmp_path)
    assert len(list(Worker(sweep, busy).run())) == 3
    assert [row.run_id for row in Worker(sweep, fine).run()] == [f"{1:012x}"]


def test_a_dead_worker_s_point_is_noted_and_done(tmp_path):
    sweep = sweep_of(tmp_path, 1)
    hold(sweep, f"{0:012x}", DEAD)
    (row,) = Worker(sweep, fine).run()
    rows = rows_of(sweep)
    assert [(r.status, r.attempt) for r in rows] == [(INTERRUPTED, 1), (OK, 2)] and row == rows[1]
    assert rows[0].died and f"process {DEAD.pid}" in rows[0].error


def test_a_worker_that_died_behind_its_row_is_no_death(tmp_path):
    sweep = sweep_of(tmp_path, 1)
    hold(sweep, f"{0:012x}", DEAD)
    row = PointRow(f"{0:012x}", OK, 1, DEAD.since + 1, DEAD.since + 2, DEAD.host, DEAD.pid, "v")
    Ledger(sweep.path / "rows").append(row)
    assert list(Worker(sweep, fine).run()) == [] and len(rows_of(sweep)) == 1


def test_a_point_that_kills_its_workers_comes_last_and_is_given_up(tmp_path, monkeypatch):
    """An out-of-memory kill takes the process with it: the same point must not take one worker after the other."""
    monkeypatch.setattr(workers, "MOST_DEATHS", 2)
    sweep, poison, order = sweep_of(tmp_path, 3), f"{0:012x}", []
    hold(sweep, poison, DEAD)
    entry, claim = Worker(sweep, fine).take()
    assert entry.run_id == poison  # noted as a death; now this one dies too
    claim.release()
    hold(sweep, poison, replace(DEAD, since=time.time()))
    worker = Worker(sweep, lambda entry, s: order.append(entry.config["seed"]) or fine(entry, s))
    assert len(list(worker.run())) == 2 and order == [1, 2]
    failed = standings(sweep)[0]
    assert failed.state == "failed" and failed.row.error.endswith("as did 1 before it")


def test_shards_are_disjoint_and_whole(tmp_path):
    sweep = sweep_of(tmp_path, 12)
    parts = [{entry.run_id for entry in Worker(sweep, fine, (part, 3)).entries} for part in (1, 2, 3)]
    assert sum(map(len, parts)) == 12 == len(set.union(*parts)) and all(parts)
    assert parse_shard("2/3") == (2, 3)
    for text in ("0/3", "4/3", "1", "a/b", ""):
        with pytest.raises(ConfigError, match="--shard must be I/N"):
            parse_shard(text)


def test_a_signal_ends_a_worker_behind_the_point_in_hand(tmp_path):
    def stopping(entry, sweep):
        os.kill(os.getpid(), signal.SIGTERM)
        return fine(entry, sweep)

    usual = signal.getsignal(signal.SIGTERM)
    worker = Worker(sweep_of(tmp_path), stopping)
    assert [row.status for row in worker.run()] == [OK] and worker.interrupted
    assert signal.getsignal(signal.SIGTERM) == usual


def test_what_stops_at_once_leaves_a_row_and_no_claim(tmp_path):
    def second_ctrl_c(entry, sweep):
        raise KeyboardInterrupt

    sweep = sweep_of(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        list(Worker(sweep, second_ctrl_c).run())
    assert [row.status for row in rows_of(sweep)] == [INTERRUPTED] and not rows_of(sweep)[0].died
    assert not list((sweep.path / "claims").glob("[!.]*"))


def test_the_stop_file_reaches_every_worker(tmp_path):
    sweep = sweep_of(tmp_path)
    rows = []
    for row in Worker(sweep, fine).run():
        rows.append(row)
        sweep.stop.touch()
    assert len(rows) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99, "entries": []}', '{"schema": 1, "entries": [{}]}'])
def test_a_folder_that_is_no_sweep(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match="must be the folder of a sweep"):
        SweepFolder(tmp_path).read()


def test_status_tells_who_has_what(tmp_path):
    sweep = sweep_of(tmp_path, 4)
    hold(sweep, f"{1:012x}", Holder(host="node7", pid=12))
    hold(sweep, f"{2:012x}", DEAD)
    run = tmp_path / f"run-{1:012x}"
    run.mkdir()
    (run / "samples.jsonl").write_text("{}\n{}\n{")
    Ledger(sweep.path / "rows").append(PointRow(f"{0:012x}", OK, 1, 0.0, 1.0, "h", 1, "v"))
    found = standings(sweep)
    assert [standing.state for standing in found] == ["done", "running", "todo", "todo"]
    assert (found[1].holder.host, found[1].samples) == ("node7", 2)


# Local processes


def test_each_worker_has_its_gpu_and_its_share_of_the_cores(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    gpus = visible_gpus()
    assert [surroundings(n, 3, gpus)["CUDA_VISIBLE_DEVICES"] for n in range(3)] == ["3", "5", "3"]
    assert surroundings(0, 3, gpus)["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == [] and surroundings(0, 1, [])["CUDA_VISIBLE_DEVICES"] == ""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert surroundings(0, 3, [])["OMP_NUM_THREADS"] == "7"


class Sleepers(Crew):
    """Its workers do nothing but live."""

    def start(self, index):
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_killed_worker_is_replaced_and_a_signal_is_passed_on(tmp_path):
    crew = Sleepers(sweep_of(tmp_path), 2, [])
    looking = crew.run()
    next(looking)
    first = crew.processes[0]
    first.kill()
    while crew.processes[0] is first:
        next(looking)
    assert crew.killed == 1 and crew.processes[0].poll() is None
    os.kill(os.getpid(), signal.SIGTERM)
    assert sum(1 for _ in looking) < 50
    assert [process.returncode for process in crew.processes] == [-signal.SIGTERM] * 2


def test_leaving_early_leaves_no_worker_behind(tmp_path):
    crew = Sleepers(sweep_of(tmp_path), 2, [])
    looking = crew.run()
    next(looking)
    looking.close()
    assert [process.wait(10) for process in crew.processes] == [-signal.SIGKILL] * 2
