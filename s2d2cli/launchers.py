"""Workers through Hydra's launchers. With config.py and overrides.py the only file that knows Hydra.

What is launched is workers, not points: a job per point would load the model for each. The internals used here
(`compose_config`, `Callbacks`) are the same in Hydra 1.3 and 1.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode

from s2d2cli.config import hydra_session
from s2d2cli.errors import ConfigError, MissingExtraError
from s2d2cli.overrides import HYDRA_ERRORS, first_line


@dataclass(frozen=True)
class Launcher:
    """How a launcher is called by Hydra, where it comes from, and what it must be told."""

    option: str
    extra: str
    module: str
    settings: tuple[str, ...] = ()
    per_worker: str = ""  # the setting for the number of workers at once
    gpu: str = ""  # the setting by which it gives each worker a GPU; without one, workers share this machine


SUBMITIT = "hydra_plugins.hydra_submitit_launcher"
LAUNCHERS = {
    "joblib": Launcher(
        "joblib", "joblib", "hydra_plugins.hydra_joblib_launcher", per_worker="hydra.launcher.n_jobs={}"
    ),
    "submitit_local": Launcher("submitit_local", "slurm", SUBMITIT),
    "slurm": Launcher("submitit_slurm", "slurm", SUBMITIT, gpu="hydra.launcher.gpus_per_node=1"),
    "ray": Launcher(
        "ray",
        "ray",
        "hydra_plugins.hydra_ray_launcher",
        settings=("+hydra.launcher.ray.remote.max_retries=0", "+hydra.launcher.ray.init.object_store_memory=null"),
        gpu="+hydra.launcher.ray.remote.num_gpus=1",
    ),
}


@dataclass
class Job:
    """What a launched worker is told."""

    folder: str = ""
    index: int = 0
    gpu: str = ""  # what the worker is to see as CUDA_VISIBLE_DEVICES; nothing where the launcher sees to that
    allow_code_execution: bool = False


ConfigStore.instance().store(name="s2d2_worker", node=Job)


def need(name: str) -> Launcher:
    """The launcher; refused when its extra is not installed."""
    launcher = LAUNCHERS[name]
    try:
        found = find_spec(launcher.module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise MissingExtraError(
            f"--launcher {name} needs a package that is not installed: pip install 's2d2[{launcher.extra}]'"
        )
    return launcher


def launch(name: str, task: Callable[[Any], None], jobs: Sequence[Job], settings: Sequence[str], gpus: bool) -> None:
    """Start the jobs and wait for all of them. `task`, a function of a module, is called with each."""
    launcher = need(name)
    folder = Path(jobs[0].folder).resolve()
    words = [
        f"hydra/launcher={launcher.option}",
        f"hydra.sweep.dir={quoted(str(folder / 'launcher'))}",
        "hydra.sweep.subdir=${hydra.job.num}",
        "hydra/hydra_logging=none",
        "hydra/job_logging=none",
        "hydra.output_subdir=null",
        *launcher.settings,
        *([launcher.per_worker.format(len(jobs))] if launcher.per_worker else []),
        *([launcher.gpu] if gpus and launcher.gpu else []),
        *settings,
    ]
    with hydra_session():
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        try:
            config = hydra.compose_config(
                "s2d2_worker", words, run_mode=RunMode.MULTIRUN, from_shell=False, with_log_configuration=False
            )
        except HYDRA_ERRORS as error:
            raise ConfigError(f"--launcher {name} cannot be set up like this: {first_line(error)}") from error
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
        started = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
        for job in started.launch([words_of(job, folder) for job in jobs], initial_job_idx=0):
            job.return_value  # noqa: B018  raises what the worker raised


def words_of(job: Job, folder: Path) -> list[str]:
    allow = str(job.allow_code_execution).lower()
    told = [f"folder={quoted(str(folder))}", f"index={job.index}", f"allow_code_execution={allow}"]
    return [*told, f"gpu={quoted(job.gpu)}"]


def quoted(text: str) -> str:
    """A path for Hydra's grammar, where a backslash is special in front of a quote only."""
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text) + "'"
