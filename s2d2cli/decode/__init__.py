"""Decoding: `build_decoder(config)` puts the stages together, `Decoder.generate` runs a batch through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from s2d2cli.config import DecodeConfig, RunConfig
from s2d2cli.decode import bandit as bandit
from s2d2cli.decode import chain as chain
from s2d2cli.decode import cost_aware as cost_aware
from s2d2cli.decode import draft_target as draft_target
from s2d2cli.decode import klass as klass
from s2d2cli.decode import local_leap as local_leap
from s2d2cli.decode import pipelined as pipelined
from s2d2cli.decode import simsd as simsd
from s2d2cli.decode import single as single
from s2d2cli.decode.drafters import Drafter
from s2d2cli.decode.estimators import AcceptanceEstimator
from s2d2cli.decode.meter import Cost
from s2d2cli.decode.observe import Observer, StepLog
from s2d2cli.decode.rng import Uniforms
from s2d2cli.decode.routers import Router
from s2d2cli.decode.session import Session
from s2d2cli.decode.trace import BatchResult, Generation, Request
from s2d2cli.decode.unmask import EditTokens, UnmaskRule
from s2d2cli.decode.verifiers import Verifier
from s2d2cli.errors import ConfigError, PromptError
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.models.cost_curve import CostCurve

__all__ = ["BatchResult", "Decoder", "Generation", "Request", "StepLog", "build_decoder"]


@dataclass
class Decoder:
    """The stages of the loop and the settings they share."""

    settings: DecodeConfig
    drafter: Drafter
    estimator: AcceptanceEstimator
    router: Router
    verifier: Verifier
    unmask: UnmaskRule
    seed: int
    cost_curve: CostCurve | None = None  # what forwards cost here, once somebody has asked

    @property
    def denoising_steps(self) -> int:
        """At most so many steps per block. Where every verdict decides something, no step owes more than that."""
        assert self.settings.denoising_steps is not None and self.settings.block_length is not None
        decides_all = getattr(self.verifier, "decides_all", False)
        return self.verifier.positions(self.settings.block_length) if decides_all else self.settings.denoising_steps

    @property
    def blocks(self) -> int:
        """How many blocks are decoded side by side at most."""
        assert self.settings.block_length is not None and self.settings.max_new_tokens is not None
        blocks = getattr(self.unmask, "blocks", None)
        return 1 if blocks is None else int(blocks(self.settings.block_length, self.settings.max_new_tokens))

    @property
    def editor(self) -> EditTokens | None:
        """The unmask rule, if it is one that edits."""
        return self.unmask if isinstance(self.unmask, EditTokens) else None

    def confidence_line(self, asker: str, own: float | None = None) -> float:
        """Above which confidence a mask counts as confident: the asker's own number, else the unmask rule's."""
        line = getattr(self.unmask, "threshold", None) if own is None else own
        if line is None:
            raise ConfigError(
                f"{asker} counts confident masks, and unmask={getattr(self.unmask, 'kind', '?')} has no threshold; "
                f"use unmask=low_confidence_dynamic, or give router.confidence"
            )
        return float(line)

    def generate(
        self,
        model: ModelAdapter,
        requests: Sequence[Request],
        uniforms: Uniforms | None = None,
        observer: Observer | None = None,
    ) -> BatchResult:
        """Decode all requests together. Each result is what the request would get alone.

        `uniforms` replaces the samples' own random streams, `observer` looks on (a `StepLog` records every decision).
        """
        if not requests:
            return BatchResult([], {}, Cost())
        session = self.session(model, requests, uniforms=uniforms, observer=observer)
        for _ in session.run():
            pass
        return session.result

    def session(
        self,
        model: ModelAdapter,
        requests: Sequence[Request],
        width: int | None = None,
        uniforms: Uniforms | None = None,
        observer: Observer | None = None,
    ) -> Session:
        """Requests to be decoded, at most `width` at once: `for generation in session.results()`."""
        self.check(model, requests)
        session = Session(self, model, requests, width, uniforms)
        session.observer = observer or session.observer
        return session

    def stream(self, model: ModelAdapter, request: Request) -> Iterator[list[int]]:
        """Yield the decided new ids from the left as they grow; `last` holds the result afterwards."""
        session = self.session(model, [request])
        for _ in session.run():
            yield session.generations([0])[0].token_ids
        self.last = session.result
        yield self.last.generations[0].token_ids

    def check(self, model: ModelAdapter, requests: Sequence[Request]) -> None:
        """Refuse what does not suit the model, and prompts that are empty or leave no room for max_new_tokens."""
        context = self.settings.context
        if model.attends_fully != (context == "full"):
            raise ConfigError(
                f"a decoder must be built for the model that it decodes, got decode.context={context} for "
                f"{model.name}, which {'attends' if model.attends_fully else 'does not attend'} fully; "
                f"give its model.family when building the decoder"
            )
        new_tokens, block_length = self.settings.max_new_tokens, self.settings.block_length
        assert new_tokens is not None and block_length is not None
        if block_length > model.context:
            raise ConfigError(
                f"decode.block_length must fit the context of {model.name}, {model.context} tokens, got {block_length}"
            )
        if self.settings.boundary == "published" and (model.attends_fully or model.whole_prompt or not model.shift):
            raise ConfigError(
                f"decode.boundary=published is about right-shifted block models such as Fast-dLLM v2, and "
                f"{model.name} is none; leave it out"
            )
        shortest = model
        if getattr(self.verifier, "uses_draft_model", False):
            if model.draft_model is None:
                raise ConfigError(
                    f"verifier={getattr(self.verifier, 'kind', '?')} needs a draft model, and {model.name} was loaded "
                    f"without one; load it with draft_model=NAME"
                )
            shortest = min(model, model.draft_model, key=lambda one: one.context)
        for request in requests:
            length = len(request.prompt_ids)
            if length == 0:
                raise PromptError(f"a prompt must have at least one token; sample {request.sample_id} has none")
            if length + new_tokens > shortest.context:
                raise PromptError(
                    f"prompt and new tokens must fit the context of {shortest.context} tokens of {shortest.name}; "
                    f"sample {request.sample_id} has {length} + {new_tokens}: shorten it or lower decode.max_new_tokens"
                )


def build_decoder(config: RunConfig) -> Decoder:
    """The decoder that `config` describes; its strategies are the config's own instances."""
    return Decoder(
        settings=config.decode,
        drafter=config.verifier.drafter(),
        estimator=config.estimator,
        router=config.router,
        verifier=config.verifier,
        unmask=config.unmask,
        seed=config.seed,
    )
