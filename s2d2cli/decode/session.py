"""The decoding loop over one batch.

Axes: B rows, L block positions, T canvas positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from s2d2cli.decode.full import FullLayout
from s2d2cli.decode.layout import Layout
from s2d2cli.decode.meter import KINDS, OTHER, Meter
from s2d2cli.decode.observe import Observer, Unobserved
from s2d2cli.decode.rng import SampleStreams, Uniforms
from s2d2cli.decode.sampling import Sampler
from s2d2cli.decode.state import BlockState, Source, leading_count
from s2d2cli.decode.trace import BatchResult, Generation, Request, generations
from s2d2cli.decode.unmask import quota_B, reveal
from s2d2cli.decode.whole_prompt import WholePromptLayout
from s2d2cli.errors import DecodeError
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.models.cache import KVCache
from s2d2cli.models.plan import ForwardPlan, Kind

if TYPE_CHECKING:
    from s2d2cli.decode import Decoder


class Session:
    """A batch on its way, refilled from a queue. `step` is the whole method, read from top to bottom.

    At most `width` requests are at work at once; when one is done the next one takes its row, so that rows do not idle.
    """

    observer: Observer = Unobserved()

    def __init__(
        self,
        decoder: Decoder,
        model: ModelAdapter,
        requests: Sequence[Request],
        width: int | None = None,
        uniforms: Uniforms | None = None,
    ) -> None:
        settings = decoder.settings
        self.decoder, self.model, self.requests = decoder, model, requests
        self.queue = list(range(len(requests)))
        self.live = self.queue[:width]  # the request of each row
        self.working: list[int] = []  # the rows whose request is not done
        self.finished: dict[int, Generation] = {}
        self.fresh: list[int] = []  # those of them that `results` has not given yet
        assert settings.block_length is not None and settings.max_new_tokens is not None
        longest = max(len(request.prompt_ids) for request in requests) + settings.max_new_tokens
        block = decoder.verifier.positions(settings.block_length)
        length = decoder.blocks * block
        # rows that are done have moved on by up to a block, and look at the next one and the position behind it
        num_positions = (-(-longest // block) + 2) * block
        # what they look at behind the answer is masks alone, and never computed
        self.state = idle_state(len(self.live), num_positions + length - block, length, model)
        self.state.grid, self.state.blocks = decoder.verifier.grid(settings.block_length), decoder.blocks
        # a verification may repeat a draft's rows, which is the whole canvas where a model attends fully
        wide = model.attends_fully and getattr(decoder.router, "verifies", True)
        scratch = decoder.verifier.scratch(num_positions if wide else length)
        self.layout = make_layout(decoder, model, scratch, num_positions)
        self.state.from_prompt = model.from_prompt
        self.state.sub_block = settings.sub_block_length or length
        self.cache = model.new_cache(len(self.live), num_positions, self.layout.scratch)
        self.sampler = Sampler(settings.temperature, settings.top_k, settings.top_p)
        estimated = getattr(decoder.verifier, "estimated", None)
        self.estimated = self.sampler if estimated is None else estimated(self.sampler)
        self.uniforms = uniforms or SampleStreams.empty(decoder.seed, len(self.live), model.device)
        self.stop_S = torch.tensor(model.stop_ids, dtype=torch.long, device=model.device)
        self.meter = Meter(model.device)
        # stages that know something of each row; an unmask rule need not
        self.remembering: list[Any] = [
            stage for stage in (decoder.drafter, decoder.router, decoder.unmask) if hasattr(stage, "start")
        ]
        for stage in self.remembering:
            stage.start(self)

    @torch.inference_mode()
    def step(self) -> bool:
        """Draft, maybe verify, reveal, move on. False when no request is at work."""
        decoder, state, meter = self.decoder, self.state, self.meter
        meter.start()
        draft = decoder.drafter.draft(self)
        meter.lap(Kind.DRAFT.value)
        verify_B = decoder.router.decide(draft, state)
        if verify_B.dtype != torch.bool:  # a router may also say how many of the drafts are worth a look
            draft, verify_B = draft.first(verify_B), verify_B > 0
        meter.lap(OTHER)
        verdict = decoder.verifier.verify(draft, self, verify_B)
        meter.lap(Kind.VERIFY.value)
        owed_B = quota_B(decoder.unmask, state, draft, decoder.denoising_steps)
        commit = reveal(decoder.unmask, draft, verdict.commit, owed_B)
        self.observer.observe(self, draft, verdict, commit)
        decided_B = state.write(commit, verdict.bonus)
        decoder.drafter.advance(verdict)
        decoder.router.observe(verdict, decided_B, state)
        state.verified_B += verdict.verified_B
        self.finish_blocks()
        self.turn_over(draft.broken_B, verdict.broken_B)
        return bool(self.working)

    def run(self) -> Iterator[Session]:
        """Decode to the end, stopping after each step to be looked at."""
        self.admit(list(range(len(self.live))))
        while self.step():
            yield self
        results = [self.finished[number] for number in sorted(self.finished)]
        self.result = BatchResult(results, dict(self.meter.forwards), self.meter.whole)

    def results(self) -> Iterator[Generation]:
        """Each request's result in the order in which they get done. What the caller does with it is not timed."""
        for _ in chain(self.run(), [self]):
            while self.fresh:
                yield self.finished[self.fresh.pop(0)]

    def window_B(self, start_B: Tensor) -> Tensor:
        """How many positions a draft that begins there looks at: a block; where several are in flight, what the unmask
        rule wants; where windows slide, what the router wants of what is left. What is left at most, where blocks end
        with it."""
        state = self.state
        if state.blocks > 1:
            return self.decoder.unmask.window_B(state)  # type: ignore[attr-defined, no-any-return]
        block_B = torch.full_like(start_B, state.block_length)
        if not state.slides and not self.model.attends_fully:
            return block_B
        wanted = getattr(self.decoder.router, "window_B", None)
        wanted_B = block_B if wanted is None else torch.minimum(wanted(state), block_B)
        return torch.minimum(wanted_B, state.end_B - start_B).clamp(min=0)

    def admit_no_more(self) -> None:
        """Let those at work finish, and leave the rest of the queue alone."""
        self.queue = []

    @torch.inference_mode()
    def admit(self, rows: list[int]) -> None:
        """The next requests take these rows. The prompts' whole blocks are encoded; what is left of a prompt opens the
        first decoded block."""
        numbers, self.queue = self.queue[: len(rows)], self.queue[len(rows) :]
        requests = [self.requests[number] for number in numbers]
        index_R = torch.tensor(rows, device=self.model.device)
        self.meter.start()
        state = self.state.rows(index_R)
        assert self.decoder.settings.max_new_tokens is not None
        state.begin([request.prompt_ids for request in requests], self.decoder.settings.max_new_tokens)
        self.encode(Kind.PREFILL, state, self.cache.window(index_R), state.active_B)
        self.state.put(index_R, state)
        self.uniforms.enter(index_R, [request.sample_id for request in requests])
        for stage in self.remembering:
            stage.enter(index_R)
        for row, number in zip(rows, numbers, strict=True):
            self.live[row] = number
        self.working = sorted({*self.working, *rows})
        self.meter.lap(Kind.PREFILL.value)
        self.meter.enter(numbers)

    def encode(self, kind: Kind, state: BlockState, cache: KVCache, rows_B: Tensor) -> None:
        plan = self.layout.encode(kind, state, rows_B)
        if plan is not None:
            encoded_B = rows_B & (state.encoded_B < state.start_B)
            self.meter.forward(plan, encoded_B, state.forwards_BK)
            logits_BRV = self.model.forward(plan, cache)
            state.encoded_B = torch.where(rows_B, state.start_B, state.encoded_B)
            if self.layout.boundary:
                state.open_block(logits_BRV[:, 0].argmax(-1), encoded_B)

    def forward(self, plan: ForwardPlan, rows_B: Tensor) -> Tensor:
        """Logits for the whole batch; `rows_B` take part."""
        self.meter.forward(plan, rows_B, self.state.forwards_BK)
        return self.model.forward(plan, self.cache)

    def hidden(self, plan: ForwardPlan, rows_B: Tensor) -> Tensor:
        """The same without the last step from hidden states to logits."""
        self.meter.forward(plan, rows_B, self.state.forwards_BK)
        return self.model.hidden(plan, self.cache)

    def finish_blocks(self) -> None:
        """Rows that stopped or reached their length are done; the others move on when their block is finished: full,
        and out of its editor's hands."""
        state = self.state
        old_start_B = state.start_B
        moved_B = state.on_grid_B(state.first_masked_B)
        full_B = state.active_B & (moved_B > state.start_B)
        if self.decoder.editor is not None:
            full_B &= self.decoder.editor.finished_B(state)
        done_B = self.done_B(old_start_B, full_B)
        state.start_B = torch.where(full_B, moved_B, state.start_B)
        state.next_block(full_B)
        if not self.layout.pending:
            self.meter.lap(OTHER)
            self.encode(Kind.COMMIT, state, self.cache, full_B if self.model.commits_last else full_B & ~done_B)
            self.meter.lap(Kind.COMMIT.value)
        if self.layout.boundary:  # a commit has decided a token, perhaps the last
            done_B = self.done_B(old_start_B, full_B)
        state.active_B = state.active_B & ~done_B

    def done_B(self, start_B: Tensor, full_B: Tensor) -> Tensor:
        """Rows that reached their length, or a stop token in the block that begins at `start` or right behind it."""
        first_masked_B = self.state.first_masked_B
        done_B = (self.stop_position_B(start_B) < first_masked_B) | (first_masked_B >= self.state.end_B)
        return done_B & full_B if self.layout.stops_after_blocks else done_B & self.state.active_B

    def turn_over(self, draft_broken_B: Tensor, target_broken_B: Tensor) -> None:
        """Put away what is done and refill its rows. When the queue is empty and half of the rows are done they are
        dropped: the others need not carry them."""
        # the wait for the device that ends a step
        active, drafted, verified = torch.stack([self.state.active_B, draft_broken_B, target_broken_B]).tolist()
        self.refuse_broken(getattr(self.decoder.drafter, "model", self.model), drafted)
        self.refuse_broken(self.model, verified)
        done = [row for row in self.working if not active[row]]
        results = self.generations(done) if done else []
        self.meter.lap(OTHER)
        self.meter.charge(len(self.working))
        self.working = [row for row in self.working if active[row]]
        for row, generation in zip(done, results, strict=True):
            self.finished[self.live[row]] = replace(generation, bill=self.meter.leave(self.live[row]))
            self.fresh.append(self.live[row])
        if done and self.queue:
            self.admit(done[: len(self.queue)])
        elif done and 2 * len(self.working) <= len(self.live):
            self.keep(torch.tensor(self.working, dtype=torch.long, device=self.model.device))

    def refuse_broken(self, model: ModelAdapter, broken: list[bool]) -> None:
        rows = [row for row in self.working if broken[row]]
        if rows:
            name = self.requests[self.live[rows[0]]].sample_id
            narrow = model.dtype != torch.float32
            advice = "so narrow a format can overflow: try dtype=float32" if narrow else "look at its weights"
            raise DecodeError(
                f"a model's scores must be numbers, and those of {model.name} in {model.dtype} are NaN at "
                f"sample {name}; {advice}"
            )

    def keep(self, index_R: Tensor) -> None:
        self.live = [self.live[row] for row in self.working]
        self.working = list(range(len(self.live)))
        self.state = self.state.rows(index_R)
        self.cache = self.cache.rows(index_R)
        self.uniforms = self.uniforms.rows(index_R)
        for stage in self.remembering:
            stage.keep(index_R)

    def generations(self, rows: list[int]) -> list[Generation]:
        """What these rows have so far; under an editor a block that is not finished does not count."""
        state = self.state.rows(torch.tensor(rows, dtype=torch.long, device=self.model.device))
        if self.layout.edits:
            finished_B = torch.maximum(state.start_B, state.prompt_len_B)
            state.end_B = torch.where(state.active_B, torch.minimum(finished_B, state.end_B), state.end_B)
        return generations([self.requests[self.live[row]] for row in rows], state, self.model.stop_ids)

    def stop_position_B(self, start_B: Tensor) -> Tensor:
        """Absolute position of the first generated stop token in the block that begins at `start` or right behind it;
        far away when there is none."""
        state = self.state
        positions_BX = start_B[:, None] + torch.arange(state.block_length + 1, device=start_B.device)
        tokens_BX = state.canvas_BT.gather(1, positions_BX)
        stop_BX = torch.isin(tokens_BX, self.stop_S) & (positions_BX >= state.prompt_len_B[:, None])
        return torch.where(stop_BX.any(1), start_B + leading_count(~stop_BX), state.canvas_BT.shape[1])


