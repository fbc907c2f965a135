"""Is the model a good verifier? Its accuracy without verification and in autoregressive mode, on the same samples.

Verification pulls the answers towards those of the autoregressive mode, so it can be no better than that mode allows.
The two other runs are ordinary ones: kept in the store, and reused when they are finished. docs/verifier.md explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group
from rich.text import Text

from s2d2cli.config import RunConfig, compose, trained_context, validate
from s2d2cli.errors import ConfigError
from s2d2cli.runs.evaluate import Models, Outcome, evaluate
from s2d2cli.runs.store import RunFolder, decoder_name
from s2d2cli.runs.summary import rough
from s2d2cli.runs.tables import plain_grid
from s2d2cli.tasks.statistics import paired_difference

CHANCE = 0.05  # below this p-value a difference counts as real
# the preset of an unmask rule, else dynamic
PLAIN = {
    "low_confidence_static": "static",
    "edit_tokens": "editing",
    "pipelined": "d2f",
    **{name: name for name in ("sequential", "entropy_bounded", "klass", "local_leap")},
}


def autoregressive(config: RunConfig) -> RunConfig:
    """The run that `decoder=autoregressive` would be."""
    plain, typed = compose(["decoder=autoregressive"]), config.decode
    decode = replace(
        plain.decode,
        max_new_tokens=typed.max_new_tokens,
        temperature=typed.temperature,
        top_k=typed.top_k,
        top_p=typed.top_p,
    )
    stages = dict(router=plain.router, unmask=plain.unmask, verifier=plain.verifier)
    return checked(replace(config, decoder=plain.decoder, decode=decode, draft_model=None, **stages))


def unverified(config: RunConfig) -> RunConfig:
    """The same without verification: plain diffusion with the same unmask rule, in the context it was trained for."""
    plain = compose([f"decoder={PLAIN.get(config.unmask.kind, 'dynamic')}"])
    decode = replace(config.decode, context=trained_context(config))
    stages = dict(router=plain.router, verifier=plain.verifier)
    return checked(replace(config, decoder=plain.decoder, decode=decode, draft_model=None, **stages))


def checked(config: RunConfig) -> RunConfig:
    """Put together here and not by `compose`, it still has to be a run that could be typed."""
    validate(config)
    return config


def counterparts(config: RunConfig) -> list[RunConfig]:
    """What to measure besides; refused for a decoder that never verifies."""
    if not getattr(config.router, "verifies", True):
        raise ConfigError(
            f"--check-verifier is for a decoder that verifies, and router={config.router.kind} never does; "
            f"leave it out, or choose another router"
        )
    return [autoregressive(config), unverified(config)]


@dataclass(frozen=True)
class Decoded:
    """A finished run, as far as it is compared: who is right about what."""

    name: str
    correct: dict[str, bool]

    @property
    def accuracy(self) -> float:
        return sum(self.correct.values()) / len(self.correct)

    def __str__(self) -> str:
        return f"{self.name} {self.accuracy:.3f}"


@dataclass(frozen=True)
class Pair:
    """Two runs on the same samples. Only what one of them solves and the other does not tells them apart."""

    first: str
    second: str
    difference: float  # accuracy of the first less that of the second
    only_first: int
    only_second: int
    p: float  # McNemar's exact test that both are equally good

    @property
    def first_is_worse(self) -> bool:
        return self.difference < 0 and self.p < CHANCE


def compare(first: Decoded, second: Decoded) -> Pair:
    """Both must have the same samples."""
    assert first.correct.keys() == second.correct.keys()
    ours, theirs = ([run.correct[key] for key in first.correct] for run in (first, second))
    found = paired_difference(ours, theirs)
    return Pair(first.name, second.name, found.difference, found.only_a, found.only_b, found.p_value)


@dataclass(frozen=True)
class Check:
    """The decoder in question, its model's autoregressive mode, and the decoder without verification."""

    ours: Decoded
    autoregressive: Decoded
    unverified: Decoded

    @property
    def pairs(self) -> list[Pair]:
        return [
            compare(self.ours, self.unverified),
            compare(self.ours, self.autoregressive),
            compare(self.autoregressive, self.unverified),
        ]

    @property
    def verdict(self) -> str:
        """One sentence; a warning when verification costs accuracy, or is bound to."""
        cost, _, modes = self.pairs
        if cost.first_is_worse:
            return (
                f"warning: verification costs accuracy: {self.ours}, {self.unverified} (p = {cost.p:.2g}); the mode "
                f"that verifies: {self.autoregressive}; prefer decoding without it for this model (docs/verifier.md)"
            )
        if modes.first_is_worse:
            return (
                f"warning: the autoregressive mode is clearly worse: {self.autoregressive}, {self.unverified} "
                f"(p = {modes.p:.2g}); the more is verified, the more accuracy is at risk (docs/verifier.md)"
            )
        return (
            f"Nothing speaks against this verifier on these {len(self.ours.correct)} samples; "
            f"a difference too small to show on so many may be there."
        )

    def plain(self) -> dict[str, Any]:
        runs = (self.ours, self.autoregressive, self.unverified)
        accuracies = {run.name: run.accuracy for run in runs}
        return {"accuracy": accuracies, "pairs": [asdict(pair) for pair in self.pairs], "verdict": self.verdict}


def decoded(outcome: Outcome) -> Decoded:
    config = outcome.record["config"]
    rows = RunFolder(outcome.folder).rows()
    name = decoder_name(config["decoder"], config["router"]["kind"])
    return Decoded(name, {key: bool(row["correct"]) for key, row in rows.items()})


def check(ours: Outcome, others: Sequence[RunConfig], models: Models, allow_code_execution: bool) -> Check | None:
    """Measure the others, or go on with them; None when the user stopped. The result is kept in our run.json."""
    outcomes = [ours]
    for config in others:
        outcomes.append(evaluate(config, models, allow_code_execution))
        if outcomes[-1].interrupted:
            return None
    found = Check(*map(decoded, outcomes))
    folder = RunFolder(ours.folder)
    with folder.locked():
        ours.record["verifier_check"] = found.plain()
        folder.write(ours.record)
    return found


def table(found: Check) -> Group:
    """For the terminal: the accuracies, then the pairs."""
    grid = plain_grid()
    for name in ("compared", "difference", "only the first", "only the second", "McNemar p"):
        grid.add_column(name, justify="left" if name == "compared" else "right")
    for pair in found.pairs:
        counts = (str(pair.only_first), str(pair.only_second), f"{pair.p:.2g}")
        grid.add_row(f"{pair.first}, {pair.second}", f"{pair.difference:+.3f}", *counts)
    runs = ", ".join(map(str, (found.ours, found.autoregressive, found.unverified)))
    n = len(found.ours.correct)
    title = f"verifier check, accuracy on {n} samples{rough(n)}: {runs}"
    return Group(Text(title, style="bold"), grid)
