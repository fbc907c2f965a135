"""What a forward costs on this machine, measured: milliseconds against token rows and context.

Decoding at small batch is bound by reading the weights, so rows are nearly free up to some number; how many that is
depends on model, device and batch.

Axes: B rows of the batch, Q query tokens, T cache slots, X any.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from s2d2cli.errors import ConfigError
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.models.cache import KVCache
from s2d2cli.models.plan import ForwardPlan, Kind

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ROUNDS, SECONDS = 3, 1.0  # at least so many rounds, and more while they fit into so much time


@dataclass(frozen=True)
class CostCurve:
    """`ms[c][r]`: a forward of `width` samples with `rows[r]` token rows each, `contexts[c]` tokens in the cache."""

    rows: list[int]
    contexts: list[int]
    ms: list[list[float]]
    width: int = 1

    def table(self, most_rows: int, device: torch.device) -> Tensor:
        """Milliseconds for 0 to `most_rows` rows at each measured context, float32 (contexts, most_rows + 1).

        Straight between measured points and beyond the last.
        """
        wanted = np.arange(most_rows + 1)
        lines = [straight(wanted, self.rows, rising(line)) for line in self.ms]
        return torch.tensor(np.array(lines), dtype=torch.float32, device=device)


def rising(ms: list[float]) -> list[float]:
    """Fewer rows cost no more than many: what a busy moment of the machine added to a point is taken off again."""
    return [min(ms[place:]) for place in range(len(ms))]


def straight(wanted: np.ndarray, places: list[int], values: list[float]) -> np.ndarray:
    """Linear interpolation that goes on beyond the last place as between the last two."""
    found: np.ndarray = np.interp(wanted, places, values)
    if len(places) > 1:
        slope = max(0.0, (values[-1] - values[-2]) / (places[-1] - places[-2]))
        found = found + slope * np.maximum(wanted - places[-1], 0)
    return found


def need_room(model: ModelAdapter, longest: int, most_rows: int) -> None:
    """Refuse sizes that cannot be measured."""
    if longest < 2:
        raise ConfigError(f"--context must be at least 2, got {longest}")
    if not 1 <= most_rows < longest:
        raise ConfigError(f"--rows must lie between 1 and {longest - 1}, one less than --context, got {most_rows}")
    if longest > model.context:
        raise ConfigError(f"--context must fit the context of {model.name}, {model.context} tokens, got {longest}")


@torch.inference_mode()
def measure(model: ModelAdapter, width: int, longest: int, most_rows: int) -> CostCurve:
    """Time forwards of a decoding step's shape: rows behind a context, logits for half of them.

    The rounds go through all shapes in turn and the fastest of each counts, so that a slow moment of the machine does
    not bend the curve. `longest` bounds context and rows together.
    """
    rows = [count for count in ROWS if count <= most_rows] or [1]
    most = max(1, longest - rows[-1])
    contexts = sorted({max(1, most // 4), most})
    cache = model.new_cache(width, contexts[-1] + rows[-1], 1)  # more than `longest` where that is short
    plans = {(c, r): shape(model, width, c, r) for c in contexts for r in rows}
    best = dict.fromkeys(plans, float("inf"))
    began, rounds = time.perf_counter(), 0
    while rounds <= ROUNDS or time.perf_counter() - began < SECONDS:
        for key, plan in plans.items():
            taken = seconds(model, plan, cache)
            best[key] = min(best[key], taken) if rounds else best[key]  # the first round warms up
        rounds += 1
    ms = [[round(1000 * best[c, r], 4) for r in rows] for c in contexts]
    return CostCurve(rows, contexts, ms, width)


def shape(model: ModelAdapter, width: int, context: int, rows: int) -> ForwardPlan:
    """`rows` causal rows behind `context` tokens, for `width` samples."""
    positions_Q = torch.arange(context, context + rows, device=model.device)
    slot_T = torch.arange(1 + context + rows, device=model.device)
    visible_QT = (slot_T >= 1) & (slot_T <= positions_Q[:, None] + 1)
    positions_BQ = positions_Q.expand(width, -1)
    read_R = torch.arange(rows // 2, rows, device=model.device)
    return ForwardPlan(
        Kind.VERIFY,
        torch.full_like(positions_BQ, model.mask_id),
        positions_BQ,
        positions_BQ + 1,
        visible_QT.expand(width, -1, -1),
        read_R.expand(width, -1),
    )


def seconds(model: ModelAdapter, plan: ForwardPlan, cache: KVCache) -> float:
    settle(model.device)
    began = time.perf_counter()
    model.forward(plan, cache)
    settle(model.device)
    return time.perf_counter() - began


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
