"""Checks of verifiable instructions, under IFEval's official ids and with its official verdicts.

A check takes the reply and the instruction's arguments. Its signature is the list of arguments that a row must give.
Where the official rule surprises (substrings count as keywords, keywords are regular expressions), it is kept: scores
are only worth something if they can be compared. Official means the code that lm-eval 0.4.13 runs. It replaces an
argument that is missing or out of range by one drawn at random; no two scorers would agree on that, so such a row is
refused. The checks here need Python alone, those in `ifeval_language` need packages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import takewhile
from string import ascii_lowercase
from typing import Any, get_origin, get_type_hints

Check = Callable[..., bool]

CHECKS: dict[str, Check] = {}


def check(instruction_id: str) -> Callable[[Check], Check]:
    """Enter a function into CHECKS."""

    def enter(function: Check) -> Check:
        CHECKS[instruction_id] = function
        return function

    return enter


def compare(count: int, relation: str, target: int) -> bool:
    """Official relations: "less than" is strict, "at least" is not."""
    if relation not in ("less than", "at least"):
        raise ValueError(f"relation must be 'less than' or 'at least', got {relation!r}")
    return count < target if relation == "less than" else count >= target


def occurring(patterns: list[str], reply: str) -> list[str]:
    """The patterns that are found; all are tried, so that a trial meets every bad one."""
    return [pattern for pattern in patterns if re.search(pattern, reply, re.IGNORECASE)]


@check("punctuation:no_comma")
def no_comma(reply: str) -> bool:
    return "," not in reply


@check("keywords:existence")
def existence(reply: str, keywords: list[str]) -> bool:
    return occurring(keywords, reply) == keywords


@check("keywords:forbidden_words")
def forbidden_words(reply: str, forbidden_words: list[str]) -> bool:
    return not occurring([rf"\b{word}\b" for word in forbidden_words], reply)


@check("keywords:frequency")
def frequency(reply: str, keyword: str, frequency: int, relation: str) -> bool:
    return compare(len(re.findall(keyword.strip(), reply, re.IGNORECASE)), relation, frequency)


@check("keywords:letter_frequency")
def letter_frequency(reply: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """For a sign that is none of a-z the official code draws a letter and counts that one.

    Two published rows ask for # and !, so they cannot be refused. The verdict taken is the likeliest of the official
    ones: what most of the letters that it may draw would give.
    """
    if len(letter) != 1:
        raise ValueError(f"letter must be one sign, got {letter!r}")
    text, asked = reply.lower(), letter.lower()
    counted = asked if asked in ascii_lowercase else ascii_lowercase
    followed = sum(compare(text.count(each), let_relation, let_frequency) for each in counted)
    return 2 * followed > len(counted)


@check("length_constraints:number_words")
def number_words(reply: str, num_words: int, relation: str) -> bool:
    """Words as Python sees them. NLTK did so too until 3.10, whose words also hold combining marks and joiners."""
    return compare(len(re.findall(r"\w+", reply)), relation, num_words)


@check("length_constraints:number_paragraphs")
def number_paragraphs(reply: str, num_paragraphs: int) -> bool:
    """Paragraphs stand between dividers ***; only at the very ends may a divider have nothing on one side."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", reply)]
    return all(parts[1:-1]) and len([part for part in parts if part]) == num_paragraphs


@check("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(reply: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Blank paragraphs are not counted, but the n-th is looked up with them: see `ifeval_repairs`."""
    if nth_paragraph > num_paragraphs:
        raise ValueError(f"nth_paragraph must be one of {num_paragraphs} paragraphs, got {nth_paragraph}")
    parts = [part.strip() for part in reply.split("\n\n")]
    number = len([part for part in parts if part])
    if number != num_paragraphs or not parts[nth_paragraph - 1]:
        return False
    word = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return "".join(letter.lower() for letter in takewhile(lambda letter: letter not in ".,?!'\"", word)) == (
        first_word.lower()
    )


@check("detectable_format:number_bullet_lists")
def number_bullet_lists(reply: str, num_bullets: int) -> bool:
    stars = re.findall(r"^\s*\*[^\*].*$", reply, re.MULTILINE)
    dashes = re.findall(r"^\s*-.*$", reply, re.MULTILINE)
    return len(stars) + len(dashes) == num_bullets


@check("detectable_format:title")
def title(reply: str) -> bool:
    return any(found.lstrip("<").rstrip(">").strip() for found in re.findall(r"<<[^\n]+>>", reply))


@check("detectable_format:json_format")
def json_format(reply: str) -> bool:
    text = reply.strip()
    for opening in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(opening)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@check("detectable_format:multiple_sections")
def multiple_sections(reply: str, section_spliter: str, num_sections: int) -> bool:
    return len(re.split(rf"\s?{section_spliter.strip()}\s?\d+\s?", reply)) > num_sections


@check("detectable_format:constrained_response")
def constrained_response(reply: str) -> bool:
    return any(f"My answer is {word}." in reply for word in ("yes", "no", "maybe"))


@check("detectable_format:number_highlighted_sections")
def number_highlighted_sections(reply: str, num_highlights: int) -> bool:
    single = [found.strip("*").strip() for found in re.findall(r"\*[^\n\*]*\*", reply)]
    double = [found.strip("*").strip() for found in re.findall(r"\*\*[^\n\*]*\*\*", reply)]
    return len([text for text in single + double if text]) >= num_highlights


@check("detectable_content:number_placeholders")
def number_placeholders(reply: str, num_placeholders: int) -> bool:
    return len(re.findall(r"\[.*?\]", reply)) >= num_placeholders


POSTSCRIPTS = {"P.P.S": r"\s*p\.\s?p\.\s?s.*$", "P.S.": r"\s*p\.\s?s\..*$"}


@check("detectable_content:postscript")
def postscript(reply: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    pattern = POSTSCRIPTS.get(marker, rf"\s*{marker.lower()}.*$")
    return re.search(pattern, reply.lower(), re.MULTILINE) is not None


@check("startend:end_checker")
def end_checker(reply: str, end_phrase: str) -> bool:
    return reply.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@check("startend:quotation")
def quotation(reply: str) -> bool:
    text = reply.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@check("combination:repeat_prompt")
def repeat_prompt(reply: str, prompt_to_repeat: str) -> bool:
    return reply.strip().lower().startswith(prompt_to_repeat.strip().lower())


@check("combination:two_responses")
def two_responses(reply: str) -> bool:
    """Two different responses with ****** between them; more asterisks are allowed only at the very ends."""
    parts = [part.strip() for part in reply.split("******")]
    if not all(parts[1:-1]):
        return False
    responses = [part for part in parts if part]
    return len(responses) == 2 and responses[0] != responses[1]


def trial(instruction_id: str, arguments: dict[str, Any]) -> None:
    """Raise what would go wrong while scoring: an argument missing, of another type or out of range."""
    function = CHECKS[instruction_id]
    for name, kind in get_type_hints(function).items():
        expected = get_origin(kind) or kind
        if name in arguments and not isinstance(arguments[name], expected):
            raise TypeError(f"{name} must be of type {expected.__name__}, got {arguments[name]!r}")
        if expected is int and arguments.get(name, 1) < 1:
            raise ValueError(f"{name} must be at least 1, got {arguments[name]}")
    function("a reply that is only there to try the instruction", **arguments)
