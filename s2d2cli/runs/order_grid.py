"""`--show order` and `--show blocks`: an answer with the step that decided each token, and block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from s2d2cli.decode import Generation
from s2d2cli.runs.palette import MARKS, STYLES, early_to_late, visible, word

NEWLINE, TAB, STOP = "⏎", "⇥", "∎"


@dataclass(frozen=True)
class Token:
    """As it stands in the grid: its text without line breaks, and the step with a letter for its source."""

    text: str
    label: str
    step: int
    source: str
    breaks: bool

    @property
    def width(self) -> int:
        return max(cell_len(self.text), len(self.label)) + 1


def tokens_of(generation: Generation, texts: Sequence[str]) -> list[Token]:
    found = []
    for text, step, source in zip(texts, generation.reveal_steps, generation.sources, strict=True):
        label = f"{step}{MARKS[source]}"
        found.append(Token(one_line(text), label, step, source, "\n" in text))
    if found and generation.finish == "stop":
        last = found[-1]
        found[-1] = Token(last.text or STOP, last.label, last.step, last.source, False)
    return found


def one_line(text: str) -> str:
    return visible(text).replace("\n", NEWLINE).replace("\t", TAB)


def order_grid(generation: Generation, texts: Sequence[str], width: int) -> Group:
    """The tokens, and under each the step that decided it. Lines break where the text does, or at the width."""
    tokens = tokens_of(generation, texts)
    last = max((token.step for token in tokens), default=0)
    drawn = [line for row in rows(tokens, width) for line in drawn_row(row, last)]
    return Group(*drawn, legend(tokens, last))


def rows(tokens: Sequence[Token], width: int) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for token in tokens:
        if found[-1] and sum(t.width for t in found[-1]) + token.width > width:
            found.append([])
        found[-1].append(token)
        if token.breaks:
            found.append([])
    return [row for row in found if row]


def drawn_row(row: Sequence[Token], last: int) -> tuple[Text, Text]:
    above, below = Text(no_wrap=True), Text(no_wrap=True)
    for token in row:
        above.append(token.text, early_to_late(token.step, last)).append(" " * (token.width - cell_len(token.text)))
        below.append(token.label, STYLES[token.source]).append(" " * (token.width - len(token.label)))
    above.rstrip()
    below.rstrip()
    return above, below


def legend(tokens: Sequence[Token], last: int) -> Text:
    """What number and letter mean."""
    drawn = Text(f"\nThe number is the step that decided the token, 0 to {last}")
    for source in [source for source in MARKS if any(token.source == source for token in tokens)]:
        drawn.append("; ").append(MARKS[source], STYLES[source]).append(f" {word(source)}")
    return drawn.append(f"; {NEWLINE} line break, {STOP} stop.")


def block_table(generation: Generation, texts: Sequence[str], in_front: int, block_length: int) -> Table:
    """A row per block: its steps, how its tokens came to be, and its text. `in_front`: so many tokens of the first
    blocks stand in front of the answer."""
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    sources = [source for source in MARKS if source in generation.sources]
    for name in ("block", "steps", "tokens", *sources):
        grid.add_column(word(name), justify="right", style=STYLES.get(name))
    grid.add_column("text", overflow="fold")
    tokens = enumerate(tokens_of(generation, texts), in_front)
    for number, group in groupby(tokens, key=lambda pair: pair[0] // block_length):
        block = [token for _, token in group]
        counts = Counter(token.source for token in block)
        shares = [str(counts[source] or "") for source in sources]
        steps = len({token.step for token in block})
        grid.add_row(str(number), str(steps), str(len(block)), *shares, Text("".join(token.text for token in block)))
    return grid
