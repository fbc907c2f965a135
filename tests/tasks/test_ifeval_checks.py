"""Verifiable instructions: each id with replies that follow it and replies that do not."""

import pytest

from s2d2cli.tasks.ifeval_checks import CHECKS
from s2d2cli.tasks.ifeval_repairs import REPAIRED


def nth(number, position, word):
    return {"num_paragraphs": number, "nth_paragraph": position, "first_word": word}


def capitals(number, relation):
    return {"capital_frequency": number, "capital_relation": relation}


SECTIONS = {"section_spliter": " Section", "num_sections": 2}

# (id, arguments, reply, followed)
FIXTURES = [
    ("punctuation:no_comma", {}, "One. Two; three!", True),
    ("punctuation:no_comma", {}, "One, two.", False),
    ("keywords:existence", {"keywords": ["rain", "Sun"]}, "The SUN and a train.", True),  # substrings count
    ("keywords:existence", {"keywords": ["rain", "sun"]}, "Only rain here.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["rain", "sun"]}, "A train on Sunday.", True),  # whole words only
    ("keywords:forbidden_words", {"forbidden_words": ["rain", "sun"]}, "The Sun!", False),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": "at least"}, "start smart", True),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": "at least"}, "art", False),
    ("keywords:frequency", {"keyword": " art ", "frequency": 2, "relation": "less than"}, "ART.", True),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": "less than"}, "Art, art", False),
    ("keywords:letter_frequency", {"letter": "Q", "let_frequency": 2, "let_relation": "at least"}, "Qq", True),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "at least"}, "Quiet", False),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 1, "let_relation": "less than"}, "none", True),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 1, "let_relation": "less than"}, "Quiet", False),
    ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}, "It's one-two.", True),
    ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}, "One two three.", False),
    ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, "One two three.", True),
    ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, "One two three four.", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "List:\n* a\n  * b\n- c", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* b\n* c", False),  # exactly, not at least
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n**bold** b", False),
    ("detectable_format:title", {}, "A <<good title>> here", True),
    ("detectable_format:title", {}, "<< >> and <title>", False),
    ("detectable_format:title", {}, "<<two\nlines>>", False),
    ("detectable_format:constrained_response", {}, "Well. My answer is maybe. Yes.", True),
    ("detectable_format:constrained_response", {}, "My answer is yes", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and *two words*", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "**one** and *two*", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and * * and *a\nb*", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name], [date]", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name\n], [date]", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Text.\n\np. s. More", True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Text.\nPS: more", False),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P. S more", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.S. more", False),
    ("detectable_content:postscript", {"postscript_marker": "Note:"}, "Text. note: more", True),
    ("detectable_content:postscript", {"postscript_marker": "Note:"}, "Text. Notes", False),
    ("startend:end_checker", {"end_phrase": "That is all. "}, '"Text. That is ALL." \n', True),
    ("startend:end_checker", {"end_phrase": "That is all."}, "That is all. Bye", False),
    ("startend:quotation", {}, ' "Text" \n', True),
    ("startend:quotation", {}, '"', False),
    ("startend:quotation", {}, '"Text".', False),
    ("combination:two_responses", {}, "One\n******\nTwo", True),
    ("combination:two_responses", {}, "******One******Two******", True),
    ("combination:two_responses", {}, "One******One", False),
    ("combination:two_responses", {}, "One****** ******Two", False),
    ("combination:two_responses", {}, "One******Two******Three", False),
    ("combination:two_responses", {}, "One", False),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "at least"}, "##", False),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 1, "let_relation": "at least"},
        "A quick fox jumps over",
        True,
    ),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 1, "let_relation": "less than"}, "##", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\nOne\n***\nTwo\n***", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One *** Two", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One\n***\n***\nTwo", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One\n***\nTwo\n***\nThree", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One\n\nTwo", False),
    ("length_constraints:nth_paragraph_first_word", nth(2, 2, "Well"), 'One.\n\n "\'well," two.', False),
    ("length_constraints:nth_paragraph_first_word", nth(2, 2, "Well"), 'One.\n\n \'"WELL," two.\n\n', True),
    ("length_constraints:nth_paragraph_first_word", nth(2, 2, "well"), "One.\n\nWellness", False),
    ("length_constraints:nth_paragraph_first_word", nth(2, 1, "well"), "Well\n\ntwo\n\nthree", False),
    ("length_constraints:nth_paragraph_first_word", nth(2, 2, "well"), "Well", False),
    ("length_constraints:nth_paragraph_first_word", nth(1, 1, "well"), "\n\nWell then.", False),  # see REPAIRED
    ("detectable_format:json_format", {}, '```json\n{"a": [1, 2]}\n```', True),
    ("detectable_format:json_format", {}, " 3 ", True),
    ("detectable_format:json_format", {}, 'Here: {"a": 1}', False),
    ("detectable_format:json_format", {}, "[" * 100_000, False),  # deeper than Python's parser goes
    ("detectable_format:json_format", {}, "```JSON5 {}```", False),
    ("detectable_format:multiple_sections", SECTIONS, "Section 1\nOne\nSection2 Two", True),
    ("detectable_format:multiple_sections", SECTIONS, "Section 1, Section 2, Section 3", True),  # at least
    ("detectable_format:multiple_sections", SECTIONS, "SECTION 1 and Section two", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Write a poem. "}, "\nwrite a POEM. Roses", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Write a poem."}, "Sure: Write a poem.", False),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, "Dr. Who left. Why?", True),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "It cost $3.50 here.",
        False,
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "It is late, Mr. Smith.",
        True,
    ),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "Go! Now.", False),
    ("change_case:capital_word_frequency", capitals(2, "at least"), "I am in the U.S.", True),
    ("change_case:capital_word_frequency", capitals(2, "at least"), "A WELL-KNOWN, well", True),  # a hyphen joins
    ("change_case:capital_word_frequency", capitals(2, "at least"), "A well-KNOWN Thing", False),
    ("change_case:capital_word_frequency", capitals(2, "less than"), "NASA flies", True),
    ("change_case:capital_word_frequency", capitals(2, "less than"), "NASA FLIES", False),
    ("language:response_language", {"language": "de"}, "Das Wetter ist heute wirklich sehr schön.", True),
    ("language:response_language", {"language": "de"}, "The weather is really very nice today.", False),
    ("language:response_language", {"language": "de"}, "12 + 30 = 42", True),  # no language in it, so any
    ("language:response_language", {"language": "hi"}, "आज मौसम बहुत अच्छा है और हम बाहर जाएंगे", True),
    ("change_case:english_capital", {}, "THE WEATHER IS REALLY VERY NICE TODAY.", True),
    ("change_case:english_capital", {}, "THE WEATHER iS REALLY VERY NICE TODAY.", False),
    ("change_case:english_capital", {}, "ES IST HEUTE WIRKLICH SCHÖNES WETTER UND WIR GEHEN ÜBER DIE BRÜCKE", False),
    ("change_case:english_lowercase", {}, "the weather is really very nice today.", True),
    ("change_case:english_lowercase", {}, "The weather is really very nice today.", False),
    ("change_case:english_lowercase", {}, "heute ist das wetter wirklich sehr schön.", False),
]


