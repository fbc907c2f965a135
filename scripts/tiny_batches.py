"""Training batches: one clean copy of a conversation and noisy copies of its answer blocks, in one sequence.

    [ clean x0 | noisy copy 1 | noisy copy 2 ]

A noisy query sees the clean tokens before its block and all of its own block in its own copy. A clean query sees the
clean tokens up to the end of its own clean block; clean blocks of one token are the causal cache of AR mode.

A target is scored by the row of its own position, or, `shifted`, by the row before: in its own copy within a block, the
clean one at the start of a block. So a shifted copy of block length 1 needs no rows: its targets are those of plain AR.

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
    targets_BN: Tensor
    rows_BN: Tensor  # along Q: whose hidden state scores the target
    weights_BN: Tensor
    num_answer_tokens: int


@dataclass(frozen=True)
class Noise:
    lean: float = 0.0  # how strongly the masks gather at the end of a block; 0: evenly spread
    swapped: float = 0.0  # share of visible answer tokens replaced by others: they teach editing
    kept: float = 0.0  # what a visible answer token weighs, which is to be kept, or put right where it was swapped


@dataclass
class Copy:
    tokens_BN: Tensor
    positions_BN: Tensor
    targets_BN: Tensor
    weights_BN: Tensor
    block: int


def noisy_copy(x0_BT: Tensor, prompt_B: Tensor, end_B: Tensor, block: int, noise: Noise, rng: torch.Generator) -> Copy:
    """In every block k ~ U{1..m} of its m answer tokens are masked and weigh m/k: a bounded form of the 1/t ELBO."""
    start_B, stop_B = prompt_B // block * block, -(-end_B // block) * block
    positions_BN = start_B[:, None] + torch.arange(int((stop_B - start_B).max()))
    targets_BN = x0_BT.gather(1, positions_BN)
    answer_BN = (positions_BN >= prompt_B[:, None]) & (positions_BN < stop_B[:, None])
    answer = answer_BN.unflatten(1, (-1, block))
    score = torch.rand(answer.shape, generator=rng) - noise.lean * torch.arange(block) / block
    score = score.masked_fill(~answer, 2.0)
    num_answer = answer.sum(-1, keepdim=True)
    num_masked = (torch.rand(num_answer.shape, generator=rng) * num_answer).long() + 1
    masked = (score.argsort(-1).argsort(-1) < num_masked) & answer
    masked_BN = masked.flatten(1)
    weights_BN = (masked * num_answer / num_masked).flatten(1) + noise.kept * (answer_BN & ~masked_BN)
    weights_BN[positions_BN >= end_B[:, None]] *= FILL_WEIGHT
    tokens_BN = targets_BN.masked_fill(masked_BN, MASK_ID)
    if noise.swapped:
        tokens_BN = swap(tokens_BN, answer_BN & ~masked_BN, noise.swapped, rng)
    return Copy(tokens_BN, positions_BN, targets_BN, weights_BN, block)


def swap(tokens_BN: Tensor, visible_BN: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Replace a share of the visible tokens by tokens of the batch's other answers, which are plausible mistakes."""
    pool = tokens_BN[visible_BN]
    if not len(pool):
        return tokens_BN
    others_BN = pool[torch.randint(len(pool), tokens_BN.shape, generator=rng)]
    return torch.where(visible_BN & (torch.rand(tokens_BN.shape, generator=rng) < share), others_BN, tokens_BN)


def scoring_rows(copies: list[Copy], begin: int, shifted: bool) -> Tensor:
    """The row whose hidden state scores each target; the rows of the first copy begin at `begin`."""
    rows = []
    for copy in copies:
        own_BN = (begin + torch.arange(copy.positions_BN.shape[1])).expand_as(copy.positions_BN)
        first_BN = copy.positions_BN % copy.block == 0
        rows.append(torch.where(first_BN, copy.positions_BN, own_BN) - 1 if shifted else own_BN)
        begin += own_BN.shape[1] if copy.block > 1 or not shifted else 0
    return torch.cat(rows, 1)


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


def make_batch(
    examples: list[Example],
    clean_block: int,
    blocks: tuple[int, ...],
    rng: torch.Generator,
    noise: Noise = Noise(),
    shifted: bool = False,
) -> Batch:
    prompt_B = torch.tensor([prompt for _, prompt in examples])
    end_B = torch.tensor([len(ids) for ids, _ in examples])
    num_clean = int(end_B.max())
    x0_BT = torch.full((len(examples), num_clean + 2 * max(blocks) + num_clean), PAD_ID)
    for row, (ids, _) in zip(x0_BT, examples, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    positions_BC = torch.arange(num_clean).expand(len(examples), -1)
    copies = [noisy_copy(x0_BT, prompt_B, end_B, block, noise, rng) for block in blocks]
    drafted = [copy for copy in copies if copy.block > 1 or not shifted]
    return Batch(
        tokens_BQ=torch.cat([x0_BT[:, :num_clean], *(copy.tokens_BN for copy in drafted)], 1),
        positions_BQ=torch.cat([positions_BC, *(copy.positions_BN for copy in drafted)], 1),
        visible_BQQ=visibility(positions_BC, clean_block, drafted),
        targets_BN=torch.cat([copy.targets_BN for copy in copies], 1),
        rows_BN=scoring_rows(copies, num_clean, shifted),
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
