"""Word problems: data files and their errors, prompts, verdicts."""

import hashlib
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from s2d2cli.errors import ConfigError, TaskDataError
from s2d2cli.tasks.gsm8k import GSM8K, TinyMath

ROWS = [
    {"question": "Ann has 3 bags of 6. How many?", "answer": "3*6=<<3*6=18>>18\n#### 18"},
    {"question": "And 100 of 12 {each}?", "answer": "100*12\n#### 1,200"},
]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def task(tmp_path):
    return GSM8K(data=write_rows(tmp_path / "problems.jsonl", ROWS))


def test_the_source_names_the_file_and_its_content(task):
    source = task.prepare(allow_code_execution=False)
    with open(task.data, "rb") as file:
        assert source.sha256 == hashlib.sha256(file.read()).hexdigest()
    assert (source.origin, source.rows) == (task.data, 2)


def test_the_published_prompt(task):
    first, second = task.samples(None)
    assert first.messages == [
        {
            "role": "user",
            "content": "Solve the following math problem concisely and clearly and put your final answer within "
            "\\boxed{}.\n\nQuestion: Ann has 3 bags of 6. How many?",
        }
    ]
    assert (first.id, second.id, second.record) == ("gsm8k/0", "gsm8k/1", ROWS[1])
    assert second.messages[0]["content"].endswith("Question: And 100 of 12 {each}?")


def test_a_limit_takes_the_first_rows(task):
    assert task.samples(1) == task.samples(None)[:1]


@pytest.mark.parametrize(
    ("completion", "correct", "extracted", "status"),
    [
        (r"so \boxed{1200}", True, "1200", "correct"),
        ("#### $1,200.00", True, "1200", "correct"),
        (r"\boxed{1}", False, "1", "wrong"),
        ("I do not know.", False, None, "no_answer"),
        ("", False, None, "no_answer"),
    ],
)
def test_verdicts(task, completion, correct, extracted, status):
    score = task.score(task.samples(None)[1], completion)
    assert (score.correct, score.extracted, score.detail["status"]) == (correct, extracted, status)
    assert json.loads(json.dumps(score.detail))["gold"] == "1200"


def test_the_shipped_problems_are_asked_without_a_frame():
    task = TinyMath()
    assert task.prompt == "{question}"
    assert task.data == "package:tiny_math.jsonl"
    assert (task.name, task.max_new_tokens) == ("tiny_math", 128)
    source = task.prepare(allow_code_execution=False)
    assert (source.origin, source.rows >= 200) == ("package:tiny_math.jsonl", True)  # not where this machine has it
    samples = task.samples(None)
    assert samples[0].messages == [{"role": "user", "content": samples[0].record["question"]}]
    assert all(task.score(sample, sample.record["answer"]).correct for sample in samples)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["at least one row"]),
        (b'{"question": "q", "answer": "#### 1"}\n{"question": ', ["line 2", "JSON"]),
        (b'{"question": "q"}', ["line 1", "'answer'", "question"]),
        (b'{"question": "q", "answer": 5}', ["'answer'", "str"]),
        (b"[1, 2]", ["'question'", "no fields"]),
        (b"\xff\xfe", ["UTF-8"]),
        (b'{"question": "q", "answer": "none"}', ["row 0", "number"]),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, content, words):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(TaskDataError) as error:
        GSM8K(data=str(path)).prepare(allow_code_execution=False)
    assert all(word in str(error.value) for word in [*words, str(path)])
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named():
    with pytest.raises(TaskDataError, match="/nowhere/x.jsonl cannot be read .*task.data"):
        GSM8K(data="/nowhere/x.jsonl").prepare(allow_code_execution=False)


def test_a_file_under_a_published_name_must_be_the_published_file(tmp_path):
    task = GSM8K(data=write_rows(tmp_path / "gsm8k_test.jsonl", ROWS))
    with pytest.raises(TaskDataError, match="sha256 3730d312f6e3"):
        task.prepare(allow_code_execution=False)


def test_a_prompt_needs_a_place_for_the_question():
    with pytest.raises(ConfigError, match="{question}"):
        GSM8K(prompt="Solve it").validate()


class FakeTable(list):
    info = SimpleNamespace(download_checksums={f"hf://datasets/openai/gsm8k@{'ab12' * 10}/main/t.parquet": {}})


def fake_hub(monkeypatch, load_dataset):
    module = ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_hub_data_carry_the_revision_that_was_fetched(monkeypatch):
    calls = []
    fake_hub(monkeypatch, lambda *args, **kwargs: calls.append((args, kwargs)) or FakeTable(ROWS))
    source = GSM8K().prepare(allow_code_execution=False)
    assert calls == [(("openai/gsm8k", "main"), {"split": "test", "revision": None})]
    assert (source.origin, source.rows) == (f"openai/gsm8k@{'ab12' * 10}", 2)
    fake_hub(monkeypatch, lambda *args, **kwargs: FakeTable(ROWS[:1]))
    assert GSM8K().prepare(allow_code_execution=False).sha256 != source.sha256


def test_a_hub_revision_can_be_asked_for(monkeypatch):
    calls = []
    fake_hub(monkeypatch, lambda *args, **kwargs: calls.append(kwargs["revision"]) or FakeTable(ROWS))
    assert GSM8K(data="openai/gsm8k@v1").prepare(allow_code_execution=False).origin == "openai/gsm8k@v1"
    assert calls == ["v1"]


def test_an_unreachable_hub_points_at_local_files(monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach the hub")

    fake_hub(monkeypatch, offline)
    with pytest.raises(TaskDataError, match="Couldn't reach the hub.*task.data=PATH.jsonl"):
        GSM8K().prepare(allow_code_execution=False)


def test_the_real_test_set(real_data):
    task = GSM8K(data=str(real_data / "gsm8k_test.jsonl"))
    assert task.prepare(allow_code_execution=False).rows == 1319
    samples = task.samples(None)
    assert all(task.score(sample, sample.record["answer"]).correct for sample in samples)
