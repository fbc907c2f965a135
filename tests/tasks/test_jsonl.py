"""A file of one's own as a task: prompts, ids, the four scorers, and what is refused before a model loads."""

import json

import pytest

from s2d2cli.config import compose, record
from s2d2cli.errors import ConfigError, SandboxError, TaskDataError
from s2d2cli.tasks.gsm8k import GSM8K
from s2d2cli.tasks.jsonl import Jsonl

TURNS = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "And 2+2?"},
]


@pytest.fixture
def own(tmp_path):
    """A prepared task over these rows."""

    def make(*rows, allow=False, **settings):
        path = tmp_path / "own.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        task = Jsonl(data=str(path), **settings)
        task.validate()
        task.prepare(allow_code_execution=allow)
        return task

    return make


def scored(task, completion):
    return task.score(task.samples(None)[0], completion)


# Prompts and ids


def test_text_and_messages_become_conversations(own):
    rows = [{"question": "1+1?", "answer": "2", "note": "x"}, {"question": TURNS, "answer": "4"}]
    first, second = own(*rows, prompt="question").samples(None)
    assert (first.messages, second.messages) == ([{"role": "user", "content": "1+1?"}], TURNS)
    assert (first.id, second.id, first.record, first.raw) == ("jsonl/0", "jsonl/1", rows[0], None)


def test_a_system_turn_stands_in_front_of_both(own):
    system = {"role": "system", "content": "Be brief."}
    task = own({"prompt": "1+1?", "answer": "2"}, {"prompt": TURNS, "answer": "4"}, system="Be brief.")
    first, second = task.samples(None)
    assert first.messages == [system, {"role": "user", "content": "1+1?"}]
    assert second.messages == [system, *TURNS]
    (own_system,) = own({"prompt": [system, *TURNS], "answer": "4"}).samples(None)
    assert own_system.messages == [system, *TURNS]


def test_ids_come_from_a_column(own):
    rows = [{"key": "a/1", "prompt": "p", "answer": "x"}, {"key": 7, "prompt": "p", "answer": "x"}]
    task = own(*rows, id="key")
    assert [sample.id for sample in task.samples(None)] == ["jsonl/a/1", "jsonl/7"]
    assert [sample.id for sample in task.samples(1)] == ["jsonl/a/1"]


def test_the_file_itself_is_the_source(own):
    task = own({"prompt": "p", "answer": "x"})
    source = task.prepare(allow_code_execution=False)
    assert (source.origin, source.rows, source.published) == (task.data, 1, None)


def test_every_setting_is_shown():
    shown = record(compose(["task=jsonl", "task.prompt=question", "task.scorer=number"]))["task"]
    assert shown == {
        "kind": "jsonl",
        "data": "",
        "prompt": "question",
        "answer": "answer",
        "scorer": "number",
        "id": None,
        "system": "",
        "max_new_tokens": 256,
        "version": 1,
    }


# Scorers


@pytest.mark.parametrize("answer", [1200, 1200.0, "1200", "1,200", "So it is 12*100.\n#### 1,200", r"\boxed{1{,}200}"])
@pytest.mark.parametrize(
    ("completion", "status"), [(r"\boxed{1,200}", "correct"), ("The answer is 120.", "wrong"), ("None.", "no_answer")]
)
def test_number(own, answer, completion, status):
    score = scored(own({"prompt": "p", "answer": answer}, scorer="number"), completion)
    assert (score.correct, score.detail["status"], score.detail["gold"]) == (status == "correct", status, "1200")
    assert score.measures["fixed"] == (int(status == "correct"), 1)


@pytest.mark.parametrize(("answer", "text"), [(0.1, "0.1"), (-3, "-3"), (1e-05, "0.00001"), (1e22, str(10**22))])
def test_numbers_of_json_are_exact(own, answer, text):
    task = own({"prompt": "p", "answer": answer}, scorer="number")
    assert scored(task, rf"\boxed{{{text}}}").correct
    assert not scored(task, rf"\boxed{{{text}1}}").correct


@pytest.mark.parametrize(
    ("completion", "correct", "any_case"),
    [
        ("New York", 1, 1),
        ("  New\n York \n", 1, 1),
        ("new york", 0, 1),
        ("New York.", 0, 0),
        ("NewYork", 0, 0),
        ("It is New York", 0, 0),
        ("", 0, 0),
    ],
)
def test_exact(own, completion, correct, any_case):
    score = scored(own({"prompt": "p", "answer": " New  York"}), completion)
    assert score.correct == bool(correct)
    assert score.measures == {"fixed": (correct, 1), "any_case": (any_case, 1)}
    assert score.detail["status"] == ("correct" if correct else "wrong" if completion else "no_answer")
    assert score.extracted == (" ".join(completion.split()) or None)


