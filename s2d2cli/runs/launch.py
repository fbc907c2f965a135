"""How workers start: local processes, or jobs of one of Hydra's launchers. The driver only looks on: each function here
is a generator that yields now and then until all workers have left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from s2d2cli.runs.interrupt import stop_signal
from s2d2cli.runs.ledger import MOST_DEATHS
from s2d2cli.runs.manifest import SweepFolder

POLL_S = 0.3


@dataclass
class Crew:
    """Worker processes on this machine; one that is killed is replaced."""

    folder: Path  # of the sweep or search, with logs/ in it
    count: int
    words: Sequence[str]  # of the command line behind `s2d2`
    gpus: Sequence[str] = ()
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed: int = 0

    def run(self) -> Iterator[None]:
        with stop_signal() as stop:
            try:
                self.processes = [self.start(index) for index in range(self.count)]
                asked = False
                while any(process.poll() is None for process in self.processes):
                    yield
                    time.sleep(POLL_S)
                    if stop.requested and not asked:
                        asked = True
                        self.signal(signal.SIGTERM)
                    self.replace_killed(stop.requested)
            finally:
                self.signal(signal.SIGKILL)

    def start(self, index: int) -> subprocess.Popen[bytes]:
        """In a session of its own, so that Ctrl-C reaches the driver alone, which passes it on once."""
        command = [sys.executable, "-m", "s2d2cli", *self.words]
        with (self.folder / "logs" / f"worker-{index}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=surroundings(index, self.count, self.gpus),
                start_new_session=True,
            )

    def replace_killed(self, stopping: bool) -> None:
        """A point that kills its workers is given up in the end (ledger.MOST_DEATHS), and so are the workers."""
        for index, process in enumerate(self.processes):
            code = process.poll()
            if code is not None and code < 0 and not stopping and self.killed < MOST_DEATHS * self.count:
                self.killed += 1
                self.processes[index] = self.start(index)

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


def surroundings(index: int, count: int, gpus: Sequence[str]) -> dict[str, str]:
    """The environment of a worker: one GPU where there are several, and its share of the cores."""
    env = dict(os.environ)
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
    return env


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def jobs(sweep: SweepFolder, launcher: str, count: int, allow: bool, settings: Sequence[str]) -> Iterator[None]:
    """Workers through a Hydra launcher. It blocks, so it runs in a thread of its own; the first Ctrl-C asks the workers
    to begin no further point."""
    from s2d2cli.launchers import LAUNCHERS, Job, launch

    gpus = visible_gpus()
    shared = gpus if not LAUNCHERS[launcher].gpu else []
    names = [shared[index % len(shared)] if shared else "" for index in range(count)]
    told = [Job(str(sweep.path), index, name, allow) for index, name in enumerate(names)]
    failure: list[BaseException] = []

    def start() -> None:
        try:
            launch(launcher, work_here, told, settings, bool(gpus))
        except BaseException as error:  # a worker that dies takes the answers of all with it; the rows are on disk
            failure.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    with stop_signal() as stop:
        while thread.is_alive():
            yield
            thread.join(POLL_S)
            if stop.requested:
                sweep.stop.touch()
    if failure:
        raise failure[0]


def work_here(job: Any) -> None:
    """The task of a launched job: the same worker as everywhere, where the points' relative paths start."""
    if job.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.gpu  # before torch looks for devices
    from s2d2cli.runs.point import Evaluator
    from s2d2cli.runs.workers import Worker

    path = Path(job.folder)
    manifest = SweepFolder(path).read()
    sweep = SweepFolder(go_to(manifest.cwd, path))
    for _ in Worker(sweep, Evaluator(job.allow_code_execution, manifest.plugins)).run():
        pass


def go_to(cwd: str, path: Path) -> Path:
    """Go where the sweep was typed, if this machine has that folder, because relative paths in its settings start
    there; `path`, seen from there."""
    if Path(cwd).is_dir() and Path(cwd).resolve() != Path.cwd().resolve():
        path = path.resolve()
        os.chdir(cwd)
    return path
