"""On what a run ran: versions, revision, machine. A score without these cannot be compared."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch

import s2d2cli
from s2d2cli.config import ModelConfig, RunConfig
from s2d2cli.errors import CheckpointError
from s2d2cli.models import lora, pick_device, pick_dtype
from s2d2cli.models.checkpoint import digests, find_folder, fingerprint
from s2d2cli.runs.code import revision

UNKNOWN = "unknown"
BESIDE = "draft_model/"
NO_DIFFERENCE = ("gpus_visible",)  # what else could be seen from here has computed nothing


def environment(backend: str) -> dict[str, Any]:
    """What is known before a model is loaded."""
    return {
        "os": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "s2d2": s2d2cli.__version__,
        "revision": revision(),
        "cpu": cpu_model(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "gpus_visible": torch.cuda.device_count(),
        "backend": backend,
    }


def placed(model: Any) -> dict[str, Any]:
    """Where the weights ended up (each model's on one device), in which number format, and the tokens that end a reply
    or stand for what is undecided, as settings and the checkpoint's files have it together."""
    device, draft = torch.device(model.device), model.draft_model
    return {
        "device": device.type,
        "devices": 1 if draft is None else len({device, draft.device}),
        **({} if draft is None else {"draft_device": str(draft.device)}),
        **(gpu(device) if device.type == "cuda" else {}),
        "dtype": str(model.dtype).removeprefix("torch."),
        "stop_ids": list(model.stop_ids),
        "mask_id": model.mask_id,
    }


def gpu(device: torch.device) -> dict[str, Any]:
    """The GPU that computes, which need not be the first one, and what drives it."""
    found = torch.cuda.get_device_properties(device)
    return {
        "gpu": found.name,
        "gpu_memory_bytes": found.total_memory,
        "cuda": torch.version.cuda,
        "driver": driver(),
    }


def driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return UNKNOWN


def watch_memory(device: torch.device) -> None:
    """From here on the GPU's peak is counted anew; that of a process cannot be."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device, earlier: dict[str, Any] | None) -> dict[str, Any]:
    """The most memory in use at once, weights included: of the GPU, or of this process on a CPU. A run that went on
    keeps its highest."""
    on_gpu = device.type == "cuda"
    kilobytes = 1 if sys.platform == "darwin" else 1024
    here = torch.cuda.max_memory_allocated(device) if on_gpu else getrusage(RUSAGE_SELF).ru_maxrss * kilobytes
    return {"peak_bytes": max(here, (earlier or {}).get("peak_bytes", 0)), "of": "gpu" if on_gpu else "process"}


def planned(config: RunConfig) -> dict[str, Any]:
    """The environment as far as the settings tell it, for a run whose own record is lost."""
    device = pick_device(config.device)
    dtype = str(pick_dtype(config.dtype, config.model, device)).removeprefix("torch.")
    return environment(config.backend) | {"threads": config.threads or UNKNOWN, "device": device.type, "dtype": dtype}


def run_files(config: RunConfig) -> dict[str, Any] | None:
    """The fingerprints of the run's models, a draft model's under `draft_model/`; None while not all are here."""
    found, draft = model_files(config.model), config.draft_model
    beside = None if draft is None else model_files(draft)
    if found is None or (draft is not None and beside is None):
        return None
    return found | {f"{BESIDE}{name}": entry for name, entry in (beside or {}).items()}


def target_files(files: dict[str, Any] | None) -> dict[str, Any] | None:
    """Those of the model that a run is about: runs with and without a draft model can be compared."""
    return files and {name: entry for name, entry in files.items() if not name.startswith(BESIDE)}


def model_files(model: ModelConfig) -> dict[str, Any] | None:
    """The fingerprint of the checkpoint and its adapter; None while they are not here, or not all of them. Nothing is
    downloaded."""
    try:
        files = fingerprint(at_hand(model.source, model.revision))
        if model.adapter:
            adapter = digests(at_hand(model.adapter, model.adapter_revision), lora.FILES)
            files |= {f"adapter/{name}": file for name, file in adapter.items()}
        return files
    except (CheckpointError, OSError, ValueError):  # what is missing is told by the loading of the model
        return None


def at_hand(source: str, revision: str | None) -> Path:
    """The folder of what need not be downloaded."""
    from huggingface_hub import snapshot_download

    if source.startswith("package:") or Path(source).expanduser().is_dir():
        return find_folder(source, revision)
    return Path(snapshot_download(source, revision=revision, local_files_only=True))


def hardware(env: dict[str, Any]) -> str:
    """The machine in a few words, for tables: what did the computing."""
    if env.get("device") == "cuda":
        return str(env.get("gpu"))
    threads = env.get("threads")
    return f"{env.get('cpu')}, {threads} {'thread' if threads == 1 else 'threads'}"


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The entries in which two environments differ; one that only the later version of the code knows is none."""
    shared = before.keys() & now.keys() - {*NO_DIFFERENCE}
    return sorted(key for key in shared if before[key] != now[key])


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