@pytest.mark.parametrize("answer", [["assert add(1, 2) == 3", "assert add(0, 0) == 0"], "x = add(1, 2)\nassert x == 3"])
def test_code(own, answer):
    task = own({"prompt": "Write add.", "answer": answer}, scorer="code", allow=True)
    right = scored(task, "Here:\n```python\ndef add(a, b):\n    return a + b\n```\n")
    assert (right.correct, right.measures, right.detail["status"]) == (True, {"fixed": (1, 1)}, "pass")
    wrong = scored(task, "def add(a, b):\n    return a - b\n")
    assert (wrong.correct, wrong.measures, wrong.detail["status"]) == (False, {"fixed": (0, 1)}, "assert")
    none = scored(task, "I cannot.")
    assert (none.correct, none.extracted, none.measures, none.detail["status"]) == (
        False,
        None,
        {"fixed": (0, 1)},
        "no_code",
    )


@pytest.mark.parametrize(
    "answer",
    [
        "import math\nassert f(1) == math.pi",
        "if f(1) != 2:\n    raise ValueError",
        "np.testing.assert_allclose(f(1), 2)",
    ],
)
def test_whatever_can_fail_is_a_test(own, answer):
    assert own({"prompt": "p", "answer": answer}, scorer="code", allow=True)


def test_code_runs_only_with_consent(own):
    with pytest.raises(SandboxError, match="task.scorer=code runs programs.*--allow-code-execution"):
        own({"prompt": "p", "answer": "assert f() == 1"}, scorer="code")


def test_instructions(own):
    asked = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    task = own({"prompt": "Write without commas.", **asked}, scorer="instructions")
    assert scored(task, "no comma here").correct
    score = scored(task, "one, two")
    assert (score.correct, score.detail["status"], score.measures["fixed"]) == (False, "not_followed", (0, 1))
    assert score.measures["instruction_strict"] == (0, 1)
    assert task.facts() == {}


def test_what_the_verdicts_depend_on_is_recorded(own):
    asked = {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "de"}]}
    pytest.importorskip("langdetect")
    assert own({"prompt": "p", **asked}, scorer="instructions").facts().keys() == {"langdetect"}
    assert own({"prompt": "p", "answer": "a", **asked}).facts() == {}


# Refusals: the line, what must hold, what came

GOOD = {"prompt": "p", "answer": "1"}


