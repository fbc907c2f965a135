"""Uniform random numbers, one stream per sample, computed instead of stored.

A number is a hash of (seed, sample id, step of that sample, purpose, position). So a sample's numbers depend on
nothing but itself: not on the batch it is in, the order of samples, or `limit`.

Axes: B rows, X any number of positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from s2d2cli.decode.state import BlockState

DRAFT, ACCEPT, RESIDUAL = 1, 2, 3


class Uniforms(Protocol):
    """Where random numbers come from; float64 in [0, 1)."""

    def draft(self, state: BlockState) -> Tensor:
        """One number per block position, (B, L)."""

    def accept(self, state: BlockState, positions_BS: Tensor, wanted_BS: Tensor) -> Tensor:
        """One number per drafted token under verification, (B, S); unwanted entries are ignored."""

    def residual(self, state: BlockState, positions_BS: Tensor, wanted_BS: Tensor) -> Tensor:
        """One number per rejected token, (B, S); unwanted entries are ignored."""

    def rows(self, index_R: Tensor) -> Uniforms:
        """The numbers of some of the rows."""

    def enter(self, index_R: Tensor, sample_ids: Sequence[str]) -> None:
        """From now on these rows belong to these samples."""


class SampleStreams:
    """The numbers of a batch of samples; rows that no sample has entered yet have a key of 0."""

    def __init__(self, seed: int, keys_B: Tensor) -> None:
        self.seed, self.keys_B = seed, keys_B

    @classmethod
    def empty(cls, seed: int, rows: int, device: torch.device) -> SampleStreams:
        return cls(seed, torch.zeros(rows, dtype=torch.long, device=device))

    def rows(self, index_R: Tensor) -> SampleStreams:
        return SampleStreams(self.seed, self.keys_B[index_R])

    def enter(self, index_R: Tensor, sample_ids: Sequence[str]) -> None:
        keys = [stream_key(self.seed, name) for name in sample_ids]
        self.keys_B[index_R] = torch.tensor(keys, device=self.keys_B.device)

    def draft(self, state: BlockState) -> Tensor:
        return self._uniform(state, DRAFT, state.positions_BL)

    def accept(self, state: BlockState, positions_BS: Tensor, wanted_BS: Tensor) -> Tensor:
        return self._uniform(state, ACCEPT, positions_BS)

    def residual(self, state: BlockState, positions_BS: Tensor, wanted_BS: Tensor) -> Tensor:
        return self._uniform(state, RESIDUAL, positions_BS)

    def _uniform(self, state: BlockState, purpose: int, positions_BX: Tensor) -> Tensor:
        step_B1 = mix(self.keys_B[:, None] ^ mix(state.step_B[:, None] * 4 + purpose))
        bits_BX = mix(step_B1 ^ mix(positions_BX + 1))
        return shift_right(bits_BX, 11).double() * 2.0**-53


def stream_key(seed: int, sample_id: str) -> int:
    digest = hashlib.sha256(f"{seed}/{sample_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def mix(bits: Tensor) -> Tensor:
    """The SplitMix64 finaliser (Steele, Lea, Flood 2014) on int64 tensors; multiplication wraps around."""
    bits = (bits ^ shift_right(bits, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    bits = (bits ^ shift_right(bits, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return bits ^ shift_right(bits, 31)


def shift_right(bits: Tensor, count: int) -> Tensor:
    """Logical shift: torch's own keeps the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
