"""Key/value cache with fixed addresses: scratch slots first, then one slot per absolute position.

Axes: B rows, H key/value heads, Q query tokens, T cache slots, D head dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class KVCache:
    """Static keys and values for all layers; `update` is what transformers' attention calls.

    A forward always writes, at the slots of its plan; nothing is ever appended, cropped or rolled back. The session
    knows which positions hold final entries (`encoded_B`) and lets rows see no others.
    """

    def __init__(
        self, keys_BTHD: list[Tensor], values_BTHD: list[Tensor], scratch: int, window_R: Tensor | None = None
    ) -> None:
        self.keys_BTHD, self.values_BTHD, self.scratch = keys_BTHD, values_BTHD, scratch  # a tensor per layer
        self.window_R = window_R  # the stored rows that this object works on; None: all
        rows_B = torch.arange(len(keys_BTHD[0]), device=keys_BTHD[0].device) if window_R is None else window_R
        self.rows_B1 = rows_B[:, None]
        self.slots_BQ = self.rows_B1
        self.extent = 0

    @classmethod
    def empty(cls, layers: int, shape_BTHD: tuple[int, int, int, int], scratch: int, like: Tensor) -> KVCache:
        """`like` gives dtype and device."""
        keys, values = ([like.new_zeros(shape_BTHD) for _ in range(layers)] for _ in range(2))
        return cls(keys, values, scratch)

    def rows(self, index_R: Tensor) -> KVCache:
        """The cache of some of the rows."""
        keys, values = ([t[index_R] for t in stored] for stored in (self.keys_BTHD, self.values_BTHD))
        return KVCache(keys, values, self.scratch)

    def window(self, index_R: Tensor) -> KVCache:
        """Some of the rows, in the same memory: what is written here is in this cache."""
        return KVCache(self.keys_BTHD, self.values_BTHD, self.scratch, index_R)

    def aim(self, slots_BQ: Tensor, extent: int) -> None:
        """Direct the next forward's writes, and let it see the first `extent` slots."""
        self.slots_BQ, self.extent = slots_BQ, extent

    def update(self, keys_BHQD: Tensor, values_BHQD: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write this layer's new entries and return all visible ones, each (B, H, T, D)."""
        return self._write(self.keys_BTHD[layer], keys_BHQD), self._write(self.values_BTHD[layer], values_BHQD)

    def _write(self, stored_BTHD: Tensor, new_BHQD: Tensor) -> Tensor:
        stored_BTHD[self.rows_B1, self.slots_BQ] = new_BHQD.transpose(1, 2)
        seen_BTHD = stored_BTHD[:, : self.extent]
        return (seen_BTHD if self.window_R is None else seen_BTHD[self.window_R]).transpose(1, 2)
