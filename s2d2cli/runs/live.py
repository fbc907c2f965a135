"""`--show live`: the block that is being decoded, step by step, on a terminal.

An observer keeps what a step decided, nothing else; everything is drawn between two steps, where no clock runs. A step
has two pictures: what was drafted for the masks, and what became of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby, takewhile

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from s2d2cli.decode.observe import Observer
from s2d2cli.decode.session import Session
from s2d2cli.decode.state import Commit, DraftStep, Source, Verdict
from s2d2cli.models.adapter import ModelAdapter
from s2d2cli.runs.palette import MASK, STYLES, visible, word
from s2d2cli.runs.token_texts import token_texts

LEGEND = ("masked", "drafted", "unmasked", "accepted", "resampled")
BELOW = 4  # lines under the text, one of them empty


class Watch:
    """Looks on at a session of one request, after `then` has."""

    def __init__(self, then: Observer) -> None:
        self.then = then

    def observe(self, session: Session, draft: DraftStep, verdict: Verdict, commit: Commit) -> None:
        self.then.observe(session, draft, verdict, commit)
        self.kept = (session.state.positions_BL, draft, verdict, commit)

    def step(self) -> Step:
        """The last step, on the host."""
        positions_BL, draft, verdict, commit = self.kept
        columns = (positions_BL, draft.tokens_BL, draft.masked_BL, commit.tokens_BL, commit.mask_BL, commit.source_BL)
        places = list(zip(*(column[0].tolist() for column in columns), strict=True))
        return Step(
            positions=[place[0] for place in places],
            drafts={position: draft for position, draft, masked, *_ in places if masked},
            decided={
                position: (token, Source(source).name.lower()) for position, _, _, token, new, source in places if new
            },
            verified=bool(verdict.verified_B[0]),
        )


@dataclass(frozen=True)
class Step:
    """What happened in a step to the block at these positions."""

    positions: list[int]
    drafts: dict[int, int]  # position -> token
    decided: dict[int, tuple[int, str]]  # position -> token and source
    verified: bool


@dataclass
class Picture:
    """What is known of the answer to a prompt of `low` tokens, and how it is drawn."""

    model: ModelAdapter
    low: int
    end: int
    decided: dict[int, tuple[int, str]] = field(default_factory=dict)
    steps: int = 0
    verified: int = 0

    def frames(self, step: Step, forwards: int) -> Iterator[tuple[Text, Text]]:
        """Text, and the lines under it: with the drafts, then with what was decided."""
        self.steps, self.verified = self.steps + 1, self.verified + step.verified
        yield self.text(step, step.drafts), self.below(step, forwards, Text(f"drafted {len(step.drafts)}"))
        self.decided |= step.decided
        yield self.text(step, {}), self.below(step, forwards, outcome(step))

    @property
    def shown(self) -> range:
        """The positions of the answer; there is nothing behind a stop token."""
        stops = [place for place, (token, _) in self.decided.items() if token in self.model.stop_ids]
        return range(self.low, min([self.end, *(place + 1 for place in stops)]))

    def answer(self) -> str:
        """The text from the left, as far as it is decided."""
        known = takewhile(self.decided.__contains__, self.shown)
        return self.model.text([self.decided[place][0] for place in known])

    def text(self, step: Step, drafts: dict[int, int]) -> Text:
        """Everything before the block, and the block with masks and colours."""
        before = [self.decided[place][0] for place in self.shown if place < step.positions[0]]
        drawn = Text(visible(self.model.text(before)))
        block = [place for place in step.positions if place in self.shown]
        tokens = drafts | {place: token for place, (token, _) in self.decided.items()}
        for known, run in groupby(block, key=tokens.__contains__):
            places = list(run)
            texts = token_texts([tokens[place] for place in places], self.model.text) if known else [MASK] * len(places)
            for place, text in zip(places, texts, strict=True):
                drawn.append(visible(text), STYLES[self.state(place, drafts)])
        return drawn

    def state(self, place: int, drafts: dict[int, int]) -> str:
        if place in self.decided:
            return self.decided[place][1]
        return "drafted" if place in drafts else "masked"

    def below(self, step: Step, forwards: int, happened: Text) -> Text:
        tokens = len(self.decided)
        legend = Text("  ").join(Text(name, STYLES[name]) for name in LEGEND)
        numbers = f"{tokens} tokens, {forwards} forwards, {tokens / max(forwards, 1):.2f} tokens per forward"
        place = f"step {self.steps - 1}, block {step.positions[0] // len(step.positions)}"
        lines = [Text(f"{place}: ") + happened, Text(f"{numbers}; verified {self.verified} of {self.steps} steps")]
        return Text("\n").join([Text(), *lines, legend])


def outcome(step: Step) -> Text:
    """What became of the drafts, each word in its colour."""
    counts = Counter(source for _, source in step.decided.values())
    parts = [Text(f"{word(source)} {count}", STYLES[source]) for source, count in counts.items()]
    return Text(", ").join([Text("verified" if step.verified else "not verified"), *parts])


def play(session: Session, watch: Watch, picture: Picture, console: Console, pace: float) -> None:
    """Decode to the end, and draw each step for `pace` seconds. The screen is as before when this ends, however it
    ends: what shall stay is printed by the caller."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for _ in chain(session.run(), [session]):
            for text, below in picture.frames(watch.step(), forwards_of(session)):
                live.update(Group(tail(text, console), below), refresh=True)
                time.sleep(pace / 2)


def forwards_of(session: Session) -> int:
    """Of the one request; when it is done its row is gone."""
    done = session.finished.get(0)
    return sum(done.forwards.values()) if done else int(session.state.forwards_BK[0].sum())


def tail(text: Text, console: Console) -> Text:
    """As many of the last lines as fit on the screen: the block at work is among them."""
    lines = text.wrap(console, console.width)
    return Text("\n").join(lines[-max(console.height - BELOW - 1, 1) :])
