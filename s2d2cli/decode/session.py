"""The decoding loop over one batch.

Axes: B rows, L block positions, T canvas positions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s2d2cli.decode.layout import Layout, host_ints
from s2d2cli.decode.observe import Observer, Unobserved
from s2d2cli.decode.rng import SampleStreams, Uniforms
from s2d2cli.decode.sampling import Sampler
from s2d2cli.decode.state import BlockState, Source, leading_count
from s2d2cli.decode.trace import KINDS, BatchResult, Counts, Generation, Request, generations
from s2d2cli.decode.unmask import quota_B, reveal
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.models.plan import ForwardPlan, Kind

if TYPE_CHECKING:
    from s2d2cli.decode import Decoder


class Session:
    """A batch on its way: state, cache and counts. `step` is the whole method, read from top to bottom."""

    observer: Observer = Unobserved()

    def __init__(
        self, decoder: Decoder, model: ModelAdapter, requests: Sequence[Request], uniforms: Uniforms | None = None
    ) -> None:
        settings = decoder.settings
        self.decoder, self.model, self.requests = decoder, model, requests
        self.live = list(range(len(requests)))  # the request of each row
        self.finished: dict[int, Generation] = {}
        length = settings.block_length
        assert length is not None and settings.max_new_tokens is not None
        self.state = new_state([r.prompt_ids for r in requests], settings.max_new_tokens, length, model)
        num_positions = self.state.canvas_BT.shape[1]
        self.layout = Layout(settings.context, settings.commit == "pending", 1 + length, num_positions)
        self.cache = model.new_cache(len(requests), num_positions, self.layout.scratch)
        self.sampler = Sampler(settings.temperature, settings.top_k, settings.top_p)
        self.uniforms = uniforms or SampleStreams.of(decoder.seed, [r.sample_id for r in requests], model.device)
        self.stop_S = torch.tensor(model.stop_ids, dtype=torch.long, device=model.device)
        self.counts = Counts()
        decoder.router.start(self)

    @torch.inference_mode()
    def step(self) -> bool:
        """Draft, maybe verify, reveal, move on. False when every row is finished."""
        decoder, state = self.decoder, self.state
        draft = decoder.drafter.draft(self)
        verify_B = decoder.router.decide(draft, state)
        verdict = decoder.verifier.verify(draft, self, verify_B)
        commit = reveal(decoder.unmask, draft, verdict.commit, quota_B(state, draft, decoder.denoising_steps))
        self.observer.observe(self, draft, verdict, commit)
        state.write(commit)
        decoder.router.observe(verdict.verified_B, commit.mask_BL.sum(1), state)
        state.verified_B += verdict.verified_B
        self.finish_blocks()
        return self.retire()

    def run(self) -> Iterator[Session]:
        """Decode to the end, stopping after each step to be looked at."""
        started = self.clock()
        self.prefill()
        while self.step():
            yield self
        seconds = self.clock() - started
        results = [self.finished[number] for number in range(len(self.requests))]
        self.result = BatchResult(results, seconds, dict(self.counts.forwards), self.counts.query_rows)

    @torch.inference_mode()
    def prefill(self) -> None:
        """Encode the prompts' whole blocks; what is left of a prompt opens the first decoded block."""
        self.encode(Kind.PREFILL, self.state.active_B)

    def encode(self, kind: Kind, rows_B: Tensor) -> None:
        plan = self.layout.encode(kind, self.state, rows_B)
        if plan is not None:
            self.forward(plan, rows_B & (self.state.encoded_B < self.state.start_B))
            self.state.encoded_B = torch.where(rows_B, self.state.start_B, self.state.encoded_B)

    def forward(self, plan: ForwardPlan, rows_B: Tensor) -> Tensor:
        """The one place where the model is called and forwards are counted; `rows_B` took part."""
        self.counts.forward(plan, rows_B, self.state)
        return self.model.forward(plan, self.cache)

    def finish_blocks(self) -> None:
        """Rows that stopped or reached their length are done; the others move on when their block is full."""
        state = self.state
        first_masked_B = state.first_masked_B
        full_B = state.active_B & (first_masked_B == state.block_end_B)
        stopped_B = self.stop_position_B() < first_masked_B
        done_B = state.active_B & (stopped_B | (first_masked_B >= state.end_B))
        if not self.layout.pending:  # the published code looks for stop tokens in finished blocks only
            done_B &= full_B
        state.start_B = torch.where(full_B, state.block_end_B, state.start_B)
        state.block_step_B = torch.where(full_B, 0, state.block_step_B)
        if not self.layout.pending:
            self.encode(Kind.COMMIT, full_B)
        state.active_B = state.active_B & ~done_B

    def retire(self) -> bool:
        """Is any row still at work? Once half of the rows are done, their results are put away and the rows dropped:
        the others need not carry them."""
        num_active = host_ints(self.state.active_B.sum())[0]
        if 2 * num_active <= len(self.live):
            for number, generation in zip(self.live, self.generations(), strict=True):
                self.finished[number] = generation  # those that go on will be put away again
            self.keep(self.state.active_B.nonzero()[:, 0])
        return num_active > 0

    def keep(self, index_R: Tensor) -> None:
        self.live = [self.live[row] for row in index_R.tolist()]
        self.state = self.state.rows(index_R)
        self.cache = self.cache.rows(index_R)
        self.uniforms = self.uniforms.rows(index_R)
        self.decoder.router.keep(index_R)

    def generations(self) -> list[Generation]:
        """What each row has so far."""
        return generations([self.requests[number] for number in self.live], self.state, self.model.stop_ids)

    def stop_position_B(self) -> Tensor:
        """Absolute position of the block's first generated stop token; far away when there is none."""
        state = self.state
        stop_BL = torch.isin(state.tokens_BL, self.stop_S) & (state.positions_BL >= state.prompt_len_B[:, None])
        first_B = leading_count(~stop_BL)
        return torch.where(first_B < state.block_length, state.start_B + first_B, state.canvas_BT.shape[1])

    def clock(self) -> float:
        """Seconds, after the device has finished its work."""
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)
        return time.perf_counter()


