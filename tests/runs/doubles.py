"""Stand-ins: a model whose tokens are bytes, a decoder that answers from a rule, and a task that likes some answers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from s2d2cli.config import RunConfig, register
from s2d2cli.decode import BatchResult, Generation, Request, StepLog
from s2d2cli.decode.meter import PHASES, Bill, Cost
from s2d2cli.errors import PromptError, SandboxError
from s2d2cli.tasks.base import DataSource, Sample, Score

STOP, MASK = 256, 257


class ByteModel:
    """chat_prompt joins the turns; a token is a byte."""

    context, mask_id, stop_ids = 512, MASK, (STOP,)
    device, dtype, name, draft_model = torch.device("cpu"), torch.float32, "bytes", None

    def chat_prompt(self, messages: list[dict[str, str]]) -> str:
        return "".join(f"<{turn['role']}>{turn['content']}" for turn in messages) + "<assistant>"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def text(self, token_ids: list[int]) -> str:
        return bytes(i for i in token_ids if i < 256).decode(errors="replace")


@dataclass
class EchoDecoder:
    """Answers with the upper-cased question, two tokens a step; what it was asked is kept."""

    config: RunConfig
    calls: list[list[str]] = field(default_factory=list)
    fail_at: str | None = None

    def check(self, model: ByteModel, requests: list[Request]) -> None:
        for request in requests:
            if len(request.prompt_ids) + (self.config.decode.max_new_tokens or 0) > model.context:
                raise PromptError(f"sample {request.sample_id} does not fit the context of {model.context}")

    def generate(self, model: ByteModel, requests: list[Request]) -> BatchResult:
        return BatchResult(list(EchoSession(self, requests, len(requests), None).results()), {}, Cost())

    def session(
        self, model: ByteModel, requests: list[Request], width: int | None = None, observer: StepLog | None = None
    ) -> EchoSession:
        self.check(model, requests)
        return EchoSession(self, requests, width or len(requests), observer)

    def answer(self, request: Request) -> Generation:
        question = bytes(request.prompt_ids).decode().rpartition("<user>")[2].removesuffix("<assistant>")
        ids = [*question.upper().encode(), STOP][: self.config.decode.max_new_tokens]
        return Generation(
            sample_id=request.sample_id,
            token_ids=ids,
            finish="stop" if ids[-1] == STOP else "length",
            reveal_steps=[i // 2 for i in range(len(ids))],
            reveal_order=[i // 2 * 2 for i in range(len(ids))],
            sources=["unmasked"] * len(ids),
            forwards={"prefill": 1, "draft": (len(ids) + 1) // 2},
            drafted_steps=(len(ids) + 1) // 2,
            verified=0,
            accepted=0,
            bill=Bill(
                Cost({phase: 0.5 / len(PHASES) for phase in PHASES}, forwards=2.0, query_rows=10.0), latency_s=0.5
            ),
        )

    def stream(self, model: ByteModel, request: Request) -> Iterator[list[int]]:
        self.last = self.generate(model, [request])
        ids = self.last.generations[0].token_ids
        for end in range(2, len(ids) + 2, 2):
            yield ids[:end]


@dataclass
class EchoSession:
    """Batches of `width`, one after the other; the warm-up's one request is a session too."""

    decoder: EchoDecoder
    requests: list[Request]
    width: int
    observer: StepLog | None

    def results(self) -> Iterator[Generation]:
        while self.requests:
            batch, self.requests = self.requests[: self.width], self.requests[self.width :]
            yield from self.batch(batch)

    def batch(self, requests: list[Request]) -> list[Generation]:
        calls = self.decoder.calls
        calls.append([request.sample_id for request in requests])
        if self.decoder.fail_at in calls[-1] and len(calls) > 1:
            raise RuntimeError("out of memory [on purpose]")
        time.sleep(float(os.environ.get("ECHO_SECONDS", "0")))
        generations = [self.decoder.answer(request) for request in requests]
        if self.observer is not None:
            for g in generations:
                low = next(len(r.prompt_ids) for r in requests if r.sample_id == g.sample_id)
                self.observer.steps[g.sample_id] = [step(g, number, low) for number in range(g.drafted_steps)]
        return generations

    def admit_no_more(self) -> None:
        self.requests = []


def step(generation: Generation, number: int, prompt_tokens: int) -> dict[str, Any]:
    """A logged step: two tokens, and in every second step a verification that accepts one where 1.5 were expected."""
    pair = list(enumerate(generation.token_ids))[2 * number : 2 * number + 2]
    told = {"source": "unmasked", "draft_prob": 0.9, "verify_prob": None}
    tokens = [{"position": prompt_tokens + i, "token": token} | told for i, token in pair]
    return {
        "step": number,
        "span": 2,
        "expected": 1.5,
        "score": -math.inf,
        "verified": number % 2 == 1,
        "accepted": 1,
    } | {"tokens": tokens}


@register("task", "echo")
@dataclass
class Echo:
    """Questions q0, q1, ...; an answer is right when its number is even."""

    name: ClassVar[str] = "echo"
    version: ClassVar[int] = 3

    size: int = 6
    crash: int = -1  # the sample that the scorer cannot take
    code: bool = False
    max_new_tokens: int = 32

    def prepare(self, allow_code_execution: bool) -> DataSource:
        if self.code and not allow_code_execution:
            raise SandboxError("task echo runs programs; allow it with --allow-code-execution")
        return DataSource("made up", f"{self.size:064x}", self.size)

    def samples(self, limit: int | None) -> list[Sample]:
        longer = [f"q{i}" + "." * (self.size - i) for i in range(self.size)]
        made = [Sample(f"echo/{i}", [{"role": "user", "content": q}], {}) for i, q in enumerate(longer)]
        return made[:limit]

    def score(self, sample: Sample, completion: str) -> Score:
        number = int(sample.id.rpartition("/")[2])
        if number == self.crash:
            raise ZeroDivisionError("scorer fell over")
        return Score(number % 2 == 0, completion or None, {"status": "checked"})


def use(monkeypatch: Any, **options: Any) -> list[EchoDecoder]:
    """Put the stand-ins where the commands find models and decoders; returns the decoders as they are made."""
    made: list[EchoDecoder] = []

    def build(config: RunConfig) -> EchoDecoder:
        made.append(EchoDecoder(config, **options))
        return made[-1]

    loads: list[str] = []
    monkeypatch.setattr(ByteModel, "loads", loads, raising=False)

    def load(config: RunConfig) -> ByteModel:
        loads.append(config.model.name)
        return ByteModel()

    for module in ("s2d2cli.runs.evaluate", "s2d2cli.runs.orders", "s2d2cli.decode", "s2d2cli.models"):
        monkeypatch.setattr(f"{module}.build_decoder", build, raising=False)
        monkeypatch.setattr(f"{module}.load_model", load, raising=False)
    return made
