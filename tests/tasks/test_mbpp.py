"""MBPP: its prompts word for word, which rows count, and the verdicts of both protocols."""

import json

import pytest

from s2d2cli.errors import ConfigError, SandboxError, TaskDataError
from s2d2cli.tasks import code_task, data
from s2d2cli.tasks.mbpp import MBPP, MBPPSanitized, TinyCode

ROW = {
    "task_id": 7,
    "text": "Write a function to double a number.",
    "code": "def double(x):\r\n  return 2 * x",
    "test_list": ["assert double(2) == 4", "assert double(3) == 6"],
    "test_setup_code": "",
}
CODE = "def double(x):\n    return 2 * x\n"
NODE_ROW = ROW | {"test_list": ["assert double(root.value) == 2"], "test_setup_code": "root = Node(1)"}
NODE = "class Node:\n    def __init__(self, value): self.value = value\n"


def fenced(code, language="python"):
    return f"```{language}\n{code}\n```"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def make(tmp_path):
    def build(*rows, cls=MBPP, **settings):
        task = cls(data=write(tmp_path / "functions.jsonl", rows or [ROW]), cpu_limit_s=1, **settings)
        task.validate()
        return task

    return build


def numbered(*ids):
    return [ROW | {"task_id": number, "text": f"Task {number}."} for number in ids]


SYSTEM = {
    "role": "system",
    "content": "You are an expert Python programmer. Write only the function code, no explanations.",
}


def question(text):
    tests = "assert double(2) == 4\nassert double(3) == 6"
    return {"role": "user", "content": f"{text}\nYour code should pass these tests:\n{tests}"}


def test_the_published_prompt(make):
    (sample,) = make().samples(None)
    assert sample.id == "mbpp/7"
    assert sample.messages == [SYSTEM, question("Write a function to double a number.")]
    assert sample.raw is None
    assert make().max_new_tokens == 512


def test_the_published_prompt_with_three_examples(make):
    sample = make(*numbered(4, 3, 2, 20), shots=3).samples(None)[3]
    answer = {"role": "assistant", "content": "```python\ndef double(x):\r\n  return 2 * x\n```"}
    assert sample.messages == [
        *(SYSTEM, question("Task 2."), answer, question("Task 3."), answer),
        *(question("Task 4."), answer, question("Task 20.")),
    ]


def opening(number):
    return (
        f"You are an expert Python programmer, and here is your task: Task {number}. Your code should pass these tests:"
        f"\n\nassert double(2) == 4\nassert double(3) == 6\n[BEGIN]\n"
    )


