r"""The number that a worked answer arrives at, as an exact fraction.

Where to look, first hit wins: the last `\boxed{}` or `\fbox{}` that holds a number, the last `#### N`, the last
"answer is N" / "answer: N", the last number of the text. Floats are never used: 29.00 equals 29 and 0.1 is 1/10.

Known limits: spaces as thousands separators count only inside a box or after `####` ("in 2020 100 people" is not one
number), and of `10:30` only a part is read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 60  # longer digit strings and powers of ten are noise, and would cost time to compute
MAX_PLACES = 50  # a reply that repeats itself to its end has thousands of boxes: the last ones are read,
MAX_LENGTH = 1000  # and of each so many characters; else the time would grow with the square of the length


@dataclass(frozen=True)
class Answer:
    """A number and where it stood: "box", "hash", "phrase" or "last"."""

    value: Fraction
    source: str

    @property
    def text(self) -> str:
        return as_text(self.value)


SEPARATOR = r"(?:,|\{,\}|\\,|[\u00a0\u2009\u202f])"
UNSIGNED = rf"(?:[0-9]{{1,3}}(?:{SEPARATOR}[0-9]{{3}})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
SIGNED = rf"[+-]?(?:{UNSIGNED})"
CURRENCY = r"(?:\\?[$€£¥₹]\s*(?P<inner_sign>[+-])?)?"
TIMES_TEN = (
    r"\s*(?:\\times|\\cdot|[×*x])\s*10\s*\^\s*(?:\{\s*(?P<power_braced>[+-]?[0-9]+)\s*\}|(?P<power>[+-]?[0-9]+))"
)
TO_POWER = r"\s*\^\s*(?:\{\s*(?P<raised_braced>[0-9]+)\s*\}|(?P<raised>[0-9]+))"
EXPONENT = r"[eE](?P<exponent>[+-]?[0-9]+)(?![0-9A-Za-z])"

# A minus between two numbers is an operator, and so are digits glued to a word, an index or an exponent no number.
NUMBER = re.compile(
    rf"(?<![0-9A-Za-z_^])(?<![_^]\{{)(?<![0-9][./])"
    rf"(?P<sign>(?<![0-9)}}%\]])(?<![0-9)}}%\]] )[+-])?{CURRENCY}"
    rf"(?:(?:(?P<whole>[0-9]+)\s*)?\\[dt]?frac\s*(?:\{{\s*(?P<top>{SIGNED})\s*\}}\s*\{{\s*(?P<bottom>{SIGNED})\s*\}}"
    rf"|(?P<short_top>[0-9])(?P<short_bottom>[0-9]))"
    rf"|(?P<number>{UNSIGNED})(?:{TIMES_TEN}|{TO_POWER}|{EXPONENT}|\s?/\s?(?P<divisor>{UNSIGNED})(?![0-9]|\s?/))?)"
)

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
HASHES = re.compile(r"####[\s*:]*")
PHRASE = re.compile(r"\banswer\W{0,3}\s*(?:\b(?:is|was)\b|:|=)[\s:*]*", re.IGNORECASE)
SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")

SPACES = re.compile(r"\\[;: ]|\\q?quad\b|~")
UNITS = re.compile(r"\\(?:text|textrm|mathrm|mbox|textit)\s*\{[^{}]*\}(?:\s*\^\s*(?:\{[^{}]*\}|[0-9]))?")
WRAPPERS = re.compile(r"\\!|\\(?:text\w*|math\w+|mbox|boldsymbol|bm|displaystyle|left|right)\b")
SPACED_GROUPS = re.compile(r"(?<![0-9])[0-9]{1,3}(?:\s[0-9]{3})+(?![0-9])")
SPACED_SIGN = re.compile(r"^(\s*[+-])\s+")
MIXED = re.compile(r"(?<![0-9.,/])([0-9]+)\s+([0-9]+)\s?/\s?([0-9]+)(?![0-9/])")


def find_answer(text: str) -> Answer | None:
    """The number that `text` gives as its answer, None if it holds no number."""
    text = text.replace("\u2212", "-")
    places = (("box", boxes), ("hash", after_hashes), ("phrase", after_phrases), ("last", free_numbers))
    for source, candidates in places:
        for value in candidates(text):
            return Answer(value, source)
    return None


def boxes(text: str) -> Iterator[Fraction]:
    """Values of the boxes, last box first."""
    for match in last_places(BOX, text):
        value = expression_value(SPACED_SIGN.sub(r"\1", box_content(text, match.end())))
        if value is not None:
            yield value


def last_places(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Where an answer may begin, last first."""
    return reversed(deque(pattern.finditer(text), MAX_PLACES))


