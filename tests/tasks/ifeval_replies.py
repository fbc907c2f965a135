"""Arguments for each of IFEval's instructions, and replies that just follow them or just do not."""

import json
import string

TEXTS = {
    "en": "The old harbour town was quiet, and Dr. Reed walked home. Nobody saw him! Was it late, e.g. 3.50?",
    "de": "Der Hund läuft heute früh über die große Wiese, und die Kinder lachen laut. Schön ist das!",
    "es": "La niña compró una manzana roja en el mercado, pero su hermano prefirió las naranjas. ¿Por qué?",
    "hi": "आज मौसम बहुत अच्छा है और हम सब बाहर घूमने जाएंगे। क्या तुम साथ आओगे?",
    "ru": "Сегодня утром мы ходили в лес, где собирали грибы и ягоды. Было очень тихо.",
    "ar": "ذهب الولد إلى المدرسة في الصباح الباكر، وعاد إلى البيت مساء.",
    "ko": "오늘은 날씨가 아주 좋아서 친구와 함께 공원에 갔습니다.",
    "th": "วันนี้อากาศดีมาก เราจึงไปเดินเล่นที่สวนสาธารณะ",
    "fi": "Tänään on kaunis päivä, ja me lähdemme yhdessä järvelle uimaan.",
}
WORDS = [
    "apple",
    "Boat",
    "well-known",
    "it's",
    "x2",
    "naïve",
    "NASA",
    "I",
    "U.S.",
    "e.g.",
    "snake_case",
    "O'NEIL",
    "3.5",
    "—",
]
KEYWORDS = ["art", "story", "rain coat", "well-being", "c.t", "the", "Art", "é"]
RELATIONS = ["less than", "at least"]


def number(rng):
    return rng.randint(1, 4)


def phrases(rng):
    return rng.sample(KEYWORDS, k=rng.randint(1, 3))


ARGUMENTS = {
    "keywords:existence": lambda rng: {"keywords": phrases(rng)},
    "keywords:forbidden_words": lambda rng: {"forbidden_words": phrases(rng)},
    "keywords:frequency": lambda rng: {
        "keyword": rng.choice(KEYWORDS) + rng.choice(["", " "]),
        "frequency": number(rng),
        "relation": rng.choice(RELATIONS),
    },
    "keywords:letter_frequency": lambda rng: {
        "letter": rng.choice(string.ascii_letters + "#!é"),
        "let_frequency": number(rng),
        "let_relation": rng.choice(RELATIONS),
    },
    "language:response_language": lambda rng: {"language": rng.choice(sorted(TEXTS))},
    "length_constraints:number_sentences": lambda rng: {
        "num_sentences": number(rng),
        "relation": rng.choice(RELATIONS),
    },
    "length_constraints:number_paragraphs": lambda rng: {"num_paragraphs": number(rng)},
    "length_constraints:number_words": lambda rng: {
        "num_words": rng.randint(1, 30),
        "relation": rng.choice(RELATIONS),
    },
    "length_constraints:nth_paragraph_first_word": lambda rng: {
        "num_paragraphs": (count := number(rng)),
        "nth_paragraph": rng.randint(1, count),
        "first_word": rng.choice(["well", "Hello", "WELL", "ok", "ÜBER", "it's"]),
    },
    "detectable_content:number_placeholders": lambda rng: {"num_placeholders": number(rng)},
    "detectable_content:postscript": lambda rng: {
        "postscript_marker": rng.choice(["P.S.", "P.P.S", "Note:", " P.S. "])
    },
    "detectable_format:number_bullet_lists": lambda rng: {"num_bullets": number(rng)},
    "detectable_format:number_highlighted_sections": lambda rng: {"num_highlights": number(rng)},
    "detectable_format:multiple_sections": lambda rng: {
        "section_spliter": rng.choice(["Section", "SECTION", "Day ", "PARAGRAPH"]),
        "num_sections": number(rng),
    },
    "combination:repeat_prompt": lambda rng: {
        "prompt_to_repeat": rng.choice(["Write a poem.", " Ode to joy\nplease "])
    },
    "startend:end_checker": lambda rng: {"end_phrase": rng.choice(["That is all.", "any questions? ", "Bye"])},
    "change_case:capital_word_frequency": lambda rng: {
        "capital_frequency": number(rng),
        "capital_relation": rng.choice(RELATIONS),
    },
}


def arguments_for(name, rng):
    """Arguments as a row might give them; some tables fill up with null."""
    return ARGUMENTS.get(name, lambda rng: {})(rng) | rng.choice([{}, {"of_another": None}])


