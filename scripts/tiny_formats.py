"""The published formats `tiny` and its siblings are trained in, and their sizes: what differs in shape and in noise.

How a format is written to files is in tiny_layouts.py.
"""

from dataclasses import dataclass
from typing import Any

from tiny_batches import Noise
from tiny_model import Shape


@dataclass(frozen=True)
class Format:
    shape: dict[str, Any]
    blocks: tuple[int, ...]  # one is drawn for a batch: the block length of its noisy copies
    noises: tuple[Noise, ...]  # one is drawn for a batch
    last_mix: str = "train last"  # of train_tiny.py's mixes, in stages 3 and 4: for the families that lag behind
    last_rate: float = 1.5e-3  # peak learning rate of stage 4


# The two decoded in blocks of 32, from left to right in sub-blocks, also see blocks whose masks lean to the right.
FORMATS = {
    "sdar": Format({}, blocks=(2, 4, 8, 16, 32), noises=(Noise(),)),
    "fast_dllm_v2": Format(
        {"qkv_bias": True, "qk_norm": False, "shifted": True},
        blocks=(4, 8, 16, 32, 32),
        noises=(Noise(), Noise(lean=3.0)),
        last_mix="train even",
        last_rate=2.5e-3,
    ),
    "llada2": Format(
        {"rotary_dim": 16, "num_experts": 8, "experts_per_token": 2, "expert_size": 48},
        blocks=(4, 8, 16, 32, 32),
        noises=(Noise(kept=0.5), Noise(lean=3.0, kept=0.5), Noise(swapped=0.15, kept=0.5)),
    ),
}
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "draft": {
        "hidden_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 192,
    },
}


def shape_of(format_name: str, size: str) -> Shape:
    return Shape(**{**FORMATS[format_name].shape, **SIZES[size]})
