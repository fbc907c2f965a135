"""s2d2: decode block-diffusion language models fast, and measure what speed costs in accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s2d2cli.api import Answer, build_decoder, generate, load_model

__version__ = "0.1.0"
__all__ = ["Answer", "build_decoder", "generate", "load_model"]


def __getattr__(name: str) -> Any:
    """The Python interface, imported when it is first asked for: `s2d2 --help` must not wait for torch."""
    if name in __all__:
        from s2d2cli import api

        return getattr(api, name)
    raise AttributeError(f"module 's2d2cli' has no attribute {name!r}")
