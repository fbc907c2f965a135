"""Word problems with worked answers, in GSM8K's format.

Every solution step is phrased at random, in wordings of different lengths. That entropy is on purpose: a drafter that
fills many positions at once cannot know which wording comes, mixes them, and misplaces the numbers; this is what makes
the trade-off between speed and accuracy visible on so small a model.
"""

from dataclasses import dataclass
from random import Random

from .problem import Problem, user_turn, words

NAMES = words(
    "Mia Tom Ana Ben Eva Leo Zoe Max Ivy Sam Nora Finn Lily Omar Ruth Hugo Cora Dan Elsa Theo Vera Paul Rosa Kofi"
)
ITEMS = words(
    "coins shells pencils stickers marbles apples cards books stamps beads cookies buttons plums stones ribbons pens"
)
HOLDERS = {"boxes": "box", "bags": "bag", "jars": "jar", "trays": "tray", "baskets": "basket", "cups": "cup"}
THINGS = words("hat kite lamp map cup bell")
LARGEST = 99


@dataclass(frozen=True)
class Step:
    """One line of a solution: `left op right = result`, counted in `unit`."""

    left: int
    op: str
    right: int
    unit: str
    who: str

    @property
    def result(self) -> int:
        a, b = self.left, self.right
        return {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[self.op]

    def say(self, rng: Random) -> str:
        wording = pick(rng, WORDINGS[self.op])
        equation = f"{self.left}{self.op}{self.right}={self.result}"
        return wording.format(e=equation, a=self.left, b=self.right, r=self.result, u=self.unit, who=self.who)


WORDINGS = {
    "+": [
        "That makes {e} {u}.",
        "{who} is now at {e} {u}.",
        "Adding {b} to {a} gives {e} {u}.",
        "After this there are {e} {u} in all.",
        "We add and get {e}.",
        "{e}, so it is {r} {u} now.",
    ],
    "-": [
        "This leaves {e} {u}.",
        "{who} is left with {e} {u}.",
        "Taking {b} away from {a} gives {e} {u}.",
        "After this only {e} {u} remain.",
        "We subtract and get {e}.",
        "{e}, so {r} {u} are left now.",
    ],
    "*": [
        "That is {e} {u}.",
        "For {who} this makes {e} {u}.",
        "There are {a} times {b}, which is {e} {u}.",
        "In all this comes to {e} {u}.",
        "We multiply and get {e}.",
        "{e}, so the total is {r} {u}.",
    ],
    "/": [
        "Each one gets {e} {u}.",
        "Sharing {a} by {b} gives {e} {u}.",
        "Every part is {e} {u}.",
        "We divide and get {e}.",
        "{e}, so each part has {r} {u}.",
    ],
}
OPENINGS = ["", "", "Let us count. ", "We go step by step. ", "First things first: "]
GAINS = ["finds {b} more", "buys {b} more", "gets {b} from {other}", "is given {b} by {other}"]
LOSSES = ["gives {b} to {other}", "loses {b}", "sells {b}", "hands {b} over to {other}"]


def pick(rng: Random, options: list[str]) -> str:
    """Earlier options are likelier: the mode must be clear enough for greedy decoding to be stable."""
    return rng.choices(options, weights=range(len(options) + 2, 2, -1))[0]


def event(rng: Random, have: int, unit: str, who: str, other: str) -> tuple[str, Step]:
    """Something is gained or lost, so that the number stays between 1 and LARGEST."""
    gain = have < 8 or (have < 70 and rng.random() < 0.5)
    amount = rng.randint(2, min(30, LARGEST - have if gain else have - 1))
    verb = rng.choice(GAINS if gain else LOSSES).format(b=amount, other=other)
    return f"{rng.choice(['Then ', 'Later ', ''])}{who} {verb}.", Step(have, "+" if gain else "-", amount, unit, who)


def follow(rng: Random, have: int, unit: str, who: str, other: str, count: int) -> tuple[list[str], list[Step]]:
    texts, steps = [], []
    for _ in range(count):
        text, step = event(rng, have, unit, who, other)
        texts.append(text)
        steps.append(step)
        have = step.result
    return texts, steps


def how_many(rng: Random, unit: str, who: str) -> str:
    return rng.choice([f"How many {unit} does {who} have now?", f"How many {unit} does {who} have in the end?"])


def chain(rng: Random) -> tuple[str, list[Step]]:
    who, other = rng.sample(NAMES, 2)
    unit, have = rng.choice(ITEMS), rng.randint(10, 60)
    texts, steps = follow(rng, have, unit, who, other, rng.randint(2, 4))
    start = rng.choice([f"{who} has {have} {unit}.", f"{who} starts the day with {have} {unit}."])
    return " ".join([start, *texts, how_many(rng, unit, who)]), steps


def groups(rng: Random) -> tuple[str, list[Step]]:
    who, other = rng.sample(NAMES, 2)
    unit, (many, one) = rng.choice(ITEMS), rng.choice(list(HOLDERS.items()))
    first = Step(rng.randint(2, 9), "*", rng.randint(2, 9), unit, who)
    texts, steps = follow(rng, first.result, unit, who, other, rng.randint(1, 3))
    start = rng.choice(
        [
            f"{who} has {first.left} {many} with {first.right} {unit} in each {one}.",
            f"{who} fills {first.left} {many} with {first.right} {unit} each.",
        ]
    )
    return " ".join([start, *texts, how_many(rng, unit, who)]), [first, *steps]


def compare(rng: Random) -> tuple[str, list[Step]]:
    (a, b, c), unit = rng.sample(NAMES, 3), rng.choice(ITEMS)
    have, more = rng.randint(6, 25), rng.random() < 0.5
    second = Step(have, "+" if more else "-", rng.randint(2, 12 if more else have - 2), unit, b)
    texts = [f"{a} has {have} {unit}.", f"{b} has {second.right} {'more' if more else 'fewer'} than {a}."]
    steps, total = [second], Step(have, "+", second.result, unit, "the group")
    if rng.random() < 0.6 and total.result + 2 * second.result <= LARGEST:
        third = Step(second.result, "*", 2, unit, c)
        texts.append(f"{c} has twice as many as {b}.")
        steps += [third, total, Step(total.result, "+", third.result, unit, "the group")]
    else:
        steps.append(total)
    return " ".join([*texts, f"How many {unit} do they have together?"]), steps


def shopping(rng: Random) -> tuple[str, list[Step]]:
    who, unit, thing = rng.choice(NAMES), rng.choice(ITEMS), rng.choice(THINGS)
    cost = Step(rng.randint(2, 9), "*", rng.randint(2, 8), "dollars", who)
    total = Step(cost.result, "+", rng.randint(2, 20), "dollars", who)
    texts = [f"{who} buys {cost.left} {unit} for {cost.right} dollars each and a {thing} for {total.right} dollars."]
    if rng.random() < 0.4:
        return f"{texts[0]} How many dollars does {who} pay?", [cost, total]
    paid = rng.randint(total.result + 1, LARGEST)
    texts += [f"{who} pays with {paid} dollars.", f"How many dollars does {who} get back?"]
    return " ".join(texts), [cost, total, Step(paid, "-", total.result, "dollars", who)]


def sharing(rng: Random) -> tuple[str, list[Step]]:
    who, other = rng.sample(NAMES, 2)
    unit, people = rng.choice(ITEMS), rng.randint(2, 9)
    part = Step(people * rng.randint(3, 9), "/", people, unit, other)
    text = rng.choice(
        [
            f"{who} shares {part.left} {unit} equally among {people} friends.",
            f"{people} friends split {part.left} {unit} equally.",
        ]
    )
    texts, steps = follow(rng, part.result, unit, other, who, rng.randint(1, 3))
    return " ".join([text, f"{other} is one of them.", *texts, how_many(rng, unit, other)]), [part, *steps]


def reading(rng: Random) -> tuple[str, list[Step]]:
    who, days = rng.choice(NAMES), rng.randint(2, 9)
    read = Step(days, "*", rng.randint(2, 9), "pages", who)
    texts, steps = [f"{who} reads {read.right} pages a day for {days} days."], [read]
    if rng.random() < 0.6:
        steps.append(Step(read.result, "+", rng.randint(2, 15), "pages", who))
        texts.append(f"On the last evening {who} reads {steps[-1].right} more.")
    book = rng.randint(steps[-1].result + 1, LARGEST)
    texts += [f"The book has {book} pages.", "How many pages are left?"]
    return " ".join(texts), [*steps, Step(book, "-", steps[-1].result, "pages", "the book")]


KINDS = [chain, chain, groups, compare, shopping, sharing, reading]


def generate(rng: Random) -> Problem:
    question, steps = rng.choice(KINDS)(rng)
    lines = [step.say(rng) for step in steps]
    lines = [line[0].upper() + line[1:] for line in lines]
    answer = f"{rng.choice(OPENINGS)}{' '.join(lines)}\n#### {steps[-1].result}"
    return Problem(user_turn(question), answer, {"question": question, "answer": answer})
