"""Which decoding is approximate: a token may differ from the one that the model, computed anew in each step, decides,
and a sampled one come from another distribution.

Such a run is named so wherever it stands beside others: its label always holds the setting, and a sentence explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEANINGS = {
    "decode.cache": "approximate: a step reads keys and values that the tokens decided since would change",
    "verifier.kind": "approximate: drafts are checked in the sight of drafts that may be rejected",
}


def approximations(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these dotted settings, all of which must have an effect, that make a run approximate."""
    cache, verifier = settings.get("decode.cache", "none"), settings.get("verifier.kind")
    found = {} if cache == "none" else {"decode.cache": cache}
    return found | ({"verifier.kind": verifier} if verifier == "simsd" else {})


def word(key: str) -> str:
    """A setting as short as it is told: the last word, the group for its `kind`."""
    return key.removesuffix(".kind").rpartition(".")[2]
