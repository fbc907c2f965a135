"""Will a network's weights fit? Told before they are read, and before they are downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from s2d2cli.errors import CheckpointError

GB = 1e9
MEMINFO = Path("/proc/meminfo")


def need_memory(name: str, network: Any, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a network (built on the meta device) whose weights alone are larger than what is free on `device`."""
    needed, free = network.num_parameters() * dtype.itemsize, free_bytes(device)
    if free is not None and needed > free:
        spelling = str(dtype).removeprefix("torch.")
        halves = ", dtype=bfloat16" if dtype == torch.float32 else ""
        raise CheckpointError(
            f"the weights of model {name} need {needed / GB:.1f} GB of memory in {spelling}, and {free / GB:.1f} GB "
            f"are free on {device.type}; use a larger device{halves}, or a smaller model"
        )


def free_bytes(device: torch.device) -> int | None:
    """What could still be filled, swap included; None where the system does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for itself
        return torch.cuda.mem_get_info(device)[0] + kept
    if not MEMINFO.is_file():
        return None
    kibibytes = {line.split(":")[0]: int(line.split()[1]) for line in MEMINFO.read_text().splitlines()}
    return (kibibytes["MemAvailable"] + kibibytes["SwapFree"]) * 1024
