"""Which settings have no effect under the others. Nowhere else is this known.

A router says in class attributes whether it asks for an estimate (`uses_estimate`) and whether it can verify
(`verifies`); a verifier whether it asks for one (`uses_estimate`), leaves the unmask rule nothing (`decides_all`), and
has a second model draft by that rule (`uses_draft_model`). Any strategy with settings that may idle has
`idle(decode) -> {field: why}`. What says nothing has effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s2d2cli.config import RunConfig

STAGES = ("unmask", "router", "estimator", "verifier")
OWN = "s2d2cli."
IDLE_KEEPING = {
    "cache": "it is about models that attend fully; of others everything that is final is kept, which is exact",
    "commit": "with decode.context=full no keys and values are ever final",
}


def without_effect(config: RunConfig) -> dict[str, str]:
    """Each setting or whole group that nothing reads under this configuration, and why."""
    router, found = config.router, {}
    name = f"router={getattr(router, 'kind', type(router).__name__)}"
    if not getattr(router, "uses_estimate", True) and not getattr(config.verifier, "uses_estimate", False):
        found["estimator"] = f"{name} asks for no estimate"
    if not getattr(router, "verifies", True):
        found["verifier"] = f"{name} never verifies"
    elif getattr(config.verifier, "decides_all", False) and not drafts_apart(config):
        found["unmask"] = f"verifier={getattr(config.verifier, 'kind', '?')} decides every token"
    if not drafts_apart(config):
        found |= dict.fromkeys(("draft_model", "draft_device"), "one model drafts and verifies")
    kept = "commit" if config.decode.context == "full" else "cache"
    found[f"decode.{kept}"] = IDLE_KEEPING[kept]
    for group in STAGES:
        idle = getattr(getattr(config, group), "idle", None)
        if idle is not None and group not in found:
            found |= {f"{group}.{key}": why for key, why in idle(config.decode).items()}
    return found | without_chance(config, found)


def drafts_apart(config: RunConfig) -> bool:
    """Whether a second model drafts, by the unmask rule."""
    return getattr(config.verifier, "uses_draft_model", False)


def without_chance(config: RunConfig, found: Mapping[str, str]) -> dict[str, str]:
    """The settings of random draws, where nothing is drawn: greedy drafts, and a verifier that accepts them exactly or
    is never asked. Strategies of others may use random numbers as they like."""
    stages = [getattr(config, group) for group in STAGES if group not in found]
    if config.decode.temperature != 0 or not all(type(stage).__module__.startswith(OWN) for stage in stages):
        return {}
    if "verifier" not in found and getattr(config.verifier, "acceptance", None) not in ("lossless", "matching"):
        return {}
    idle = {"seed": "nothing is drawn at random at decode.temperature=0"}
    if "verifier" in found or getattr(config.verifier, "ratio_threshold", None) is None:  # ratios are of truncated q
        idle |= {f"decode.{key}": "greedy decoding takes the likeliest token" for key in ("top_k", "top_p")}
    return idle


def reason(key: str, found: Mapping[str, str]) -> str | None:
    """Why this dotted key has no effect; None when it has."""
    return found.get(key) or found.get(key.partition(".")[0])


def effective(plain: Mapping[str, Any], without: Mapping[str, str]) -> dict[str, Any]:
    """The recorded configuration less what has no effect: what two equal runs have in common."""
    kept = {key: value for key, value in plain.items() if key not in without}
    for group in ("decode", *STAGES):
        if group in kept:
            kept[group] = {key: value for key, value in kept[group].items() if f"{group}.{key}" not in without}
    return kept


def brief(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a draft model, if there is one, by its name alone, as it is typed."""
    draft = plain.get("draft_model")
    named = {"draft_model": draft["name"]} if draft else {}
    return {key: value for key, value in plain.items() if key != "draft_model"} | named


def warnings(words: Sequence[str], configs: Sequence[RunConfig]) -> list[str]:
    """A sentence for each typed word that has no effect in any of these runs."""
    found = [without_effect(config) for config in configs]
    sentences = []
    for word in words:
        reasons = [reason(word.partition("=")[0], one) for one in found]
        if all(reasons):
            sentences.append(f"{word} has no effect: {reasons[0]}")
    return sentences