def new_state(prompts: Sequence[Sequence[int]], new_tokens: int, length: int, model: ModelAdapter) -> BlockState:
    """The canvas: prompts at position 0, masks behind them, one spare block for rows that are finished."""
    device = model.device
    prompt_len_B = torch.tensor([len(prompt) for prompt in prompts], device=device)
    end_B = prompt_len_B + new_tokens
    longest = max(len(prompt) for prompt in prompts) + new_tokens
    num_positions = (-(-longest // length) + 1) * length
    canvas_BT = torch.full((len(prompts), num_positions), model.mask_id, device=device)
    for row, prompt in enumerate(prompts):
        canvas_BT[row, : len(prompt)] = torch.tensor(prompt, device=device)
    is_prompt_BT = torch.arange(num_positions, device=device) < prompt_len_B[:, None]
    zeros_B = torch.zeros_like(prompt_len_B)
    return BlockState(
        canvas_BT=canvas_BT,
        prompt_len_B=prompt_len_B,
        end_B=end_B,
        start_B=prompt_len_B // length * length,
        encoded_B=zeros_B,
        active_B=torch.ones_like(prompt_len_B, dtype=torch.bool),
        step_B=zeros_B.clone(),
        block_step_B=zeros_B.clone(),
        reveal_step_BT=torch.full_like(canvas_BT, -1, dtype=torch.int32),
        source_BT=torch.where(is_prompt_BT, int(Source.PROMPT), int(Source.UNDECIDED)).to(torch.int8),
        forwards_BK=torch.zeros(len(prompts), len(KINDS), dtype=torch.long, device=device),
        verified_B=zeros_B.clone(),
        block_length=length,
        mask_id=model.mask_id,
    )
