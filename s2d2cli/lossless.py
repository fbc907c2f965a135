"""What a configuration promises of its tokens: those of decoding one token at a time, and in which way.

Promised means: greedy decoding gives the same tokens, sampled decoding draws from the same distribution. A verifier
says itself what it keeps (`reproduces(config)`); one that says nothing promises nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig

AUTOREGRESSIVE = "autoregressive"


def lossless(config: RunConfig) -> str | None:
    """The decoder of one token a forward whose tokens these settings give; None when they are nobody else's.

    It is the decoder in the same context and under the same cache policy.
    """
    if getattr(config.router, "verifies", True):
        reproduces = getattr(config.verifier, "reproduces", None)
        found: str | None = reproduces(config) if reproduces is not None else None
        return found
    if config.decode.block_length == 1:
        return AUTOREGRESSIVE
    return one_by_one(config)


def one_by_one(config: RunConfig) -> str | None:
    """The decoder whose name the unmask rule has when each step owes one token, and it reveals no more."""
    if config.decode.denoising_steps != config.decode.block_length:
        return None
    return getattr(config.unmask, "one_by_one", None)