def repeated(rng, count, items, glue):
    """About `count` of the items: exactly, one fewer or one more."""
    return rng.choice(glue).join(rng.choice(items) for _ in range(max(0, count + rng.randint(-1, 1))))


def paragraphs(rng, given):
    first = given["first_word"]
    opened = [first, first.upper() + ",", f'\'"{first}"', f"**{first}**", first + "s", f"“{first}”"]
    parts = ["Some text."] * max(1, given["num_paragraphs"] + rng.choice([0, 0, 0, 0, 1, -1]))
    parts[min(given["nth_paragraph"], len(parts)) - 1] = rng.choice(opened) + " and more"
    return rng.choice(["", "", "", "\n\n"]) + rng.choice(["\n\n", "\n\n", "\n\n\n", "\n\n\n\n", "\n \n"]).join(parts)


def sections(rng, given):
    mark = given["section_spliter"].strip()
    heads = [
        f"{mark} 1\ntext",
        f"{mark}2 text",
        f"## {mark} 3:",
        f"{mark}\n4",
        f"{mark} five",
        f"{mark.lower()} 6",
        f"x{mark} 7",
    ]
    return repeated(rng, given["num_sections"], heads[: rng.choice([3, 7])], ["\n", "\n\n", " "])


def around(options):
    return lambda rng, given: (
        rng.choice(["", "Well. ", "One\n"]) + rng.choice(options) + rng.choice(["", " Done.", "\ntwo"])
    )


def spread(field, items, glue):
    return lambda rng, given: repeated(rng, given[field], items, glue)


def of_keyword(keyword):
    return [keyword, keyword.upper(), f"{keyword}s", f"{keyword},", f"s{keyword}y", f"({keyword})"]


JSON = [json.dumps(value) for value in ({"a": [1, None]}, [], "text", 3.5, {"é": {"b": ","}})]
BAD_JSON = ["{'a': 1}", '{"a": 1,}', 'Here: {"a": 1}', '{"a": 1} {"b": 2}', "NaN", "[1", "{}```"]
CASES = [str.upper, str.lower, str.title, str, lambda text: "12, 34 + 5 = ?"]

