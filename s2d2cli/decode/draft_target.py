"""A draft model, and a target that verifies in its autoregressive mode (Leviathan et al. 2023). Lossless: greedy
decoding gives the target's autoregressive tokens, sampling its distribution, whatever the draft model proposes.

Sampling takes care, though. A token is accepted with probability min(1, q/p) and replaced from (q - p)+, from left to
right, and that keeps q only where p, from which the token was drawn, was settled by the tokens left of it. A draft that
is revealed in order of confidence has drawn it with later tokens in sight: whether those survive then depends on it,
and acceptance favours what suits them. So sampled drafts are revealed from left to right, or all in one forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2d2cli.config import need, register, require
from s2d2cli.decode.draft_model import ModelDrafter, check_two_models
from s2d2cli.decode.state import DraftStep, Verdict
from s2d2cli.decode.verifiers import BlockVerifier, SelfVerifier
from s2d2cli.lossless import AUTOREGRESSIVE

if TYPE_CHECKING:
    from torch import Tensor

    from s2d2cli.config import RunConfig
    from s2d2cli.decode.session import Session


@register("verifier", "draft_target")
@dataclass
class DraftTarget(BlockVerifier):
    """The target at block length one checks what a second model drafts."""

    acceptance: ClassVar[str] = "lossless"
    decides_all: ClassVar[bool] = True
    uses_draft_model: ClassVar[bool] = True
    # a draft has not seen what the target sees, so no verification is superfluous
    exact: ClassVar[SelfVerifier] = SelfVerifier(skip_redundant=False)

    def check_run(self, config: RunConfig) -> None:
        check_two_models(config)
        decode, rule = config.decode, config.unmask
        need("verifier=draft_target", "draft_target", ("decode.context", decode.context, "causal"))
        require(
            decode.temperature == 0 or rule.kind == "sequential" or decode.denoising_steps == 1,
            f"verifier=draft_target samples exactly only what is drafted from left to right or in one forward: with "
            f"decode.temperature above 0 use unmask=sequential or decode.denoising_steps=1, got unmask={rule.kind} and "
            f"{decode.denoising_steps} steps",
        )

    def reproduces(self, config: RunConfig) -> str:
        return AUTOREGRESSIVE

    def drafter(self) -> ModelDrafter:
        return ModelDrafter()

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        return self.exact.verify(draft, session, verify_B)
