"""Whether s2d2 can work here: each check says what it found, and what to do where that is not well.

A check yields findings. One that crashes is itself a finding: the others still say theirs.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch

import s2d2cli
from s2d2cli import plugins
from s2d2cli.config import compose
from s2d2cli.decode import build_decoder
from s2d2cli.errors import S2D2Error
from s2d2cli.folders import VARIABLE, package_folder, user_folders
from s2d2cli.models import load_model, pick_device, pick_dtype
from s2d2cli.runs.code import revision
from s2d2cli.runs.environment import cpu_model, driver
from s2d2cli.runs.prompts import Style, answers
from s2d2cli.runs.store import need_writable
from s2d2cli.tasks.sandbox import choose_sandbox

OK, WARNING, PROBLEM = "ok", "warning", "problem"
PACKAGES = ("torch", "transformers", "hydra-core", "omegaconf", "typer", "datasets", "huggingface-hub")
EXTRAS = {  # what pyproject.toml names -> the modules that it brings
    "ifeval": ("nltk", "langdetect", "punkt"),
    "lm-eval": ("lm_eval",),
    "joblib": ("hydra_plugins.hydra_joblib_launcher",),
    "slurm": ("hydra_plugins.hydra_submitit_launcher", "submitit"),
    "ray": ("hydra_plugins.hydra_ray_launcher", "ray"),
    "search": ("optuna",),
}
GIB = 1 << 30
QUESTION = "Eva has 6 cards. Elsa has 10 more than Eva. How many cards do they have together?"
ANSWER = "#### 22"


@dataclass(frozen=True)
class Finding:
    name: str
    status: str
    said: str
    advice: str = ""


def examine(results: str) -> Iterator[Finding]:
    """Everything, the quick things first."""
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        check.__name__: check for check in (versions, device, attention, threads, extras, sandbox, hub, configuration)
    }
    checks |= {"results": partial(writable, results), "generation": generation}
    for name, check in checks.items():
        try:
            yield from check()
        except S2D2Error as error:
            yield Finding(name, PROBLEM, str(error))
        except Exception as error:
            yield Finding(name, PROBLEM, f"{type(error).__name__}: {error}", "see the traceback with --debug")


def versions() -> Iterator[Finding]:
    commit = revision()
    yield Finding("s2d2", OK, f"{s2d2cli.__version__}{f', revision {commit}' if commit else ''}")
    yield Finding("python", OK, f"{platform.python_version()}, {sys.executable}")
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    yield Finding("packages", OK, ", ".join(f"{name} {version}" for name, version in found.items()))
    if not (5, 4) <= tuple(map(int, found["transformers"].split(".")[:2])) < (6, 0):
        wanted = "transformers>=5.4,<6"
        yield Finding("transformers", PROBLEM, f"{found['transformers']} is not {wanted}", f"pip install '{wanted}'")


def device() -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    yield Finding("cpu", OK, f"{cpu_model()}, {os.cpu_count()} cores, {memory:.1f} GiB memory")
    if torch.cuda.is_available():
        yield from map(gpu, range(torch.cuda.device_count()))
    elif shutil.which("nvidia-smi"):
        yield Finding(
            "gpu", WARNING, f"there is a driver, and torch {torch.__version__} cannot use it", "pip install torch"
        )
    else:
        yield Finding("gpu", OK, "none; device=auto computes on the CPU")
    config = compose()
    chosen = pick_device(config.device)
    yield Finding(
        "auto",
        OK,
        f"device=auto is {chosen}, dtype=auto is {str(pick_dtype(config.dtype, config.model, chosen))[6:]} for tiny",
    )


def gpu(index: int) -> Finding:
    found = torch.cuda.get_device_properties(index)
    said = f"{found.name}, {found.total_memory / GIB:.0f} GiB, driver {driver()}, CUDA {torch.version.cuda}"
    if torch.cuda.is_bf16_supported():
        return Finding(f"gpu {index}", OK, f"{said}, bf16")
    return Finding(f"gpu {index}", WARNING, f"{said}, no bf16", "use dtype=float16 or dtype=float32")


def attention() -> Iterator[Finding]:
    others = ["sdpa"] + [name for name in ("flash_attn", "xformers") if is_there(name)]
    yield Finding("attention", OK, f"backend=eager, the one s2d2 uses (here there is also {', '.join(others)})")


def threads() -> Iterator[Finding]:
    known = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    said = f"torch has {torch.get_num_threads()}; a small model gets 1, threads=N says otherwise"
    yield Finding("threads", OK, ", ".join([said, *known]))


def extras() -> Iterator[Finding]:
    for name, modules in EXTRAS.items():
        missing = [module for module in modules if not is_there(module)]
        if not missing:
            yield Finding(f"extra {name}", OK, "installed")
        elif len(missing) < len(modules):
            said = f"only half there, without {', '.join(missing)}"
            yield Finding(f"extra {name}", WARNING, said, f"pip install 's2d2[{name}]'")
        else:
            yield Finding(f"extra {name}", OK, f"not installed; pip install 's2d2[{name}]'")
    if is_there("submitit") and not shutil.which("sbatch"):
        yield Finding("slurm", WARNING, "no sbatch on the PATH", "start sweeps on Slurm from a login node")


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # of a.b, when there is no a
        return False


def sandbox() -> Iterator[Finding]:
    """What generated programs would run in; a task that runs none needs neither."""
    chosen = choose_sandbox("auto")
    if chosen == "bwrap":
        yield Finding("sandbox", OK, "bubblewrap: no network, no files but the program's own")
    else:
        said = "process limits alone: a generated program has your rights and the network"
        yield Finding(
            "sandbox", WARNING, said, "install bubblewrap (bwrap) and allow user namespaces, or use a container"
        )


def hub() -> Iterator[Finding]:
    from huggingface_hub import constants, get_token

    cache = Path(constants.HF_HUB_CACHE)
    held = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    free = f"{shutil.disk_usage(existing(cache)).free / GIB:.0f} GiB free"
    yield Finding("hub cache", OK, f"{cache}: {held} models, {free} (HF_HOME)")
    offline = "on: nothing is downloaded" if constants.HF_HUB_OFFLINE else "off"
    yield Finding("hub offline", OK, f"{offline} (HF_HUB_OFFLINE)")
    token = "present" if get_token() else "none; only gated models need one (hf auth login)"
    yield Finding("hub token", OK, f"{token} (HF_TOKEN)")


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def configuration() -> Iterator[Finding]:
    path = [*map(str, user_folders()), str(package_folder("conf")), str(package_folder("sweeps"))]
    yield Finding("configuration", OK, f"{', then '.join(path)} (--config-dir, {VARIABLE})")
    plugins.load_installed()
    found = [f"{plugin.origin}" for plugin in plugins.LOADED.values()]
    yield Finding("plugins", OK, "; ".join(found) or f"none (--plugins, entry points {plugins.ENTRY_POINTS})")


def writable(results: str) -> Iterator[Finding]:
    folder = Path(results).expanduser()
    need_writable(folder, "--results")
    free = shutil.disk_usage(existing(folder.absolute())).free / GIB
    status, advice = (OK, "") if free > 1 else (WARNING, "make room, or use another --results folder")
    yield Finding("results", status, f"{folder.absolute()} can be written to, {free:.1f} GiB free", advice)


def generation() -> Iterator[Finding]:
    """The shipped model solves a problem that it can solve."""
    config = compose(["model=tiny", "decode.max_new_tokens=64"])
    began = time.perf_counter()
    model, decoder = load_model(config), build_decoder(config)
    loaded = time.perf_counter()
    ((found, row),) = answers(model, decoder, [Style().of_text("the question", QUESTION)], 1)
    seconds = time.perf_counter() - loaded
    said = f"tiny answers with {len(found.token_ids)} tokens in {seconds:.2f} s, loaded in {loaded - began:.2f} s"
    if row["text"].rstrip().endswith(ANSWER):
        yield Finding("generation", OK, said)
    else:
        wrong = f"{said}, and the answer is not {ANSWER!r} but {row['text']!r}"
        yield Finding("generation", PROBLEM, wrong, "compute in float32 (dtype=float32), or install s2d2 anew")
