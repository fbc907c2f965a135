"""Which decoding is approximate: a token may differ from the one that the model, computed anew in each step, decides.

Such a run is named so wherever it stands beside others: its label always holds the setting, and a sentence explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEANING = "approximate: a step reads keys and values that the tokens decided since would change"


def approximations(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these dotted settings, all of which must have an effect, that make a run approximate."""
    return {key: value for key, value in settings.items() if key == "decode.cache" and value != "none"}
