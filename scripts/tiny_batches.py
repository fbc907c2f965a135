"""Training batches: one clean copy of a conversation and noisy copies of its answer blocks, in one sequence.

    [ clean x0 | noisy copy 1 | noisy copy 2 ]

A noisy query sees the clean tokens before its block and all of its own block in its own copy. A clean query sees the
clean tokens up to the end of its own clean block; clean blocks of one token are the causal cache of AR mode.

Axes: B rows, C clean tokens, N noisy tokens of a copy, Q all of them (queries and keys).
"""

from dataclasses import dataclass

import torch
from tiny_tokenizer import MASK_ID, PAD_ID
from torch import Tensor

FILL_WEIGHT = 0.25  # tokens after the end of the answer, up to the end of its last block
Example = tuple[list[int], int]  # token ids of prompt and answer, number of prompt tokens


@dataclass
class Batch:
    tokens_BQ: Tensor
    positions_BQ: Tensor
    visible_BQQ: Tensor
    num_clean: int
    targets_BN: Tensor
    weights_BN: Tensor
    num_answer_tokens: int


@dataclass
class Copy:
    tokens_BN: Tensor
    positions_BN: Tensor
    targets_BN: Tensor
    weights_BN: Tensor
    block: int


def noisy_copy(x0_BT: Tensor, prompt_B: Tensor, end_B: Tensor, block: int, rng: torch.Generator) -> Copy:
    """In every block k ~ U{1..m} of its m answer tokens are masked and weigh m/k: a bounded form of the 1/t ELBO."""
    start_B, stop_B = prompt_B // block * block, -(-end_B // block) * block
    positions_BN = start_B[:, None] + torch.arange(int((stop_B - start_B).max()))
    targets_BN = x0_BT.gather(1, positions_BN)
    answer_BN = (positions_BN >= prompt_B[:, None]) & (positions_BN < stop_B[:, None])
    answer = answer_BN.unflatten(1, (-1, block))
    score = torch.rand(answer.shape, generator=rng).masked_fill(~answer, 2.0)
    num_answer = answer.sum(-1, keepdim=True)
    num_masked = (torch.rand(num_answer.shape, generator=rng) * num_answer).long() + 1
    masked = (score.argsort(-1).argsort(-1) < num_masked) & answer
    weights_BN = (masked * num_answer / num_masked).flatten(1)
    weights_BN[positions_BN >= end_B[:, None]] *= FILL_WEIGHT
    tokens_BN = targets_BN.masked_fill(masked.flatten(1), MASK_ID)
    return Copy(tokens_BN, positions_BN, targets_BN, weights_BN, block)


def visibility(positions_BC: Tensor, clean_block: int, copies: list[Copy]) -> Tensor:
    """True where a query (row) may attend to a key (column)."""
    limits, groups = [(positions_BC // clean_block + 1) * clean_block], [torch.full_like(positions_BC, -1)]
    for number, copy in enumerate(copies):
        block_BN = copy.positions_BN // copy.block
        limits.append(block_BN * copy.block)
        groups.append(block_BN + number * 100_000)
    limit_BQ, group_BQ = torch.cat(limits, 1), torch.cat(groups, 1)
    visible_BQQ = (group_BQ[:, :, None] == group_BQ[:, None, :]) & (group_BQ >= 0)[:, :, None]
    num_clean = positions_BC.shape[1]
    visible_BQQ[:, :, :num_clean] |= positions_BC[:, None, :] < limit_BQ[:, :, None]
    return visible_BQQ


def make_batch(examples: list[Example], clean_block: int, blocks: tuple[int, ...], rng: torch.Generator) -> Batch:
    prompt_B = torch.tensor([prompt for _, prompt in examples])
    end_B = torch.tensor([len(ids) for ids, _ in examples])
    num_clean = int(end_B.max())
    x0_BT = torch.full((len(examples), num_clean + 2 * max(blocks) + num_clean), PAD_ID)
    for row, (ids, _) in zip(x0_BT, examples, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    positions_BC = torch.arange(num_clean).expand(len(examples), -1)
    copies = [noisy_copy(x0_BT, prompt_B, end_B, block, rng) for block in blocks]
    return Batch(
        tokens_BQ=torch.cat([x0_BT[:, :num_clean], *(copy.tokens_BN for copy in copies)], 1),
        positions_BQ=torch.cat([positions_BC, *(copy.positions_BN for copy in copies)], 1),
        visible_BQQ=visibility(positions_BC, clean_block, copies),
        num_clean=num_clean,
        targets_BN=torch.cat([copy.targets_BN for copy in copies], 1),
        weights_BN=torch.cat([copy.weights_BN for copy in copies], 1),
        num_answer_tokens=int((end_B - prompt_B).sum()) * len(blocks),
    )


def length_batches(examples: list[Example], order: list[int], num_copies: int, budget: int) -> list[list[int]]:
    """Cut a shuffled order into batches of similar lengths that hold about `budget` positions each."""
    batches: list[list[int]] = []
    for begin in range(0, len(order), 512):
        chunk = sorted(order[begin : begin + 512], key=lambda i: len(examples[i][0]))
        while chunk:
            ids, prompt = examples[chunk[-1]]
            rows = max(1, budget // (len(ids) + num_copies * (len(ids) - prompt)))
            batches.append(chunk[-rows:])
            del chunk[-rows:]
    return batches
