"""Train `tiny`, the small block-diffusion model that ships with s2d2, on a CPU, from nothing but a seed.

    python scripts/train_tiny.py --out runs/tiny

Two switches train its siblings on the same data: --format fast_dllm_v2 or llada2, --size draft.

Stage 1 warms the model up as an autoregressive one (block length 1 only): small batches of one task break the plateau
on which the copying of names and numbers is learnt. Stage 2 trains block lengths 1 to 32 together; stages 3 and 4 do
the same for the family that lags behind. Steps decide when training stops, never the clock. A killed run continues from
its last checkpoint when started again. Needs torch 2.9 or newer, for torch.optim.Muon (decoding needs 2.6).
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from random import Random

import torch
from tiny_batches import Batch, Example, length_batches, make_batch
from tiny_data import FAMILIES, draw
from tiny_formats import FORMATS, SIZES, Format, shape_of
from tiny_model import Router, Shape, TinyModel
from tiny_tokenizer import END, END_ID, build_tokenizer, render
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

# Word problems need the most practice; once they go well, following instructions needs more than it had.
MIXES = {
    "train": {"math": 0.70, "code": 0.12, "instruct": 0.18},
    "train late": {"math": 0.52, "code": 0.12, "instruct": 0.36},
    "train last": {"math": 0.35, "code": 0.08, "instruct": 0.57},
    "train even": {"math": 0.34, "code": 0.33, "instruct": 0.33},
}


@dataclass(frozen=True)
class Stage:
    name: str
    steps: int
    budget: int  # positions in a batch, all copies counted
    decay: float  # the share of the steps, at the end, over which the learning rate falls to zero
    num_copies: int
    mixes: tuple[tuple[str, int], ...]  # which mix is drawn, and from which step on
    learning_rate: float = 4e-3
    warm_up: int = 60

    def rate(self, step: int) -> float:
        fall = (self.steps - step) / (self.steps * self.decay)
        return self.learning_rate * min(1.0, (step + 1) / self.warm_up, fall)


def make_texts(mix: dict[str, float], rng: Random, count: int) -> list[tuple[str, str]]:
    """(prompt, answer) pairs, none of them held out."""
    names = rng.choices(list(mix), weights=list(mix.values()), k=count)
    problems = [draw(FAMILIES[name], rng, held_out=False) for name in names]
    return [(render(problem.messages), problem.answer) for problem in problems]


def encode(tokenizer: Tokenizer, texts: list[tuple[str, str]]) -> list[Example]:
    prompts = tokenizer.encode_batch([prompt for prompt, _ in texts])
    answers = tokenizer.encode_batch([answer for _, answer in texts])
    return [(p.ids + a.ids + [END_ID], len(p.ids)) for p, a in zip(prompts, answers, strict=True)]


def mixes_of(args: argparse.Namespace) -> tuple[str, str, str]:
    """Of the stages, from first to last."""
    return "train", "train late", FORMATS[args.format].last_mix


def load_data(args: argparse.Namespace) -> tuple[Tokenizer, dict[str, list[Example]]]:
    counts = {name: args.examples if name == "train" else args.examples // 2 for name in mixes_of(args)}
    texts = {name: make_texts(MIXES[name], Random(f"{name} {args.seed}"), count) for name, count in counts.items()}
    tokenizer = build_tokenizer([p + a + END for p, a in texts["train"][:12_000]], Shape().vocab_size)
    return tokenizer, {name: encode(tokenizer, pairs) for name, pairs in texts.items()}


def batches(examples: list[Example], stage: Stage, form: Format, label: str, start: int) -> Iterator[Batch]:
    """The batches from step `start` on; each depends only on the label (seed, stage, mix) and its step."""
    step, epoch = 0, 0
    while True:
        rng = Random(f"{label} epoch {epoch}")
        order = rng.sample(range(len(examples)), len(examples))
        cuts = length_batches(examples, order, stage.num_copies, stage.budget)
        rng.shuffle(cuts)
        for rows in cuts:
            if step >= start:
                yield noisy_batch([examples[row] for row in rows], stage, form, Random(f"{label} {step}"))
            step += 1
        epoch += 1


def noisy_batch(rows: list[Example], stage: Stage, form: Format, rng: Random) -> Batch:
    generator = torch.Generator().manual_seed(rng.getrandbits(60))
    block = rng.choice(form.blocks) if stage.num_copies > 1 else 1
    # Clean blocks of one token are AR mode's causal cache, clean blocks of `block` are plain block diffusion's.
    clean_block = 1 if block == 1 or rng.random() < 0.6 else block
    blocks = (clean_block, block)[-stage.num_copies :]
    return make_batch(rows, clean_block, blocks, generator, rng.choice(form.noises), form.shape.get("shifted", False))


def loss_of(model: TinyModel, batch: Batch, bf16: bool) -> Tensor:
    scored_BN = batch.weights_BN > 0
    rows, rows_BN = scored_BN.nonzero()[:, 0], batch.rows_BN[scored_BN]
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        hidden_BQH = model.hidden(batch.tokens_BQ, batch.positions_BQ, batch.visible_BQQ)
        logits = model.logits(hidden_BQH[rows, rows_BN]).float()
    losses = F.cross_entropy(logits, batch.targets_BN[scored_BN], reduction="none")
    return (losses * batch.weights_BN[scored_BN]).sum() / batch.num_answer_tokens


def optimizers(model: TinyModel) -> list[torch.optim.Optimizer]:
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or "embed" in name]
    muon = torch.optim.Muon(matrices, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)]


@dataclass
class Trainer:
    model: TinyModel
    data: dict[str, list[Example]]
    args: argparse.Namespace  # what parse_args returns

    def run(self, stage: Stage) -> None:
        """Train one stage, from its last checkpoint if there is one."""
        torch.manual_seed(self.args.seed)
        opts, path = optimizers(self.model), self.args.out / f"{stage.name}.pt"
        start = self.restore(path, opts)
        feed, clock, losses = self.feed(stage, start), time.time(), []
        for step in range(start, stage.steps):
            losses.append(self.update(next(feed), opts, stage.rate(step)))
            if (step + 1) % self.args.log_every == 0:
                mean, seconds = sum(losses) / len(losses), (time.time() - clock) / len(losses)
                print(f"{stage.name} step {step + 1}/{stage.steps} loss {mean:.4f} {seconds:.3f} s/step", flush=True)
                clock, losses = time.time(), []
            if (step + 1) % self.args.save_every == 0 or step + 1 == stage.steps:
                self.save(path, opts, step + 1)

    def feed(self, stage: Stage, start: int) -> Iterator[Batch]:
        streams = []
        for (mix, first), (_, last) in pairwise([*stage.mixes, ("", stage.steps)]):
            label = f"{self.args.seed} {stage.name}{mix.removeprefix('train')}"
            stream = batches(self.data[mix], stage, FORMATS[self.args.format], label, max(0, start - first))
            streams.append(islice(stream, max(0, last - max(first, start))))
        return chain(*streams)

    def update(self, batch: Batch, opts: list[torch.optim.Optimizer], rate: float) -> float:
        loss = loss_of(self.model, batch, self.args.bf16)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = rate
            opt.step()
            opt.zero_grad()
        for router in (module for module in self.model.modules() if isinstance(module, Router)):
            router.balance()
        return loss.item()

    def save(self, path: Path, opts: list[torch.optim.Optimizer], step: int) -> None:
        state = {"step": step, "model": self.model.state_dict(), "opts": [opt.state_dict() for opt in opts]}
        state |= {"format": self.args.format, "size": self.args.size}
        torch.save(state, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)  # a kill never leaves half a checkpoint

    def restore(self, path: Path, opts: list[torch.optim.Optimizer]) -> int:
        if not path.exists():
            return 0
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        for opt, saved in zip(opts, state["opts"], strict=True):
            opt.load_state_dict(saved)
        return state["step"]


def stages(args: argparse.Namespace) -> list[Stage]:
    early, late, last = mixes_of(args)
    last_rate = FORMATS[args.format].last_rate
    mixes2 = ((early, 0), (late, args.steps2 // 2))
    return [
        Stage("stage1", args.steps1, budget=2048, decay=0.3, num_copies=1, mixes=((early, 0),)),
        Stage("stage2", args.steps2, budget=3072, decay=0.7, num_copies=2, mixes=mixes2),
        Stage("stage3", args.steps3, 3072, decay=0.9, num_copies=2, mixes=((last, 0),), learning_rate=2.5e-3),
        Stage("stage4", args.steps4, 3072, decay=0.9, num_copies=2, mixes=((last, 0),), learning_rate=last_rate),
    ]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the tokenizer")
    parser.add_argument("--format", choices=list(FORMATS), default="sdar", help="whose published format it will have")
    parser.add_argument("--size", choices=list(SIZES), default="tiny", help="draft: a quarter of the parameters")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps1", type=int, default=2000, help="steps of the autoregressive warm start")
    parser.add_argument("--steps2", type=int, default=4000, help="steps over all block lengths")
    parser.add_argument("--steps3", type=int, default=1400, help="steps of the same with mostly instructions")
    parser.add_argument("--steps4", type=int, default=600, help="steps of the same, at its own rate")
    parser.add_argument("--examples", type=int, default=120_000, help="distinct draws of training problems")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True, help="bfloat16 autocast")
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--save-every", type=int, default=250)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer, data = load_data(args)
    tokenizer.save(str(args.out / "tokenizer.json"))
    torch.manual_seed(args.seed)
    trainer = Trainer(TinyModel(shape_of(args.format, args.size)), data, args)
    for stage in stages(args):
        trainer.run(stage)


if __name__ == "__main__":
    main()
