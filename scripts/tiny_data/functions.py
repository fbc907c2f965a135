"""Small Python functions, in MBPP's format. The expected values come from running the gold code, never by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from .problem import Problem, user_turn, words

VERBS = words("get find make give work solve")
NOUNS = words("result value answer thing part output")
LETTERS = "abcdeimnorst"
WORDS = words("stone river table carton brother mirror sister monster corner antenna candle dinner")


def numbers(rng: Random) -> list[int]:
    return [rng.randint(1, 20) for _ in range(rng.randint(3, 4))]


def number(rng: Random) -> int:
    return rng.randint(1, 20)


def word(rng: Random) -> str:
    return rng.choice(WORDS)


@dataclass(frozen=True)
class Kind:
    """A family of tasks: `{k}` and `{c}` are a number and a letter of the task, `{x}` its argument."""

    text: str
    body: str
    argument: Callable[[Random], object]
    names: tuple[str, ...]


NUMBER_NAMES, LIST_NAMES, WORD_NAMES = ("n", "x"), ("items", "xs"), ("s", "text")
KINDS = [
    Kind("add {k} to a number", "{x} + {k}", number, NUMBER_NAMES),
    Kind("subtract {k} from a number", "{x} - {k}", number, NUMBER_NAMES),
    Kind("multiply a number by {k}", "{x} * {k}", number, NUMBER_NAMES),
    Kind("find the remainder of a number divided by {k}", "{x} % {k}", number, NUMBER_NAMES),
    Kind("check whether a number is greater than {k}", "{x} > {k}", number, NUMBER_NAMES),
    Kind("check whether a number is less than {k}", "{x} < {k}", number, NUMBER_NAMES),
    Kind("add {k} to every number in a list", "[v + {k} for v in {x}]", numbers, LIST_NAMES),
    Kind("keep the numbers of a list that are greater than {k}", "[v for v in {x} if v > {k}]", numbers, LIST_NAMES),
    Kind("keep the numbers of a list that are less than {k}", "[v for v in {x} if v < {k}]", numbers, LIST_NAMES),
    Kind("count the numbers of a list that are greater than {k}", "sum(v > {k} for v in {x})", numbers, LIST_NAMES),
    Kind("count how often {k} occurs in a list", "{x}.count({k})", numbers, LIST_NAMES),
    Kind("find the sum of a list plus {k}", "sum({x}) + {k}", numbers, LIST_NAMES),
    Kind("find the largest number of a list plus {k}", "max({x}) + {k}", numbers, LIST_NAMES),
    Kind("find the smallest number of a list minus {k}", "min({x}) - {k}", numbers, LIST_NAMES),
    Kind("count how often the letter {c} occurs in a string", "{x}.count('{c}')", word, WORD_NAMES),
    Kind("remove the letter {c} from a string", "{x}.replace('{c}', '')", word, WORD_NAMES),
    Kind("put the letter {c} before a string", "'{c}' + {x}", word, WORD_NAMES),
    Kind("put the letter {c} after a reversed string", "{x}[::-1] + '{c}'", word, WORD_NAMES),
    Kind("check whether a string starts with the letter {c}", "{x}.startswith('{c}')", word, WORD_NAMES),
    Kind("split a string at the letter {c}", "{x}.split('{c}')", word, WORD_NAMES),
]


def expected(code: str, name: str, argument: object) -> object:
    scope: dict = {}
    exec(code, scope)  # our own generated code, a few lines above
    return scope[name](argument)


def make_test(rng: Random, kind: Kind, code: str, name: str) -> str:
    argument = kind.argument(rng)
    return f"assert {name}({argument!r}) == {expected(code, name, argument)!r}"


def generate(rng: Random) -> Problem:
    kind, name = rng.choice(KINDS), f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    values = {"k": rng.randint(2, 20), "c": rng.choice(LETTERS)}
    argument = rng.choice(kind.names)
    text = f"Write a function to {kind.text.format(**values)}."
    code = f"def {name}({argument}):\n    return {kind.body.format(x=argument, **values)}"
    tests: list[str] = []
    while len(tests) < 3:
        test = make_test(rng, kind, code, name)
        tests += [test] if test not in tests else []
    prompt = "\n".join([text, "Your code should pass these tests:", *tests])
    record = {"task_id": rng.randrange(10**9), "text": text, "code": code, "test_list": tests}
    record |= {"test_setup_code": "", "challenge_test_list": []}
    return Problem(user_turn(prompt), f"```python\n{code}\n```", record)