def make_layout(decoder: Decoder, model: ModelAdapter, scratch: int, positions: int) -> Layout:
    kind = FullLayout if model.attends_fully else WholePromptLayout if model.whole_prompt else Layout
    return kind(decoder.settings, scratch, positions, decoder.editor is not None, model.shift)


def idle_state(rows: int, num_positions: int, length: int, model: ModelAdapter) -> BlockState:
    """Rows that no request has entered yet: canvases of masks."""
    canvas_BT = torch.full((rows, num_positions), model.mask_id, device=model.device)
    zeros_B = torch.zeros(rows, dtype=torch.long, device=model.device)
    return BlockState(
        canvas_BT=canvas_BT,
        prompt_len_B=zeros_B,
        end_B=zeros_B.clone(),
        start_B=zeros_B.clone(),
        encoded_B=zeros_B.clone(),
        active_B=torch.zeros_like(zeros_B, dtype=torch.bool),
        step_B=zeros_B.clone(),
        block_step_B=zeros_B.clone(),
        post_steps_B=zeros_B.clone(),
        quiet_B=torch.zeros_like(zeros_B, dtype=torch.bool),
        reveal_step_BT=torch.full_like(canvas_BT, -1, dtype=torch.int32),
        order_BT=torch.zeros_like(canvas_BT, dtype=torch.int32),
        decided_B=zeros_B.clone(),
        source_BT=torch.full_like(canvas_BT, int(Source.UNDECIDED), dtype=torch.int8),
        edits_BT=torch.zeros_like(canvas_BT, dtype=torch.int32),
        forwards_BK=torch.zeros(rows, len(KINDS), dtype=torch.long, device=model.device),
        verified_B=zeros_B.clone(),
        window_B=torch.full_like(zeros_B, length),
        block_length=length,
        blocks=1,
        sub_block=length,
        grid=length,
        from_prompt=False,
        mask_id=model.mask_id,
    )
