"""Instructions that a program can check, in IFEval's format and with its official instruction ids.

A prompt carries one or two instructions. `Draft` collects what they ask of the answer; `Draft.text` writes it down.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .problem import Problem, user_turn, words

TOPICS = words(
    "river garden bridge kitchen forest train market valley village lantern harbor castle "
    "mountain school island window violin bakery tower meadow ferry museum station orchard"
)
ADJECTIVES = words("quiet bright old warm small busy green calm strange lovely simple famous")
KEYWORDS = words("rain song bread light story friend sugar paper music cloud honey silver")
ENDINGS = ["That is all.", "I hope this helps.", "Thank you for reading.", "Ask me for more."]
OPENERS = ["Write about the {t}.", "Tell me about the {t}.", "Describe the {t}.", "Write a short note on the {t}."]
SENTENCES = [
    "Many people like the {t}.",
    "The {t} is {a} and {b}.",
    "In the morning, the {t} looks {a}.",
    "Such a {a} {t} is good to see.",
    "Some say that the {t} is {a}, but others find it {b}.",
    "You can walk to the {t} on a {a} day.",
]
NO_COMMA_SENTENCES = [sentence for sentence in SENTENCES if "," not in sentence]
LIST_OPENINGS = ["Here is a list:", "Some points:", "This is what I know:"]
KEYWORD_SENTENCES = ["It goes well with {w}.", "Think of {w} too.", "There is also {w}.", "One more word is {w}."]


@dataclass
class Draft:
    """The parts of an answer, filled in by the instructions."""

    topic: str
    sentences: list[str]
    adjectives: list[str]
    words: list[str] = field(default_factory=list)
    bullets: int = 0
    title: bool = False
    postscript: bool = False
    ending: str = ""
    quoted: bool = False

    def sentence(self, rng: Random) -> str:
        a, b = rng.sample(self.adjectives, 2)
        return rng.choice(self.sentences).format(t=self.topic, a=a, b=b)

    def body(self, rng: Random) -> str:
        extra = [rng.choice(KEYWORD_SENTENCES).format(w=word) for word in self.words]
        plain = [self.sentence(rng) for _ in range(self.bullets or rng.randint(1, 3))]
        if not self.bullets:
            return " ".join(plain + extra)
        # The line in front keeps an opening quotation mark off the first bullet, which would no longer count as one.
        lines = [rng.choice(LIST_OPENINGS), *(f"* {sentence}" for sentence in plain)]
        return "\n".join([*lines, " ".join(extra)] if extra else lines)

    def text(self, rng: Random) -> str:
        title = f"<<{rng.choice(['The', 'My', 'A note on the'])} {self.topic}>>" if self.title else ""
        note = "P.S. " + rng.choice(["Do not forget the {t}.", "The {t} waits for you."]) if self.postscript else ""
        parts = [title, self.body(rng), note.format(t=self.topic), self.ending]
        text = "\n".join(part for part in parts if part)
        return f'"{text}"' if self.quoted else text


# An instruction changes the draft and returns (its sentence in the prompt, its kwargs).
Asked = tuple[str, dict]
Rule = Callable[[Random, Draft], Asked]


def no_comma(rng: Random, draft: Draft) -> Asked:
    draft.sentences = NO_COMMA_SENTENCES
    return rng.choice(["Do not use any commas.", "Your answer must have no commas."]), {}


def existence(rng: Random, draft: Draft) -> Asked:
    keywords = rng.sample(KEYWORDS, 2)
    draft.words += keywords
    return f"Include the keywords {keywords[0]} and {keywords[1]}.", {"keywords": keywords}


def forbidden(rng: Random, draft: Draft) -> Asked:
    words = rng.sample(ADJECTIVES, 2)
    draft.adjectives = [word for word in draft.adjectives if word not in words]
    return f"Do not use the words {words[0]} and {words[1]}.", {"forbidden_words": words}


def frequency(rng: Random, draft: Draft) -> Asked:
    keyword, count = rng.choice(KEYWORDS), rng.randint(2, 3)
    draft.words += [keyword] * count
    asked = rng.choice(["Use the word {w} at least {n} times.", "The word {w} should appear at least {n} times."])
    return asked.format(w=keyword, n=count), {"relation": "at least", "keyword": keyword, "frequency": count}


def bullet_list(rng: Random, draft: Draft) -> Asked:
    draft.bullets = rng.randint(2, 4)
    return f"Use exactly {draft.bullets} bullet points that start with *.", {"num_bullets": draft.bullets}


def title(rng: Random, draft: Draft) -> Asked:
    draft.title = True
    return rng.choice(["Put a title in double angular brackets first.", "Add a title like <<title>>."]), {}


def postscript(rng: Random, draft: Draft) -> Asked:
    draft.postscript = True
    return "Add a postscript that starts with P.S.", {"postscript_marker": "P.S."}


def ending(rng: Random, draft: Draft) -> Asked:
    draft.ending = rng.choice(ENDINGS)
    return f"Finish with this exact phrase: {draft.ending}", {"end_phrase": draft.ending}


def quotation(rng: Random, draft: Draft) -> Asked:
    draft.quoted = True
    return rng.choice(["Wrap the whole answer in double quotation marks.", "Put double quotes around it all."]), {}


RULES: dict[str, Rule] = {
    "punctuation:no_comma": no_comma,
    "keywords:existence": existence,
    "keywords:forbidden_words": forbidden,
    "keywords:frequency": frequency,
    "detectable_format:number_bullet_lists": bullet_list,
    "detectable_format:title": title,
    "detectable_content:postscript": postscript,
    "startend:end_checker": ending,
    "startend:quotation": quotation,
}


def record(rng: Random, prompt: str, ids: list[str], kwargs: list[dict]) -> dict:
    return {"key": rng.randrange(10**9), "prompt": prompt, "instruction_id_list": ids, "kwargs": kwargs}


def constrained_response(rng: Random) -> Problem:
    """The one instruction that fixes the whole answer, so it never meets another one."""
    options = ["My answer is yes.", "My answer is no.", "My answer is maybe."]
    (topic, place), adjective = rng.sample(TOPICS, 2), rng.choice(ADJECTIVES)
    question = f"Is the {topic} near the {place} {adjective}?"
    prompt = f"{question} Answer with one of the following options: {', '.join(options)}"
    row = record(rng, prompt, ["detectable_format:constrained_response"], [{}])
    return Problem(user_turn(prompt), rng.choices(options, [5, 3, 2])[0], row)


def generate(rng: Random) -> Problem:
    if rng.random() < 0.08:
        return constrained_response(rng)
    draft = Draft(rng.choice(TOPICS), list(SENTENCES), list(ADJECTIVES))
    ids = rng.sample(list(RULES), rng.randint(1, 2))
    asked = [RULES[name](rng, draft) for name in ids]
    prompt = " ".join([rng.choice(OPENERS).format(t=draft.topic), *(text for text, _ in asked)])
    row = record(rng, prompt, ids, [kwargs for _, kwargs in asked])
    return Problem(user_turn(prompt), draft.text(rng), row)