def test_the_prompt_that_is_continued_shows_how_an_answer_ends(make):
    sample = make(*numbered(2, 3, 4, 20), style="completion", shots=3).samples(None)[3]
    code = "def double(x):\r\n  return 2 * x\n[DONE]\n\n"
    assert sample.raw == f"{opening(2)}{code}{opening(3)}{code}{opening(4)}{code}{opening(20)}"
    assert sample.messages == [{"role": "user", "content": sample.raw}]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"style": "completion"}, "task.shots must be 3 with task.style=completion, got 0"),
        ({"shots": 2}, "task.shots must be 0 or 3 with task.style=instruct, got 2"),
        ({"style": "chat"}, "task.style must be one of instruct, completion, got 'chat'"),
        ({"split": "train"}, "task.split must be one of test, all, got 'train'"),
        ({"sandbox": "jail"}, "task.sandbox must be one of auto, bwrap, process, got 'jail'"),
        ({"cpu_limit_s": 0}, "task.cpu_limit_s must be at least 1 second, got 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        MBPP(**settings).validate()


def test_examples_must_be_there(make):
    with pytest.raises(TaskDataError, match="task_id 2, 3 and 4, which .*functions.jsonl does not have"):
        make(*numbered(2, 3, 20), shots=3).prepare(allow_code_execution=True)


WHOLE = (1, 2, 3, 4, 11, 300, 510, 511, 601, 974)


@pytest.mark.parametrize(
    ("ids", "split", "taken"),
    [
        (WHOLE, "test", [11, 300, 510]),
        (WHOLE, "all", list(WHOLE)),
        ((5, 11, 12), "test", [5, 11, 12]),  # somebody's own rows, which happen to have low numbers
        ((*WHOLE, 975), "test", [*WHOLE, 975]),
    ],
)
def test_of_the_whole_set_the_test_split_is_taken(make, ids, split, taken):
    task = make(*numbered(*ids), split=split)
    assert [sample.id for sample in task.samples(None)] == [f"mbpp/{number}" for number in taken]
    assert task.prepare(allow_code_execution=True).rows == len(taken)


def fake_hub(monkeypatch, parts):
    calls = []

    def fetch(dataset, hub, revision):
        calls.append((dataset, hub.config, hub.split))
        return parts[hub.split], f"{dataset}@{revision}"

    monkeypatch.setattr(data, "fetch", fetch)
    return calls


def test_the_hub_is_asked_for_the_test_split_and_the_examples(monkeypatch):
    calls = fake_hub(monkeypatch, {"test": numbered(11), "prompt": numbered(2, 3, 4)})
    (sample,) = MBPP(shots=3).samples(None)
    assert len(sample.messages) == 8
    assert set(calls) == {
        ("google-research-datasets/mbpp", "full", "test"),
        ("google-research-datasets/mbpp", "full", "prompt"),
    }
    calls = fake_hub(monkeypatch, {"prompt+test+validation+train": [ROW | {"prompt": "Double."}]})
    assert MBPPSanitized(split="all").samples(None)[0].id == "mbpp_sanitized/7"
    assert calls == [("google-research-datasets/mbpp", "sanitized", "prompt+test+validation+train")]


def test_the_sanitized_set_has_other_fields(tmp_path):
    row = {
        "task_id": 3,
        "prompt": "Write a function for the root.",
        "code": "def root(x):\n    return x ** 0.5",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(root(4), 2)"],
    }
    path = tmp_path / "checked.json"
    path.write_text(json.dumps([row]))
    task = MBPPSanitized(data=str(path))
    (sample,) = task.samples(None)
    assert sample.messages[1]["content"].startswith(
        "Write a function for the root.\nYour code should pass these tests:\n"
    )
    assert task.score(sample, row["code"]).measures == {"fixed": (1, 1), "paper": (1, 1)}


def verdict(task, completion):
    score = task.score(task.samples(None)[0], completion)
    assert score.correct == (score.detail["status"] == "pass")
    assert score.measures["fixed"] == (int(score.correct), 1)
    assert (score.extracted is None) == (score.detail["status"] == "no_code")
    return score.detail["status"], bool(score.measures["paper"][0])


VERDICTS = {  # what the published scripts think of it comes last
    "fenced": (fenced(CODE), "pass", True),
    "plain": (CODE, "pass", True),
    "marked": (f"[BEGIN]\n{CODE}[DONE]", "pass", True),
    "marked, never closed": (f"[BEGIN]\n{CODE}", "pass", True),
    "wrong": (fenced("def double(x):\n    return 4"), "assert", False),
    "another name": (fenced("def triple(x):\n    return 4"), "error", False),
    "does not compile": (fenced("def double(x) return 2 * x"), "syntax", False),
    "endless": (fenced(f"{CODE}\nwhile True: pass"), "timeout", False),
    "endless example": (fenced(f"{CODE}\nwhile double(1): pass"), "pass", False),
    "waits for input": (fenced(f"{CODE}\nif __name__ == '__main__':\n    print(double(int(input())))"), "pass", False),
    "memory": (fenced("def double(x):\n    return bytearray(1 << 45)"), "memory", False),
    "sys.exit": (fenced("import sys\ndef double(x):\n    sys.exit()"), "error", True),
    "SystemExit": (fenced("def double(x):\n    raise SystemExit(0)"), "error", True),
    "exit code": (fenced("def double(x):\n    raise SystemExit(3)"), "error", False),
    "os._exit": (fenced("import os\ndef double(x):\n    os._exit(0)"), "error", True),
    "constant, fenced": (fenced("TWO = 2\ndef double(x):\n    return TWO * x"), "pass", True),
    "constant, plain": ("TWO = 2\ndef double(x):\n    return TWO * x", "pass", False),
    "helper in a fence of its own": (
        f"{fenced('def add(a, b): return a + b')}\n{fenced('def double(x):' + chr(10) + '    return add(x, x)')}",
        "pass",
        False,
    ),
    "longer example": (f"{fenced(CODE)}\n{fenced('print(double(1))' + chr(10) + 'double(1)' * 20)}", "pass", False),
    "fence in the docstring": (
        fenced('def double(x):\n    """As in\n    ```\n    double(1)\n    ```\n    """\n    return 2 * x'),
        "pass",
        False,
    ),
    "fence not closed": (f"```python\n{CODE}", "pass", True),
    "prose": ("I would multiply by two.", "no_code", False),
    "nothing": ("", "no_code", False),
}


@pytest.mark.parametrize(("completion", "status", "paper"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts(make, completion, status, paper):
    assert verdict(make(), completion) == (status, paper)


@pytest.mark.parametrize(
    ("completion", "status", "paper"),
    [
        (f"{CODE}[DONE]\n\nYou are an expert\n[BEGIN]\ndef double(x):\n    return 1\n[DONE]", "pass", True),
        (CODE, "pass", True),
        (f"TWO = 1\n{CODE}", "pass", True),
        (f"{CODE}import sys\nsys.exit()", "error", False),  # lm-eval counts leaving early as a failure
        (fenced(CODE), "pass", False),
    ],
)
def test_verdicts_on_completions(make, completion, status, paper):
    assert verdict(make(*numbered(20, 2, 3, 4), style="completion", shots=3), completion) == (status, paper)


def test_a_set_up_that_needs_the_code(make):
    assert verdict(make(NODE_ROW), fenced(NODE + CODE)) == ("pass", False)  # on paper it stands before the code


def test_a_program_runs_once_for_both_protocols_where_that_is_sure(make, monkeypatch):
    runs, run_program = [], code_task.run_program
    monkeypatch.setattr(code_task, "run_program", lambda program: runs.append(program) or run_program(program))
    code_task.remembered.cache_clear()
    task = make()
    for _ in range(2):
        assert verdict(task, fenced(CODE)) == ("pass", True)
        assert len(runs) == 1  # nor is it run again when it is met again
    assert verdict(task, fenced(f"import os\n{CODE}")) == ("pass", True)
    assert len(runs) == 3


def test_the_sandbox_in_use_is_told(make):
    task = make(sandbox="process")
    task.prepare(allow_code_execution=True)
    assert task.facts() == {"sandbox": "process"}
    assert task.score(task.samples(None)[0], CODE).detail["sandbox"] == "process"


def test_running_code_needs_consent_before_anything_else():
    with pytest.raises(SandboxError, match="tiny_code .*--allow-code-execution"):
        TinyCode(data="/nowhere.jsonl").prepare(allow_code_execution=False)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROW | {"test_list": []}], "always pass"),
        ([ROW | {"test_list": [5]}], "task_id 7"),
        ([ROW, ROW], "mbpp/7 occurs twice"),
    ],
)
def test_bad_rows_are_refused(make, rows, words):
    with pytest.raises(TaskDataError, match=words):
        make(*rows).prepare(allow_code_execution=True)


