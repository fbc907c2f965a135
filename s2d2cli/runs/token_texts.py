"""What each token adds to a text. To most tokenizers tokens are bytes, so one character may take several of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

HALF = "\ufffd"  # what a tokenizer gives for bytes that are no whole character
LONGEST = 4  # bytes of a character in UTF-8


def token_texts(ids: Sequence[int], text: Callable[[list[int]], str]) -> list[str]:
    """The texts of these tokens, which stand beside each other; they join to `text(ids)`. A character that several
    tokens share comes with the last of them."""
    found: list[str] = []
    start = told = 0  # each token is read together with those told last: some tokenizers treat a first token otherwise
    for end in range(1, len(ids) + 1):
        whole = text(list(ids[start:end]))
        if whole.endswith(HALF) and end < len(ids) and end - told < LONGEST:
            found.append("")
            continue
        found.append(whole[len(text(list(ids[start:told]))) :])
        start, told = told, end
    return found