@pytest.mark.parametrize(
    ("settings", "row", "sentence"),
    [
        (
            {"prompt": "question"},
            GOOD,
            r"column 'question' \(task.prompt\), it has prompt, answer; .*task.prompt=COLUMN",
        ),
        ({"answer": "gold"}, GOOD, r"column 'gold' \(task.answer\), it has prompt, answer; .*task.answer=COLUMN"),
        ({"id": "key"}, GOOD, r"column 'key' \(task.id\), it has prompt, answer; .*task.id=COLUMN"),
        ({}, {}, r"column 'prompt' \(task.prompt\), it has none"),
        ({}, {**GOOD, "prompt": " "}, "'prompt' must be a text, or a list of chat messages, got \" \""),
        ({}, {**GOOD, "prompt": 5}, "'prompt' must be a text, or a list of chat messages, got 5"),
        ({}, {**GOOD, "prompt": []}, r"'prompt' must be a text, or a list of chat messages, got \[\]"),
        (
            {},
            {**GOOD, "prompt": [{"role": "bot", "content": "x"}]},
            "message must have a role .system, user, assistant.",
        ),
        (
            {},
            {**GOOD, "prompt": [{"role": "user", "content": 5}]},
            'a text as content, got {"role": "user", "content": 5}',
        ),
        ({}, {**GOOD, "prompt": ["hi"]}, 'a message must have a role .*got "hi"'),
        ({}, {**GOOD, "prompt": TURNS[:2]}, "must end with a message of the user, got .*Yes"),
        (
            {"system": "s"},
            {**GOOD, "prompt": [{"role": "system", "content": "t"}, *TURNS]},
            "has a system message already; leave out task.system",
        ),
        ({"id": "key"}, {**GOOD, "key": None}, "'key' must be a text or a whole number, got null"),
        ({"id": "key"}, {**GOOD, "key": True}, "'key' must be a text or a whole number, got true"),
        ({"id": "key"}, {**GOOD, "key": 0}, "ids must be unique, jsonl/0 occurs twice"),
        ({}, {**GOOD, "answer": 5}, "task.scorer=exact the answer must be a text, got 5"),
        ({}, {**GOOD, "answer": " "}, 'task.scorer=exact the answer must be a text, got " "'),
        ({"scorer": "number"}, {**GOOD, "answer": "none"}, 'must be a number, or a text that holds one, got "none"'),
        ({"scorer": "number"}, {**GOOD, "answer": None}, "must be a number, or a text that holds one, got null"),
        ({"scorer": "number"}, {**GOOD, "answer": False}, "must be a number, or a text that holds one, got false"),
        ({"scorer": "number"}, {**GOOD, "answer": float("nan")}, "must be a number, .*got NaN"),
        ({"scorer": "code"}, {**GOOD, "answer": []}, r"must be Python such as .*got \[\]"),
        ({"scorer": "code"}, {**GOOD, "answer": ["assert f( == 1"]}, "must be Python such as"),
        ({"scorer": "code"}, {**GOOD, "answer": "# nothing"}, 'must be Python such as .*got "# nothing"'),
        ({"scorer": "code"}, {**GOOD, "answer": "f(1) == 2"}, r'each with an assert, got "f\(1\) == 2"'),
        ({"scorer": "code"}, {**GOOD, "answer": ["assert f(1) == 2", "print(f(2))"]}, "each with an assert, got"),
        ({"scorer": "code"}, {**GOOD, "answer": [1]}, "must be Python such as"),
        ({"scorer": "code"}, {**GOOD, "answer": {"a": "b" * 99}}, 'each with an assert, got {"a": "b{67,}[.]{3}; mend'),
        ({"scorer": "instructions"}, GOOD, "'instruction_id_list' .list., it has prompt, answer"),
    ],
)
def test_a_row_that_could_not_be_asked_or_judged_is_refused_with_its_line(own, settings, row, sentence):
    with pytest.raises(TaskDataError, match=f"own.jsonl, line 2: {'.*' if sentence[0] != chr(39) else ''}") as error:
        first = {"key": 0, "prompt": "p", "answer": "assert f(1) == 1", settings.get("prompt", "prompt"): "p"}
        first |= {settings.get("answer", "answer"): "assert f(1) == 1", "instruction_id_list": ["punctuation:no_comma"]}
        own({**first, "kwargs": [{}]}, row, allow=True, **settings)
    assert error.match(sentence)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("names", "kwargs", "sentence"),
    [
        (["punctuation:no_comma"], [], "one kwargs object per instruction"),
        (["punctuation:no_such"], [{}], "punctuation:no_such, which s2d2 cannot check"),
        (["length_constraints:number_words"], [{"relation": "at least"}], "cannot be checked with"),
    ],
)
def test_instructions_that_could_not_be_judged_are_refused(own, names, kwargs, sentence):
    with pytest.raises(TaskDataError, match=f"own.jsonl, line 1: .*{sentence}"):
        own({"prompt": "p", "instruction_id_list": names, "kwargs": kwargs}, scorer="instructions")


def test_a_task_without_a_file_or_with_an_unknown_scorer_says_what_to_give():
    with pytest.raises(ConfigError, match="task=jsonl needs a file of yours: task.data=FILE.jsonl"):
        Jsonl().prepare(allow_code_execution=False)
    with pytest.raises(ConfigError, match="task.scorer must be one of number, exact, code, instructions, got 'bleu'"):
        Jsonl(scorer="bleu").validate()


def test_gsm8k_as_a_file_of_ones_own(real_data):
    path = str(real_data / "gsm8k_test.jsonl")
    task, published = Jsonl(data=path, prompt="question", scorer="number"), GSM8K(data=path)
    assert task.prepare(allow_code_execution=False).content == published.prepare(allow_code_execution=False).content
    replies = [rf"so \boxed{{{index * 7 % 90}}}" for index in range(1319)]
    pairs = zip(task.samples(None), published.samples(None), replies, strict=True)
    assert all(task.score(mine, reply) == published.score(theirs, reply) for mine, theirs, reply in pairs)