def test_shipped_solutions_pass():
    task = TinyCode()
    assert task.prepare(allow_code_execution=True).rows >= 200
    samples = task.samples(None)
    assert len({sample.id for sample in samples}) == len(samples)
    assert samples[0].messages == [{"role": "user", "content": task.question(samples[0].record)}]
    assert [s.id for s in samples[::20] if not task.score(s, s.record["code"]).correct] == []


def test_the_published_sets(real_data):
    task = MBPP(data=str(real_data / "mbpp.jsonl"), shots=3)
    source = task.prepare(allow_code_execution=True)
    assert (source.rows, source.published) == (500, True)
    assert [task.samples(None)[index].id for index in (0, -1)] == ["mbpp/11", "mbpp/510"]
    sanitized = str(real_data / "sanitized-mbpp.json")
    assert MBPPSanitized(data=sanitized, shots=3).prepare(allow_code_execution=True).rows == 257
    assert MBPPSanitized(data=sanitized, split="all").prepare(allow_code_execution=True).rows == 427


def test_published_solutions_are_found_in_every_style(real_data):
    task = MBPP(data=str(real_data / "mbpp.jsonl"))
    for sample in task.samples(None)[::10]:
        code = sample.record["code"].replace("\r\n", "\n")
        for reply in (code, fenced(code), f"Here it is:\n\n{code}\n\nThat does the job.", f"```\n{code}"):
            assert task.program(sample.record, reply).code.strip() == code.strip(), sample.id


@pytest.mark.parametrize(
    ("number", "fenced_on_paper", "plain_on_paper"),
    [(367, False, False), (18, True, False), (64, True, False), (122, True, False), (396, True, False)],
)
def test_published_solutions_that_the_published_scripts_fail(real_data, number, fenced_on_paper, plain_on_paper):
    task = MBPP(data=str(real_data / "mbpp.jsonl"))
    sample = next(sample for sample in task.samples(None) if sample.id == f"mbpp/{number}")
    found = [task.score(sample, reply).measures for reply in (fenced(sample.record["code"]), sample.record["code"])]
    assert found == [{"fixed": (1, 1), "paper": (int(paper), 1)} for paper in (fenced_on_paper, plain_on_paper)]