def box_content(text: str, start: int) -> str:
    """What stands between the brace before `start` and its partner; a box that is never closed ends with its line."""
    depth = 1
    for index in range(start, min(len(text), start + MAX_LENGTH)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[start:index]
    return text[start : start + MAX_LENGTH].partition("\n")[0]


def after_hashes(text: str) -> Iterator[Fraction]:
    """Values that directly follow `####`, last first; a Markdown heading such as `#### Step 2` is none."""
    for match in last_places(HASHES, text):
        line = text[match.end() : match.end() + MAX_LENGTH].partition("\n")[0]
        value = expression_value(line, anchored="=" not in line)
        if value is not None:
            yield value


def after_phrases(text: str) -> Iterator[Fraction]:
    """Values of the sentences that name the answer, last first."""
    for match in last_places(PHRASE, text):
        value = expression_value(SENTENCE_END.split(text[match.end() : match.end() + MAX_LENGTH], maxsplit=1)[0])
        if value is not None:
            yield value


def free_numbers(text: str) -> Iterator[Fraction]:
    """All numbers of the text, last first."""
    values = [value_of(match) for match in NUMBER.finditer(text)]
    yield from (value for value in reversed(values) if value is not None)


def expression_value(expression: str, anchored: bool = False) -> Fraction | None:
    """The value of an answer such as `x = \\$1{,}080 \\text{ dollars}`: what is right of `=`, without units."""
    right_side = re.split(r"=|\\approx|≈", expression)[-1]
    readings = (UNITS.sub(" ", right_side), right_side, expression)
    for reading in readings:
        value = first_value(tidy(reading), anchored)
        if value is not None:
            return value
    return None


def tidy(expression: str) -> str:
    """Plain digits where LaTeX and typography wrap or space them out."""
    text = WRAPPERS.sub("", SPACES.sub(" ", expression))
    text = SPACED_GROUPS.sub(lambda match: re.sub(r"\s", "", match.group()), text)
    text = MIXED.sub(r"\1\\frac{\2}{\3}", text)
    return re.sub(r"\\[(\[]", " ", text)


def first_value(text: str, anchored: bool) -> Fraction | None:
    for match in NUMBER.finditer(text):
        if anchored and re.search(r"[^\s*({\[$\\]", text[: match.start()]):
            return None
        value = value_of(match)
        if value is not None:
            return value
    return None


def value_of(match: re.Match[str]) -> Fraction | None:
    """The fraction that a match of NUMBER stands for; None for a zero divisor or absurdly many digits."""
    sign = -1 if "-" in (match["sign"] or "") + (match["inner_sign"] or "") else 1
    if match["number"] is None:
        top, bottom = match["top"] or match["short_top"], match["bottom"] or match["short_bottom"]
        part = ratio(plain(top), plain(bottom))
        whole = plain(match["whole"] or "0")
        return None if part is None or whole is None else sign * (whole + part)
    number = ratio(plain(match["number"]), plain(match["divisor"] or "1"))
    raised = power(match["number"], match["raised_braced"] or match["raised"] or "1")
    scale = power("10", match["power_braced"] or match["power"] or match["exponent"] or "0")
    if number is None or raised is None or scale is None:
        return None
    return sign * scale * (raised if match["divisor"] is None else number)


def plain(digits: str) -> Fraction | None:
    bare = re.sub(r"[^0-9.+-]", "", digits)
    return Fraction(bare) if len(bare) <= MAX_DIGITS else None


def ratio(top: Fraction | None, bottom: Fraction | None) -> Fraction | None:
    return top / bottom if top is not None and bottom else None


def power(base: str, exponent: str) -> Fraction | None:
    value = plain(base)
    too_long = len(exponent) > 4 or abs(int(exponent)) * len(base) > 2 * MAX_DIGITS
    return None if value is None or too_long else value ** int(exponent)


def as_text(value: Fraction) -> str:
    """`2125`, `-0.75`, or `1/3` where no finite decimal exists."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if value.denominator == 1 or rest != 1:
        return str(value)
    places = next(k for k in range(1, 10 * MAX_DIGITS) if (value * 10**k).denominator == 1)
    digits = str(abs(value) * 10**places).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