# For each instruction, a reply that lies about its border.
REPLIES = {
    "keywords:existence": lambda rng, given: " ".join(
        rng.choice([*of_keyword(word), "x"]) for word in given["keywords"]
    ),
    "keywords:forbidden_words": lambda rng, given: " ".join(
        rng.choice([*of_keyword(word), *"xyz", f"{word}y"]) for word in given["forbidden_words"]
    ),
    "keywords:frequency": lambda rng, given: repeated(
        rng, given["frequency"], of_keyword(given["keyword"].strip()), [" ", "\n", ""]
    ),
    "keywords:letter_frequency": lambda rng, given: repeated(
        rng,
        given["let_frequency"],
        [given["letter"].upper(), given["letter"], string.ascii_letters[:40]],
        ["", "0 ", "\n"],
    ),
    "language:response_language": lambda rng, given: rng.choice(
        [TEXTS.get(given["language"], "x"), rng.choice(list(TEXTS.values())), "12 + 34", TEXTS["en"] + TEXTS["de"]]
    ),
    "length_constraints:number_sentences": spread(
        "num_sentences",
        ["Dr. Reed left.", "It is 3.50 now!", "Why?", "A, e.g. b, i.e. c.", "J. F. Kay...", "No."],
        [" ", "\n", "  "],
    ),
    "length_constraints:number_words": spread("num_words", WORDS, [" ", "\n", "\u00a0", ", "]),
    "length_constraints:number_paragraphs": lambda rng, given: (
        rng.choice(["", "", "***\n"])
        + repeated(
            rng,
            given["num_paragraphs"],
            ["One.", "Two.\n\nTwo."],
            ["\n***\n", " *** ", "***", "\n\n***\n\n", "\n******\n"],
        )
        + rng.choice(["", "", "\n***", " ****"])
    ),
    "length_constraints:nth_paragraph_first_word": paragraphs,
    "detectable_content:number_placeholders": spread(
        "num_placeholders", ["[name]", "[a [b] c]", "[]", "[two words]", "[two\nlines]"], [" ", "", "\n"]
    ),
    "detectable_content:postscript": around(
        ["P.S. x", "p. s. x", "PS: x", "P.P.S. x", "p.p. s x", "P.S x", "Note: x", "notes"]
    ),
    "detectable_format:number_bullet_lists": spread(
        "num_bullets",
        ["* a", "- b", "  * c", "*d", "\t- *e*", "* **f**: g", "- h\ni"] * 2 + ["**j** k", "---", "1. l", "* * *"],
        ["\n", "\n\n"],
    ),
    "detectable_format:constrained_response": around(
        [f"My answer is {word}{end}" for word in ("yes", "no", "maybe", "YES") for end in (".", "!", " .")]
    ),
    "detectable_format:number_highlighted_sections": spread(
        "num_highlights",
        ["*a*", "**b c**", "***d***", "* e", "* **f**: g", "* *", "**", "*h\ni*", "*j**k*"],
        [" ", "\n"],
    ),
    "detectable_format:multiple_sections": sections,
    "detectable_format:json_format": lambda rng, given: rng.choice(
        [
            "{}",
            "```json\n{}\n```",
            "```JSON{}```",
            "```Json {}```",
            "```{}",
            "```python\n{}\n```",
            "\n {} \n",
            "```json ```\n{}",
        ]
    ).replace("{}", rng.choice([*JSON, *BAD_JSON])),
    "detectable_format:title": around(
        ["<<good one>>", "<< >>", "<<<x>>>", "<<a\nb>>", "<title>", "<<>>", "<<a>> <<b>>", "<< <b> >>"]
    ),
    "combination:two_responses": lambda rng, given: rng.choice(
        ["******", "\n******\n", " ******* ", "*****", "\n\n******"]
    ).join(rng.choices(["One", "Two", " One ", "", "*Three*"], k=rng.choice([1, 2, 2, 2, 3, 4]))),
    "combination:repeat_prompt": lambda rng, given: (
        rng.choice(["", "", "\n", "Sure: ", '"'])
        + rng.choice([str, str.upper, str.strip, lambda text: text[:-2]])(given["prompt_to_repeat"])
        + rng.choice(["", "\nRoses are red."])
    ),
    "startend:end_checker": lambda rng, given: (
        "Text, "
        + rng.choice([str, str.upper, str.strip, lambda text: text[1:]])(given["end_phrase"])
        + rng.choice(["", " ", '"', '."', "**", ' "\n', "!"])
    ),
    "change_case:capital_word_frequency": spread("capital_frequency", WORDS, [" ", ", ", "\n", ". "]),
    "change_case:english_capital": lambda rng, given: rng.choice(CASES)(
        rng.choice([TEXTS["en"], rng.choice(list(TEXTS.values()))])
    ),
    "change_case:english_lowercase": lambda rng, given: rng.choice(CASES)(
        rng.choice([TEXTS["en"], rng.choice(list(TEXTS.values()))])
    ),
    "punctuation:no_comma": lambda rng, given: (
        rng.choice(["One", "One.", "1,000"]) + rng.choice(["", ",", "，", "、", ";"])
    ),
    "startend:quotation": lambda rng, given: (
        rng.choice(['"', '"', "“", "'", '\n"'])
        + rng.choice(["Text", "", 'A "b" c'])
        + rng.choice(["", '"', '" \n', '".', "”"])
    ),
}

DRESSES = [
    "Sure! Here it is:\n{}",
    "{}\nHope this helps, friend.",
    "Sure,\n{}\n- yours",
    '"{}"',
    "**{}**",
    "```\n{}\n```",
    "\n\n{}",
    "{}\n\n",
    " \t{}\u00a0",
    "*Note*\n\n{}",
    "{}\n\nP.S. Bye",
    "\ufeff{}",
]
CHANGES = [
    str.upper,
    str.lower,
    lambda reply: reply.replace(" ", "\u00a0"),
    lambda reply: reply.replace("\n", "\r\n"),
    lambda reply: reply.replace("\n", "\n\n"),
    lambda reply: reply.replace("e", "e\u0301") + " ❤️ 👩‍🚀",
    lambda reply: " \n" if len(reply) % 2 else "",
]


def replies_to(name, arguments, rng):
    """Five replies about the border: bare, in two dresses, changed as a whole, now and then one to something else."""
    bare = [REPLIES[name](rng, arguments) for _ in range(5)]
    bare[1], bare[2] = (rng.choice(DRESSES).replace("{}", reply) for reply in bare[1:3])
    bare[3] = rng.choice(CHANGES)(bare[3])
    if rng.random() < 0.1:
        bare[4] = rng.choice(list(TEXTS.values()))
    return bare
