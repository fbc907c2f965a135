"""Monitor `tiny` while it trains: accuracy and tokens per forward of three greedy decoders, in batches.

Not the measuring tool: s2d2 itself measures what is reported. This file only tells when a checkpoint is good enough.
Slots of the cache are absolute positions, with `scratch` slots for masks behind them. Where a model's logits score the
next token, a window's logits are those of the rows from the one before it on; so every window is asked with that row.

Axes: B rows, L tokens of a block, Q query tokens, T cache slots, P positions of the canvas, V vocabulary.
"""

import argparse
import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from tiny_data import FAMILIES, Problem, held_out_set
from tiny_data.checks import CHECKS
from tiny_formats import shape_of
from tiny_model import Cache, TinyModel
from tiny_tokenizer import END_ID, MASK_ID, render
from tokenizers import Tokenizer
from torch import Tensor

MAX_ANSWER = 112


@dataclass
class Result:
    answers: list[list[int]]  # token ids up to the end token, which is left out
    tokens: int  # end tokens included
    forwards: int  # drafts and verifications; passes that only write the cache are not counted


class Session:
    """A batch of prompts with its canvas and cache. `done_B` counts decided tokens."""

    def __init__(self, model: TinyModel, prompts: list[list[int]], block: int) -> None:
        self.model, self.block = model, block
        self.prompt_B = torch.tensor([len(prompt) for prompt in prompts])
        self.context = (int(self.prompt_B.max()) + MAX_ANSWER) // block * block + block
        self.canvas_BP = torch.full((len(prompts), self.context + block), MASK_ID)
        for row, prompt in zip(self.canvas_BP, prompts, strict=True):
            row[: len(prompt)] = torch.tensor(prompt)
        self.cache = Cache(len(prompts), self.context + 1 + block, model.shape)
        self.slots_T = torch.arange(self.cache.slots)
        self.active_B = torch.ones(len(prompts), dtype=torch.bool)
        self.forwards_B = torch.zeros(len(prompts), dtype=torch.long)

    def forward(self, tokens_BQ: Tensor, positions_BQ: Tensor, slots_BQ: Tensor, visible_BQT: Tensor) -> Tensor:
        self.cache.aim(slots_BQ)
        return self.model(tokens_BQ, positions_BQ, visible_BQT, self.cache)

    def scores(self, logits_BQV: Tensor) -> Tensor:
        """Of the row before a window and the window's rows: the rows that score the window's tokens."""
        return logits_BQV[:, :-1] if self.model.shape.shifted else logits_BQV[:, 1:]

    def prefill(self, clean_block: int) -> None:
        positions_BQ = torch.arange(int(self.prompt_B.max())).expand(len(self.prompt_B), -1)
        limit_BQ1 = ((positions_BQ // clean_block + 1) * clean_block)[..., None]
        tokens_BQ = self.canvas_BP[:, : positions_BQ.shape[1]]
        self.forward(tokens_BQ, positions_BQ, positions_BQ, self.slots_T < limit_BQ1)

    def finish(self, done_B: Tensor) -> None:
        """Rows stop at the end token, or when the next block would not fit."""
        generated = torch.arange(self.canvas_BP.shape[1]) >= self.prompt_B[:, None]
        ended_B = (
            (self.canvas_BP == END_ID) & generated & (torch.arange(self.canvas_BP.shape[1]) < done_B[:, None])
        ).any(1)
        self.active_B &= ~ended_B & (done_B + self.block <= self.context)

    def result(self) -> Result:
        rows = [row[start:].tolist() for row, start in zip(self.canvas_BP, self.prompt_B, strict=True)]
        answers = [row[: row.index(END_ID)] if END_ID in row else row for row in rows]
        return Result(answers, sum(len(answer) + 1 for answer in answers), int(self.forwards_B.sum()))


def speculative(model: TinyModel, prompts: list[list[int]], block: int) -> Result:
    """Greedy S2D2 with a causal cache; with `block` 1 it is AR decoding, where the draft needs no verification."""
    session = Session(model, prompts, block)
    session.prefill(1)
    done_B = session.prompt_B.clone()
    while session.active_B.any():
        length_B = block - done_B % block
        draft_BL = draft(session, done_B, length_B)
        chosen_BL = verify(session, done_B, draft_BL) if block > 1 else draft_BL
        agreed_B = (chosen_BL == draft_BL).long().cumprod(1).sum(1)
        take_B = torch.minimum(agreed_B + 1, length_B) * session.active_B
        write(session, done_B, chosen_BL, take_B)
        session.forwards_B += session.active_B * min(block, 2)
        done_B = done_B + take_B
        session.finish(done_B)
    return session.result()


def write(session: Session, done_B: Tensor, tokens_BL: Tensor, take_B: Tensor) -> None:
    steps_L = torch.arange(tokens_BL.shape[1])
    rows, columns = (steps_L < take_B[:, None]).nonzero(as_tuple=True)
    session.canvas_BP[rows, done_B[rows] + columns] = tokens_BL[rows, columns]


def draft(session: Session, done_B: Tensor, length_B: Tensor) -> Tensor:
    """Query: the last decided token, whose keys may be missing, then the masks of the rest of the block."""
    steps_L, scratch = torch.arange(session.block), session.context + 1
    positions_BQ = done_B[:, None] + torch.arange(-1, session.block)
    last_B1 = session.canvas_BP.gather(1, done_B[:, None] - 1)
    tokens_BQ = torch.cat([last_B1, torch.full((len(done_B), session.block), MASK_ID)], 1)
    slots_BQ = torch.cat([done_B[:, None] - 1, (scratch + steps_L).expand(len(done_B), -1)], 1)
    prefix_BT = session.slots_T < done_B[:, None]
    masks_BT = (session.slots_T >= scratch) & (session.slots_T < scratch + length_B[:, None])
    visible_BQT = prefix_BT[:, None] | (masks_BT[:, None] & (torch.arange(session.block + 1) > 0)[:, None])
    return session.scores(session.forward(tokens_BQ, positions_BQ, slots_BQ, visible_BQT)).argmax(-1)


def verify(session: Session, done_B: Tensor, draft_BL: Tensor) -> Tensor:
    """Query: the last decided token and the draft, as causal data rows; these score the draft of a shifted model.

    Else there follows one mask for each position of the draft, that sees only the data before it.
    """
    steps_L, scratch, last_B1 = torch.arange(session.block), session.context + 1, done_B[:, None] - 1
    positions_BQ = done_B[:, None] + torch.arange(-1, session.block)
    tokens_BQ = torch.cat([session.canvas_BP.gather(1, last_B1), draft_BL], 1)
    slots_BQ = positions_BQ.clamp(max=session.context)
    visible_BQT = session.slots_T <= positions_BQ[..., None]
    if session.model.shape.shifted:
        return session.scores(session.forward(tokens_BQ, positions_BQ, slots_BQ, visible_BQT)).argmax(-1)
    positions_BL = positions_BQ[:, 1:]
    masks_BLT = (session.slots_T < positions_BL[..., None]) | (session.slots_T == scratch + steps_L[:, None])
    logits_BQV = session.forward(
        torch.cat([tokens_BQ, torch.full_like(draft_BL, MASK_ID)], 1),
        torch.cat([positions_BQ, positions_BL], 1),
        torch.cat([slots_BQ, (scratch + steps_L).expand(len(done_B), -1)], 1),
        torch.cat([visible_BQT, masks_BLT], 1),
    )
    return logits_BQV[:, -session.block :].argmax(-1)


def dynamic(model: TinyModel, prompts: list[list[int]], block: int, threshold: float) -> Result:
    """Block diffusion: reveal every position above the threshold, at least one a step; block-causal cache."""
    session = Session(model, prompts, block)
    session.prefill(block)
    start_B = session.prompt_B // block * block
    while session.active_B.any():
        positions_BL = start_B[:, None] + torch.arange(block)
        tokens_BL = session.canvas_BP.gather(1, positions_BL)
        logits_BLV = whole_block(session, start_B)
        masked_BL = tokens_BL == MASK_ID
        revealed_BL = reveal(tokens_BL, logits_BLV, masked_BL, threshold)
        session.canvas_BP.scatter_(1, positions_BL, torch.where(session.active_B[:, None], revealed_BL, tokens_BL))
        full_B = ~masked_BL.any(1)  # this pass only wrote the keys of the finished block
        session.forwards_B += session.active_B & ~full_B
        start_B = start_B + block * (full_B & session.active_B)
        session.finish(start_B)
    return session.result()


def whole_block(session: Session, start_B: Tensor) -> Tensor:
    """Query: the token before the block, which is final and sees no further, then the block, all of which sees itself.

    Before position 0 there is none: a slot behind the block takes what stands in for it, so that nothing sees it.
    """
    positions_BQ = start_B[:, None] + torch.arange(-1, session.block)
    limit_BQ = torch.where(positions_BQ < start_B[:, None], start_B[:, None], start_B[:, None] + session.block)
    tokens_BQ = session.canvas_BP.gather(1, positions_BQ.clamp(min=0))
    slots_BQ = torch.where(positions_BQ < 0, session.context + 1, positions_BQ)
    return session.scores(session.forward(tokens_BQ, positions_BQ, slots_BQ, session.slots_T < limit_BQ[..., None]))


def reveal(tokens_BL: Tensor, logits_BLV: Tensor, masked_BL: Tensor, threshold: float) -> Tensor:
    confidence_BL, guess_BL = logits_BLV.softmax(-1).max(-1)
    confidence_BL = confidence_BL.masked_fill(~masked_BL, -1.0)
    best_BL = confidence_BL == confidence_BL.max(1, keepdim=True).values
    return torch.where(masked_BL & ((confidence_BL > threshold) | best_BL), guess_BL, tokens_BL)


def right_number(problem: Problem, answer: str) -> bool:
    numbers = [re.findall(r"#### (\d+)", text) for text in (problem.answer, answer)]
    return numbers[0][-1:] == numbers[1][-1:]


def passes_tests(problem: Problem, answer: str) -> bool:
    code = re.findall(r"```python\n(.*?)\n```", answer, re.DOTALL)
    program = "\n".join([*code, *problem.record["test_list"]])
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, timeout=10, stdin=subprocess.DEVNULL
    )
    return bool(code) and run.returncode == 0


def follows(problem: Problem, answer: str) -> bool:
    asked = zip(problem.record["instruction_id_list"], problem.record["kwargs"], strict=True)
    return all(CHECKS[name](answer, **arguments) for name, arguments in asked)


SCORERS = {"math": right_number, "code": passes_tests, "instruct": follows}


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    share, spread = right / total, z * z / total
    centre, half = share + spread / 2, z * math.sqrt(share * (1 - share) / total + spread / total / 4)
    return (centre - half) / (1 + spread), (centre + half) / (1 + spread)


def held_out(family: str, count: int) -> list[Problem]:
    """The shipped problems are the first of this list."""
    return list(held_out_set(FAMILIES[family], Random(f"held out {family}"), count))


@torch.inference_mode()
def measure(model: TinyModel, tokenizer: Tokenizer, family: str, which: range, decoders: list[str], block: int) -> dict:
    problems = held_out(family, which.stop)[which.start :]
    prompts = [tokenizer.encode(render(problem.messages)).ids for problem in problems]
    texts, report = {}, {}
    for name in decoders:
        runs = {"ar": lambda: speculative(model, prompts, 1), "s2d2": lambda: speculative(model, prompts, block)}
        result = runs[name]() if name in runs else dynamic(model, prompts, block, float(name.removeprefix("dynamic")))
        texts[name] = tokenizer.decode_batch(result.answers, skip_special_tokens=False)
        right = sum(SCORERS[family](problem, text) for problem, text in zip(problems, texts[name], strict=True))
        same = sum(a == b for a, b in zip(texts[name], texts["ar"], strict=True)) if "ar" in texts else None
        report[name] = {
            "right": right,
            "of": len(which),
            "accuracy": right / len(which),
            "wilson95": wilson(right, len(which)),
            "tokens_per_forward": result.tokens / result.forwards,
            "same_text_as_ar": same,
            "first": texts[name][0],
        }
    return report


def load(checkpoint: Path) -> tuple[TinyModel, Tokenizer, str]:
    """The model, its tokenizer and the format it was trained in."""
    state = torch.load(checkpoint)
    model = TinyModel(shape_of(state["format"], state["size"]))
    model.load_state_dict(state["model"])
    return model.eval(), Tokenizer.from_file(str(checkpoint.parent / "tokenizer.json")), state["format"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="stage1.pt to stage4.pt in the training folder")
    parser.add_argument("--skip", type=int, default=0, help="held-out problems that come before those measured")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--decoders", nargs="+", default=["ar", "dynamic0.5", "s2d2"])
    parser.add_argument("--block", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer, _ = load(args.checkpoint)
    which = range(args.skip, args.skip + args.count)
    for family in args.families:
        for name, row in measure(model, tokenizer, family, which, args.decoders, args.block).items():
            print(family, name, json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
