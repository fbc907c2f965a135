"""Our verdicts against those of lm_eval.tasks.ifeval, on thousands of replies made to lie at the borders of each check.

It needs lm-eval beside the extra `ifeval`: `pip install lm-eval==0.4.13 immutabledict`.
"""

import json
import os
import random
import re
import string
import unicodedata
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

from s2d2cli.tasks.ifeval import IFEval, instructions, judged
from s2d2cli.tasks.ifeval_checks import CHECKS
from tests.tasks.ifeval_replies import arguments_for, replies_to

DATA = Path(os.environ.get("S2D2_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
GENERATED = 20  # arguments for each instruction
PUBLISHED = 12  # and as many rows of the published set, where it is there


@pytest.fixture(scope="module")
def official():
    """The official code. It would download Punkt's tables if it did not find them, so they are looked for first."""
    for package in ("lm_eval", "immutabledict", "langdetect", "nltk"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed; see the top of this file")
    import langdetect
    import nltk

    nltk.data.path.append(str(DATA / "nltk_data"))
    try:
        nltk.data.find("tokenizers/punkt_tab/english/")
    except LookupError:
        pytest.skip("lm-eval needs NLTK's punkt_tab; name its folder as NLTK_DATA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lm_eval.tasks.ifeval import utils
    seed, langdetect.DetectorFactory.seed = langdetect.DetectorFactory.seed, 0
    yield utils
    langdetect.DetectorFactory.seed = seed
    nltk.data.path.remove(str(DATA / "nltk_data"))


def published_arguments(name):
    path = DATA / "ifeval_input_data.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    asked = [each for row in rows for each in zip(row["instruction_id_list"], row["kwargs"], strict=True)]
    found = [arguments for each, arguments in asked if each == name]
    return random.Random(0).sample(found, min(PUBLISHED, len(found)))


def verdicts(official, name, arguments, reply):
    """Official strict and loose. Where it draws a letter, all 26 are tried and the majority is taken."""
    row = official.InputExample(0, [name], "", [arguments])

    def once():
        both = official.test_instruction_following_strict, official.test_instruction_following_loose
        return [judge(row, reply).follow_all_instructions for judge in both]

    if re.fullmatch("[A-Za-z]", arguments.get("letter", "a")):
        return once()
    drawn = []
    for letter in string.ascii_lowercase:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(random, "choice", lambda _, letter=letter: letter)
            drawn.append(once())
    return [sum(each) > 13 for each in zip(*drawn, strict=True)]


def comparable(name, reply):
    """NLTK counts words by another library since 3.10; without marks and joiners both find the same."""
    if name != "length_constraints:number_words":
        return reply
    return "".join(sign for sign in reply if unicodedata.category(sign)[0] not in "MC" or sign in "\n\t\r")


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_verdicts_are_the_official_ones(official, name):
    rng = random.Random(name)
    cases = [arguments_for(name, rng) for _ in range(GENERATED)] + published_arguments(name)
    seen = {True: 0, False: 0}
    for arguments in cases:
        for reply in replies_to(name, arguments, rng):
            reply = comparable(name, reply)
            ours = judged(reply, *instructions({"instruction_id_list": [name], "kwargs": [arguments]})[0])
            expected = verdicts(official, name, arguments, reply)
            assert [ours["strict"], ours["loose"]] == expected, (name, arguments, reply)
            seen[ours["strict"]] += 1
    assert sum(seen.values()) >= 80
    assert min(seen.values()) >= 10, seen


def test_all_published_prompts_get_the_official_verdicts(official, real_data):
    """Whole rows as lm-eval scores them, each with a reply to all its instructions at once."""
    task = IFEval(data=str(real_data / "ifeval_input_data.jsonl"))
    rng, seen = random.Random(0), {True: 0, False: 0}
    for sample in task.samples(None):
        asked = instructions(sample.record)
        if any(arguments.get("letter") in ("#", "!") for _, arguments in asked):
            continue  # officially another letter in the strict than in the loose reading
        reply = rng.choice(["\n", "\n\n"]).join(replies_to(name, arguments, rng)[0] for name, arguments in asked)
        reply = comparable("length_constraints:number_words", reply)
        score, expected = task.score(sample, reply), official.process_results(sample.record, [reply])
        judgements = score.detail["instructions"]
        assert score.correct is expected["prompt_level_strict_acc"]
        assert score.detail["loose"] is expected["prompt_level_loose_acc"]
        assert [each["strict"] for each in judgements] == expected["inst_level_strict_acc"]
        assert [each["loose"] for each in judgements] == expected["inst_level_loose_acc"]
        seen[score.correct] += 1
    assert sum(seen.values()) == 539
    assert min(seen.values()) >= 50, seen
