"""Small checks of the instructions, written from IFEval's definitions and independent of the scorer of s2d2."""

import re
from collections.abc import Callable


def bullets(answer: str, num_bullets: int) -> bool:
    return sum(line.lstrip().startswith(("* ", "- ")) for line in answer.splitlines()) == num_bullets


def frequency(answer: str, keyword: str, frequency: int, relation: str) -> bool:
    return relation == "at least" and len(re.findall(keyword, answer, re.IGNORECASE)) >= frequency


def forbidden(answer: str, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"\b{word}\b", answer, re.IGNORECASE) for word in forbidden_words)


CHECKS: dict[str, Callable[..., bool]] = {
    "punctuation:no_comma": lambda answer: "," not in answer,
    "keywords:existence": lambda answer, keywords: all(word in answer for word in keywords),
    "keywords:forbidden_words": forbidden,
    "keywords:frequency": frequency,
    "detectable_format:number_bullet_lists": bullets,
    "detectable_format:title": lambda answer: re.search(r"<<[^\n]+>>", answer) is not None,
    "detectable_content:postscript": lambda answer, postscript_marker: f"\n{postscript_marker} " in answer,
    "startend:end_checker": lambda answer, end_phrase: answer.strip('"').endswith(end_phrase),
    "startend:quotation": lambda answer: len(answer) > 1 and answer[0] == answer[-1] == '"',
    "detectable_format:constrained_response": lambda answer: re.fullmatch(r"My answer is (yes|no|maybe)\.", answer),
}
