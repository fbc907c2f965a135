"""LoRA adapters in peft's layout, merged into the weights while these are read: W + scale * B A, in float32.

An adapter is a folder with adapter_config.json and adapter_model.safetensors; its matrices bear the published names of
the weights that they change. What no merge of two matrices can express is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from s2d2cli.errors import CheckpointError
from s2d2cli.models.checkpoint import read_json

CONFIG, MATRICES = "adapter_config.json", "adapter_model.safetensors"
FILES = [CONFIG, MATRICES]
# what each of these must be, where the adapter names it: all else changes more than W, or W otherwise
FIXED = {"peft_type": "LORA", "bias": "none", "use_dora": False, "lora_bias": False, "modules_to_save": None,
         "layer_replication": None, "trainable_token_indices": None, "target_parameters": None}  # fmt: skip
UNCHANGED_BASE = (True, False, None, "gaussian", "orthogonal", "eva")  # ways to begin that leave W as it was published
PART = re.compile(r"^base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.(?:default\.)?weight$")


class Lora:
    """An adapter whose matrices are read when the weight that they change comes along."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, read_json(folder, CONFIG, required=True)
        self.check()
        self.path = folder / MATRICES
        if not self.path.is_file():
            raise CheckpointError(f"an adapter folder must hold {MATRICES}; there is none in {folder}")
        self.parts = self.find()  # by module: the names of its two matrices

    def check(self) -> None:
        for key, needed in FIXED.items():
            found = self.config.get(key, needed)
            if found != needed and (found or needed):  # null and false say the same
                raise CheckpointError(f"{CONFIG} in {self.folder} must have {key}={needed}, got {found!r}")
        if self.config.get("init_lora_weights") not in UNCHANGED_BASE:
            raise CheckpointError(
                f"{CONFIG} in {self.folder} has init_lora_weights={self.config['init_lora_weights']!r}, which changes "
                f"the base weights as well; save the adapter as plain LoRA first"
            )
        alpha = self.config.get("lora_alpha")
        if not isinstance(alpha, (int, float)):
            raise CheckpointError(f"{CONFIG} in {self.folder} must give lora_alpha as a number, got {alpha!r}")

    def find(self) -> dict[str, dict[str, str]]:
        parts: dict[str, dict[str, str]] = {}
        try:
            with safe_open(str(self.path), framework="pt") as file:
                names = list(file.keys())
        except SafetensorError as error:
            raise CheckpointError(f"{self.path} cannot be read ({error}); download the adapter again") from error
        for name in names:
            found = PART.match(name)
            if found is None:
                raise CheckpointError(f"{self.path} must hold lora_A and lora_B of linear layers alone, it has {name}")
            parts.setdefault(found["module"], {})[found["side"]] = name
        halves = [module for module, sides in parts.items() if len(sides) < 2]
        if halves or not parts:
            what = f"one of them is missing for {min(halves)}" if halves else "there are none"
            raise CheckpointError(f"{self.path} must hold lora_A and lora_B of each layer, and {what}")
        return parts

    def merged(self, tensors: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """The checkpoint's tensors with the adapter in them; refused when it changes a weight that never came."""
        left = set(self.parts)
        with safe_open(str(self.path), framework="pt") as file:
            for name, tensor in tensors:
                module = name.removesuffix(".weight")
                if module in left:
                    left.remove(module)
                    tensor = self.sum(module, tensor, *(file.get_tensor(self.parts[module][side]) for side in "AB"))
                yield name, tensor
        if left:
            raise CheckpointError(
                f"the adapter in {self.folder} must change weights of its base model, and {len(left)} of its layers "
                f"are not there, first {min(left)}; is it the adapter of another model?"
            )

    def sum(self, module: str, weight_OI: Tensor, down_RI: Tensor, up_OR: Tensor) -> Tensor:
        """The weight of out x in features, or in x out where the adapter says fan_in_fan_out, in its own dtype."""
        transposed = bool(self.config.get("fan_in_fan_out"))
        shape = (up_OR.shape[0], down_RI.shape[-1])
        if up_OR.shape[-1] != down_RI.shape[0] or weight_OI.shape != (shape[::-1] if transposed else shape):
            raise CheckpointError(
                f"the adapter in {self.folder} does not fit {module}: A {list(down_RI.shape)} and B "
                f"{list(up_OR.shape)} for a weight of {list(weight_OI.shape)}"
            )
        down_RI, up_OR = (part.to(weight_OI.device, torch.float32) for part in (down_RI, up_OR))
        change_OI = self.scale(module, len(down_RI)) * (up_OR @ down_RI)
        return (weight_OI.float() + (change_OI.T if transposed else change_OI)).to(weight_OI.dtype)

    def scale(self, module: str, rank: int) -> float:
        """alpha / rank, or alpha over its square root (rank-stabilised LoRA); alpha may differ by layer."""
        alpha = float(own(self.config.get("alpha_pattern") or {}, module, self.config["lora_alpha"]))
        return alpha / (rank**0.5 if self.config.get("use_rslora") else rank)


def own(patterns: dict[str, Any], module: str, default: Any) -> Any:
    """The value of the first pattern that ends this layer's name, as peft matches them."""
    matches = (value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module))
    return next(matches, default)
