"""Speculative acceptance on a window of drafted tokens: which are kept, which are replaced, and by what.

A window is the stretch of a block from the first checked position to the last. Its checked positions are masks; it may
hold decided positions in between when several spans are checked at once. A span is a maximal run of checked positions.

Axes: B rows, L block positions, S window positions, R rejections, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2d2cli.decode.sampling import Sampler, invert_cdf, residual_probs
from s2d2cli.decode.state import DraftStep, leading_count


@dataclass(slots=True)
class Window:
    """A draft seen through the verifier's window."""

    inside_BS: Tensor  # S is padded to the longest window of the batch
    checked_BS: Tensor
    index_BS: Tensor  # into the block
    positions_BS: Tensor  # absolute
    tokens_BS: Tensor
    draft_prob_BS: Tensor
    target_BSV: Tensor  # the verifier's logits

    def to_block(self, flags_BS: Tensor, values_BS: Tensor, like_BL: Tensor) -> tuple[Tensor, Tensor]:
        """(values_BL, flags_BL): window entries at their places in the block."""
        index_BS = torch.where(flags_BS, self.index_BS, like_BL.shape[1])  # others go to a column that is cut off
        spare_BL = torch.cat([like_BL, like_BL[:, :1]], 1)
        values_BL = spare_BL.scatter(1, index_BS, values_BS)[:, :-1]
        flags_BL = torch.zeros_like(spare_BL, dtype=torch.bool).scatter(1, index_BS, True)[:, :-1]
        return values_BL, flags_BL


@dataclass(slots=True)
class Outcome:
    """Each checked position is accepted, rejected (the first of its span that fails), or left open behind that."""

    checked_BS: Tensor
    accepted_BS: Tensor
    rejected_BS: Tensor


def cut_window(draft: DraftStep, start_B: Tensor, checked_BL: Tensor, target_BSV: Tensor) -> Window:
    offset_S = torch.arange(target_BSV.shape[1], device=start_B.device)
    first_B = checked_BL.long().argmax(1)
    inside_BS = offset_S < window_length(checked_BL)[:, None]
    index_BS = (first_B[:, None] + offset_S).clamp(max=checked_BL.shape[1] - 1)
    return Window(
        inside_BS,
        checked_BL.gather(1, index_BS) & inside_BS,
        index_BS,
        start_B[:, None] + index_BS,
        draft.tokens_BL.gather(1, index_BS),
        draft.confidence_BL.gather(1, index_BS),
        target_BSV,
    )


def window_length(checked_BL: Tensor) -> Tensor:
    """From the first checked position to the last, (B,); 0 where nothing is checked."""
    place_L = torch.arange(1, checked_BL.shape[1] + 1, device=checked_BL.device)
    end_B = (checked_BL * place_L).amax(1)
    return torch.where(end_B > 0, end_B - checked_BL.long().argmax(1), 0)


def judge(agrees_BS: Tensor, checked_BS: Tensor) -> Outcome:
    """Accept each span's longest agreeing prefix; its first disagreement is the rejection."""
    failed_BS = checked_BS & ~agrees_BS
    # failures counted up to each position, less those in front of its span
    num_failed_BS = failed_BS.cumsum(1)
    before_BS = (num_failed_BS - failed_BS.long()).masked_fill(checked_BS & shifted(checked_BS), 0).cummax(1).values
    in_span_BS = num_failed_BS - before_BS
    return Outcome(checked_BS, checked_BS & (in_span_BS == 0), failed_BS & (in_span_BS == 1))


def shifted(flags_BS: Tensor) -> Tensor:
    """Each position gets its left neighbour's flag."""
    return torch.cat([torch.zeros_like(flags_BS[:, :1]), flags_BS[:, :-1]], 1)


def final_run(window: Window, outcome: Outcome) -> Tensor:
    """How many window positions from the left now hold tokens that will stay as the verifier saw them, (B,)."""
    return leading_count((outcome.accepted_BS | ~window.checked_BS) & window.inside_BS)


def ratios(window: Window, target: Sampler, tempering: float) -> Tensor:
    """min(1, (q/p) ** tempering) of each drafted token, float32 (B, S)."""
    prob_BS = target.prob_of(window.target_BSV, window.tokens_BS)
    ratio_BS = prob_BS / window.draft_prob_BS.clamp(min=1e-12)
    return (ratio_BS if tempering == 1 else ratio_BS**tempering).clamp(max=1)


def first_rejections(rejected_BS: Tensor, most: int) -> Tensor:
    """Window places of the rejections from the left, (B, R); rows with fewer are filled up with other places."""
    return rejected_BS.long().argsort(dim=1, descending=True, stable=True)[:, :most]


def resample(draft_BRV: Tensor, target_BRV: Tensor, uniform_BR: Tensor, target: Sampler, temperature: float) -> Tensor:
    """A token from (q - p)+ at each place, (B, R); a temperature below 1 sharpens that distribution."""
    draft_NV, target_NV = (target.probs(logits_BRV.flatten(0, 1)) for logits_BRV in (draft_BRV, target_BRV))
    rest_NV = residual_probs(target_NV, draft_NV)
    if temperature != 1:
        rest_NV = (rest_NV / rest_NV.amax(-1, keepdim=True)) ** (1 / temperature)
    return invert_cdf(rest_NV, uniform_BR.flatten()).view(uniform_BR.shape)


def pick(logits_BXV: Tensor, places_BR: Tensor) -> Tensor:
    """The logits at some positions of each row, (B, R, V)."""
    return logits_BXV.gather(1, places_BR[..., None].expand(-1, -1, logits_BXV.shape[-1]))