@pytest.mark.parametrize(("name", "arguments", "reply", "followed"), FIXTURES)
def test_verdict_of_each_instruction(name, arguments, reply, followed):
    assert CHECKS[name](reply, **arguments) is followed


def test_all_25_instructions_have_replies_of_both_kinds():
    assert len(CHECKS) == 25
    assert {(name, followed) for name, _, _, followed in FIXTURES} == {
        (name, f) for name in CHECKS for f in (True, False)
    }


# (id, arguments, reply, official verdict, repaired verdict)
WRONG_UPSTREAM = [
    ("length_constraints:nth_paragraph_first_word", nth(1, 1, "well"), "\n\nWell then.", False, True),
    ("length_constraints:nth_paragraph_first_word", nth(2, 2, "well"), "One.\n\n\n\nWell then.", False, True),
    ("length_constraints:nth_paragraph_first_word", nth(2, 2, "well"), "One.\n\n\n\nNo.", False, False),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 2, "let_relation": "at least"},
        "#a #b",
        False,
        True,
    ),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 2, "let_relation": "less than"}, "!!", True, False),
    ("keywords:letter_frequency", {"letter": "Q", "let_frequency": 2, "let_relation": "at least"}, "Qq", True, True),
    ("change_case:english_capital", {}, "THE KING KEPT HIS KEYS IN THE KITCHEN.", False, True),
    ("change_case:english_capital", {}, "ES IST HEUTE WIRKLICH SCHÖNES WETTER ÜBER DEN BERGEN", False, False),
    ("change_case:english_capital", {}, "The weather is really nice today.", False, False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "* **One**: text", True, False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "* **One**: a\n* **Two**: b", True, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "***One***", True, False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* **two** ** **", True, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a**b*", True, True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* b\n\n---\nBye", False, True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "- a\n- b\n* * *\nBye", False, True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "*Note* first:\n* a\n* *b* c", False, True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "List:\n*a\n  -b\n**bold** c", True, True),
]


@pytest.mark.parametrize(("name", "arguments", "reply", "official", "repaired"), WRONG_UPSTREAM)
def test_what_is_wrong_upstream_is_kept_and_repaired(name, arguments, reply, official, repaired):
    assert (CHECKS[name](reply, **arguments), REPAIRED[name](reply, **arguments)) == (official, repaired)


def test_each_repair_has_a_reply_that_it_judges_differently():
    assert {name for name, _, _, official, repaired in WRONG_UPSTREAM if official != repaired} == set(REPAIRED)
