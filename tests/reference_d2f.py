"""Blocks in flight as slowly and plainly as can be, from a description of D2F and of S2D2's code for it: one row,
greedy, no cache, lists and loops. Every pass computes the whole sequence anew with transformers' network."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from s2d2cli.models.adapter import ModelAdapter
from tests.reference import finished, logits_of, origin


@dataclass
class Settings:
    length: int
    new_tokens: int
    threshold: float = 0.9
    add: float = 0.1
    activate: float = 0.95
    at_least: int = 1
    most: int | None = None  # blocks in flight
    tau_span: int | None = None  # None: nothing is verified
    resample: bool = True
    causal: bool = False  # decode.context
    bonus: bool = True


@dataclass
class Run:
    """One answer on its way. `tokens` ends with the last block that was begun."""

    model: ModelAdapter
    prompt: list[int]
    settings: Settings
    drafts: int = 0
    verifications: int = 0
    tokens: list[int] = field(default_factory=list)

    def answer(self) -> list[int]:
        self.tokens, end = list(self.prompt), len(self.prompt) + self.settings.new_tokens
        while len(self.tokens) < end or not finished(self.tokens, len(self.prompt), end, self.model):
            if self.model.mask_id not in self.tokens and self.stopped():
                break
            if finished_by_stop(self.tokens, len(self.prompt), self.model):
                break
            self.begin_block(end)
            self.step(end)
        new = self.tokens[len(self.prompt) : end]
        stop = next((i for i, token in enumerate(new) if token in self.model.stop_ids), len(new) - 1)
        return new[: stop + 1]

    def blocks(self) -> list[range]:
        """Those that were begun, counted from the prompt's end or from position 0; only the answer's count."""
        first, length = origin(self.model, len(self.prompt)), self.settings.length
        starts = range(first, len(self.tokens), length)
        return [range(s, s + length) for s in starts if s + length > len(self.prompt)]

    def share(self, block: range) -> float:
        here = self.tokens[block.start : block.stop]
        return sum(token != self.model.mask_id for token in here) / len(block)

    def stopped(self) -> bool:
        return any(token in self.model.stop_ids for token in self.tokens[len(self.prompt) :])

    def begin_block(self, end: int) -> None:
        mask, length = self.model.mask_id, self.settings.length
        rest = -(len(self.tokens) - origin(self.model, len(self.prompt))) % length
        if rest:  # a block that a prompt or a bonus token has opened
            self.tokens += [mask] * rest
            return
        blocks = self.blocks()
        open_blocks = [block for block in blocks if any(self.share(b) < 1 for b in blocks[: blocks.index(block) + 1])]
        room = self.settings.most is None or len(open_blocks) < self.settings.most
        ready = not open_blocks or self.share(blocks[-1]) >= self.settings.add
        if len(self.tokens) < end and room and ready and not self.stopped():
            self.tokens += [mask] * length

    def step(self, end: int) -> None:
        mask, blocks = self.model.mask_id, self.blocks()
        logits = logits_of(self.model, self.tokens, self.draft_mask())
        self.drafts += 1
        masked = [position for position, token in enumerate(self.tokens) if token == mask]
        probs = {position: logits[position].softmax(-1).max().item() for position in masked}
        draft = {position: int(logits[position].argmax()) for position in masked}
        shares = [self.share(block) for block in blocks]
        decided = self.verify(draft, end)
        for number, block in enumerate(blocks):
            activated = number == 0 or shares[number - 1] >= self.settings.activate
            owed = self.settings.at_least if activated else 0
            verified = sum(position in block for position in decided)
            if activated and verified >= owed:
                continue
            left = [position for position in block if position in draft and position not in decided]
            sure = [position for position in left if probs[position] > self.settings.threshold]
            if len(sure) < owed - verified:
                sure = sorted(left, key=lambda position: (-probs[position], position))[: owed - verified]
            decided |= {position: draft[position] for position in sure}
        for position, token in decided.items():
            if position < len(self.tokens):
                self.tokens[position] = token
            else:
                self.tokens.append(token)  # a bonus behind all that was begun

    def verify(self, draft: dict[int, int], end: int) -> dict[int, int]:
        """The first run of masks, checked in autoregressive mode: what is accepted, and what replaces a rejection."""
        if self.settings.tau_span is None or not draft:
            return {}
        span = [min(draft)]
        while span[-1] + 1 in draft:
            span.append(span[-1] + 1)
        if len(span) < self.settings.tau_span:
            return {}
        if self.settings.causal and self.redundant(draft):
            return {}
        self.verifications += 1
        decided: dict[int, int] = {}
        tokens = list(self.tokens)
        for position in span:
            best = self.one_token(tokens, position)
            if best != draft[position]:
                return decided | ({position: best} if self.settings.resample else {})
            decided[position] = tokens[position] = best
        behind = span[-1] + 1
        free = behind >= len(tokens) or tokens[behind] == self.model.mask_id
        if self.model.shift and self.settings.bonus and free and behind < end:
            decided[behind] = self.one_token(tokens, behind)
        return decided

    def redundant(self, draft: dict[int, int]) -> bool:
        """A single mask that sees nothing but what is left of it: the verifier would say the same."""
        return len(draft) == 1 and (bool(self.model.shift) or max(draft) == len(self.tokens) - 1)

    def one_token(self, tokens: list[int], position: int) -> int:
        """What the model writes behind `tokens[:position]`, of which all but the finished blocks is causal."""
        size = position + 1
        visible = self.draft_mask()[:size, :size] if size <= len(self.tokens) else self.longer_mask(size)
        settled = self.settled()
        causal = torch.ones(size, size, dtype=torch.bool).tril()
        visible[settled:] = causal[settled:]
        return int(logits_of(self.model, [*tokens[:position], self.model.mask_id], visible)[-1].argmax())

    def settled(self) -> int:
        """Everything left of the first block that has a mask."""
        for block in self.blocks():
            if self.share(block) < 1:
                return max(block.start, len(self.prompt) if self.model.whole_prompt else 0)
        return len(self.tokens)

    def draft_mask(self) -> torch.Tensor:
        return self.longer_mask(len(self.tokens))

    def longer_mask(self, size: int) -> torch.Tensor:
        """Each position sees its own block and all left of it. In the causal context what is decided without a gap
        sees only what is left of it. The prompt of a D2F model sees itself, whatever else."""
        first, length = origin(self.model, len(self.prompt)), self.settings.length
        visible = torch.zeros(size, size, dtype=torch.bool)
        gap = next((p for p, token in enumerate(self.tokens) if token == self.model.mask_id), size)
        for row in range(size):
            block_end = first + ((row - first) // length + 1) * length
            if self.model.whole_prompt and row < len(self.prompt):
                block_end = len(self.prompt)
            elif self.settings.causal and row < gap:
                block_end = row + 1
            visible[row, :block_end] = True
        return visible


def finished_by_stop(tokens: list[int], low: int, model: ModelAdapter) -> bool:
    """A stop token is decided, and all left of it."""
    for token in tokens[low:]:
        if token == model.mask_id:
            return False
        if token in model.stop_ids:
            return True
    return False


def decode(model: ModelAdapter, prompt: list[int], settings: Settings) -> tuple[list[int], int, int]:
    """(new ids, drafts, verifications)."""
    run = Run(model, prompt, settings)
    return run.answer(), run.drafts, run.verifications
