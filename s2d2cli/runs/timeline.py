"""`s2d2 report --trace FILE...`: one page on which several decoders answer the same prompt side by side.

Each trace, or each configuration in it, is a lane. Their common axis counts forwards, so that a decoder that needs
fewer is done earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from s2d2cli.errors import PromptError
from s2d2cli.runs.labels import labels
from s2d2cli.runs.palette import COLORS, visible, word
from s2d2cli.runs.trace import Entry, by_config
from s2d2cli.runs.web_page import filled

MOST = 20  # samples on a page; each is some 20 KB per lane
STOP = "∎"
WHY = {  # what the source alone does not say
    "confident": "its draft probability exceeds the threshold",
    "owed": "the step has to decide so many tokens",
    "edited": "in place of a token that the draft would no longer choose",
}


@dataclass(frozen=True)
class Lane:
    label: str
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Timeline:
    """`samples` are those that all lanes have, of which the page holds the first ones."""

    lanes: list[Lane]
    samples: list[str]

    def html(self) -> str:
        shown = self.samples[:MOST]
        return filled(
            "timeline", {"sources": sources(self.lanes, shown), "samples": [self.sample(name) for name in shown]}
        )

    def sample(self, name: str) -> dict[str, Any]:
        lanes = [plain_lane(lane.label, lane.entries[name]) for lane in self.lanes]
        return {"id": name, "prompt": self.lanes[0].entries[name]["prompt"], "lanes": lanes}


def timeline(paths: Sequence[Path]) -> Timeline:
    """The traces' lanes in the order given; samples that differ in their prompt are different samples."""
    lanes = lanes_of(paths)
    first = lanes[0].entries
    shared = [name for name in first if all(name in lane.entries for lane in lanes)]
    same = [name for name in shared if len({lane.entries[name]["prompt"] for lane in lanes}) == 1]
    if not same:
        reason = f"sample {shared[0]!r} differs in its prompt" if shared else "they have no sample in common"
        raise PromptError(
            f"traces side by side must be of the same prompts, and in {', '.join(map(str, paths))} {reason}; trace "
            f"them with one prompt or task"
        )
    return Timeline(lanes, same)


def lanes_of(paths: Sequence[Path]) -> list[Lane]:
    groups = [(path, group) for path in paths for group in by_config(path)]
    names = labels([group[0]["config"] for _, group in groups])
    models = {group[0]["config"]["model"]["name"] for _, group in groups}
    found = []
    for name, (path, group) in zip(names, groups, strict=True):
        told = [name] + ([group[0]["config"]["model"]["name"]] if len(models) > 1 else [])
        told += [str(path)] if names.count(name) > 1 else []
        found.append(Lane(", ".join(told), {entry["id"]: entry for entry in group}))
    return found


def sources(lanes: Sequence[Lane], samples: Sequence[str]) -> dict[str, dict[str, str]]:
    """Those that occur, for the legend."""
    steps = [step for lane in lanes for name in samples for step in lane.entries[name]["steps"]]
    found = {token["source"] for step in steps for token in step["tokens"]}
    return {name: {"color": color, "word": word(name)} for name, color in COLORS.items() if name in found}


def plain_lane(label: str, entry: Entry) -> dict[str, Any]:
    """What the page needs of a sample: its tokens up to the stop token, from left to right, and a bar per step. A token
    that was edited stands there until its successor does."""
    end = entry["prompt_tokens"] + entry["tokens"]
    tokens = [
        plain_token(step, token) for step in entry["steps"] for token in step["tokens"] if token["position"] < end
    ]
    tokens.sort(key=lambda token: (int(token["position"]), when(token)))
    for token, successor in pairwise(tokens):
        if successor["position"] == token["position"]:
            token["until"] = successor["at"]
    if tokens and entry["finish"] == "stop":
        tokens[-1]["text"] = tokens[-1]["text"] or STOP
    return {
        "label": label,
        "forwards": entry["steps"][-1]["forwards"] if entry["steps"] else 0,
        "tokens": tokens,
        "bars": [bar(at, list(group)) for at, group in groupby(sorted(tokens, key=when), key=when)],
    }


def when(token: dict[str, Any]) -> int:
    return int(token["at"])


def plain_token(step: dict[str, Any], token: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": visible(token["text"]),
        "position": token["position"],
        "block": step["block"],
        "step": step["step"],
        "at": step["forwards"],
        "until": None,
        "source": token["source"],
        "why": WHY.get(token["reason"], ""),
        "draft": token["draft_prob"],
        "verify": token["verify_prob"],
        "verified": step["verified"],
        "accepted": step["accepted"],
        "expected": None if step["expected"] is None else round(step["expected"], 2),
    }


def bar(at: int, tokens: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"at": at, "total": len(tokens), "counts": dict(Counter(token["source"] for token in tokens))}
