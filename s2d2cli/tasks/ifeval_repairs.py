"""Official checks that are plainly wrong, repaired: the measure "fixed" judges by these and else by the official ones.

Here stands what contradicts the instruction that the model reads. What is merely lenient or a matter of definition
stays official: keywords found inside other words, "exactly" that is checked as "at least", a reply in which no language
can be seen. Each entry says what is wrong upstream.
"""

from __future__ import annotations

import re

from s2d2cli.tasks.ifeval_checks import CHECKS, Check, compare
from s2d2cli.tasks.ifeval_language import may_be


def nth_paragraph_first_word(reply: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Upstream counts the paragraphs without blank ones and looks up the n-th with them.

    A reply that begins with an empty line, or has two in a row, is then judged by another paragraph.
    """
    text = "\n\n".join(part for part in reply.split("\n\n") if part.strip())
    return CHECKS["length_constraints:nth_paragraph_first_word"](text, num_paragraphs, nth_paragraph, first_word)


def letter_frequency(reply: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """Upstream counts a random letter where a row asks for # or !."""
    return compare(reply.lower().count(letter.lower()), let_relation, let_frequency)


def english_capital(reply: str) -> bool:
    """Upstream looks for the language of the capitals, but langdetect passes over words in capitals and guesses."""
    return reply.isupper() and may_be(reply.lower(), "en")


def number_highlighted_sections(reply: str, num_highlights: int) -> bool:
    """Upstream counts twice what is bold in a list marked with stars, as the star of the list pairs with the bold's."""
    text = re.sub(r"^[ \t]*\*[ \t]", "", reply, flags=re.MULTILINE)
    found = re.findall(r"(\*{1,3})([^\n*]+)\1", text)
    return len([words for _, words in found if words.strip()]) >= num_highlights


def number_bullet_lists(reply: str, num_bullets: int) -> bool:
    """Upstream takes a ruler (---, * * *) for a point of a list, and a line that begins with an *emphasis*."""
    points = re.findall(r"^[^\S\n]*(?:\*(?!\*|\S[^*\n]*\*)|-)(.*)$", reply, re.MULTILINE)
    return len([point for point in points if re.search(r"[^\s*-]", point)]) == num_bullets


REPAIRED: dict[str, Check] = {
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "keywords:letter_frequency": letter_frequency,
    "change_case:english_capital": english_capital,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:number_bullet_lists": number_bullet_lists,
}
