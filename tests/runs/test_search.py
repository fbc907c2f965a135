"""Search: what it may choose, its budget, its workers, and what it takes over from finished runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from s2d2cli.config import compose
from s2d2cli.errors import ConfigError
from s2d2cli.runs.evaluate import Models, evaluate
from s2d2cli.runs.grid import Grid, SweepFile, read
from s2d2cli.runs.inherit import inherit
from s2d2cli.runs.pareto import hypervolume
from s2d2cli.runs.search_plan import Search, asked, folder_for, limits_of, objectives
from s2d2cli.runs.search_plan import read as read_search
from s2d2cli.runs.search_space import Outside, grids_of, spaces_of
from s2d2cli.runs.store import RunFolder, folder_of
from tests.runs import doubles
from tests.test_cli import s2d2 as s2d2

pytest.importorskip("optuna", minversion="5", reason="s2d2 search needs optuna: pip install 's2d2[search]'")

from optuna.trial import FixedTrial

from s2d2cli.runs.search import Worker, reuse
from s2d2cli.runs.search_front import measured, survivors
from s2d2cli.runs.search_study import Study

GOLDEN = Path(__file__).parents[1] / "golden"
NOT_VARIED = ("model", "task", "seed", "router.score")
GOAL = "accuracy,tokens_per_forward"


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def decoders(monkeypatch):
    return doubles.use(monkeypatch)


def space(*words: str):
    (found,) = spaces_of([list(words)], {})
    return found


def begin(*words: str, trials: int = 4, limits: str | None = None, file: SweepFile | None = None) -> Search:
    """A search among answers of different lengths, on the task of the doubles."""
    typed = ["task=echo", *(["limit=4"] if limits is None else []), *(words or ["decode.max_new_tokens=range(1,20)"])]
    request = asked(grids_of(typed, file), {}, GOAL, (trials, limits))
    search = Search(folder_for(request, "search", "results"), request)
    search.write()
    return search


def work(search: Search) -> list:
    return list(Worker(search, Study(search)).run())


# What there is to choose from


def test_each_form_of_the_grammar_is_a_range():
    found = {
        one.spread.key: one
        for one in space(
            "router=hysteresis,min_span",
            "unmask.threshold=choice(0.5,0.9)",
            "decode.max_new_tokens=range(16,64,16)",
            "router.tau_on=interval(0,2)",
            "decode.top_p=tag(log,interval(0.01,1))",
            "decode.block_length=interval(4,16)",
            "decode.temperature=range(0.1,0.5,0.1)",
            "batch_size=4",
        ).ranges
    }
    assert found["router"].group and found["router"].values == ("hysteresis", "min_span")
    assert found["unmask.threshold"].spread.words == ("unmask.threshold=0.5", "unmask.threshold=0.9")
    steps = found["decode.max_new_tokens"]
    assert (steps.spread.low, steps.spread.high, steps.spread.step, steps.whole, steps.size) == (16, 48, 16, True, 3)
    assert found["router.tau_on"].size == float("inf") and not found["router.tau_on"].whole
    assert found["decode.top_p"].spread.log and not found["router.tau_on"].spread.log
    assert found["decode.block_length"].whole and found["decode.block_length"].size == 13
    assert found["decode.temperature"].spread.step == 0.1 and found["decode.temperature"].size == 4
    assert found["batch_size"].fixed


@pytest.mark.parametrize(
    ("word", "number", "override"),
    [
        ("decode.block_length=interval(4,16)", 7, "decode.block_length=7"),
        ("decode.max_new_tokens=range(16,64,16)", 32, "decode.max_new_tokens=32"),
        ("decode.temperature=interval(0,1)", 0.123456, "decode.temperature=0.1235"),
        ("decode.temperature=interval(0.1,0.1001)", 0.10004567, "decode.temperature=0.10004567"),
        ("decode.temperature=range(0.1,0.5,0.1)", 0.30000000000000004, "decode.temperature=0.3"),
        ("decode.top_p=tag(log,interval(0.0001,1))", 0.000123456, "decode.top_p=0.00012346"),
        ("decode.temperature=interval(0,3)", 2.0, "decode.temperature=2"),
    ],
)
def test_a_number_is_typed_with_few_digits(word, number, override):
    key = word.partition("=")[0]
    assert space(word).choose(FixedTrial({key: number})) == [override]


def test_a_key_takes_part_only_where_it_exists():
    found = space("router=min_span,hysteresis,always", "router.tau_span=range(1,5)", "router.tau_on=interval(0,2)")
    drawn = {"router.tau_span": 3, "router.tau_on": 1.5}
    assert found.choose(FixedTrial({"router": "router=min_span", **drawn})) == ["router=min_span", "router.tau_span=3"]
    assert found.choose(FixedTrial({"router": "router=hysteresis", **drawn})) == [
        "router=hysteresis",
        "router.tau_on=1.5",
    ]
    assert found.choose(FixedTrial({"router": "router=always", **drawn})) == ["router=always"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["router=min_span,always", "router.tau_spam=1,2"], "no 'tau_spam' in router"),
        (["router=min_spam,always", "seed=1,2", "router.tau_span=1,2"], "did you mean 'min_span'"),
        (["router.tau_on=interval(0,1)"], "router.tau_on is a setting of router=hysteresis"),
        (["decode.block_length=interval(1.5,4)"], "takes whole numbers"),
        (["decode.temperature=interval(1,0)"], "low < high"),
        (["decode.top_p=tag(log,interval(0,1))"], "0 < low < high"),
    ],
)
def test_ranges_that_cannot_be(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        space(*words)


def test_grids_of_a_file_are_spaces_and_a_single_point_is_a_baseline():
    file = SweepFile(
        "f",
        ["task=echo"],
        [
            Grid({"decoder": "autoregressive"}),
            Grid({"decoder": "s2d2", "router": "min_span", "router.tau_span": "range(1,4)"}),
            Grid({"decoder": "dynamic", "unmask.threshold": "interval(0.5,1)"}),
        ],
    )
    search = begin("decode.block_length=4,8", file=file)
    assert search.alone == [["task=echo", "decoder=autoregressive"]]
    assert [one.size for one in search.spaces] == [6, float("inf")]
    with pytest.raises(ConfigError, match="has zip, exclude or the like"):
        grids_of([], replace(file, seeds=["1"]))


def test_a_recorded_run_becomes_the_parameters_that_would_make_it():
    found = space("router=min_span,always", "router.tau_span=range(1,9,2)", "unmask.threshold=0.5,0.9")
    settings = {"router.kind": "min_span", "router.tau_span": 3, "unmask.threshold": 0.9}
    assert found.params(settings) == {
        "router": "router=min_span",
        "router.tau_span": 3,
        "unmask.threshold": "unmask.threshold=0.9",
    }
    for other in ({"router.tau_span": 4}, {"router.tau_span": 11}, {"router.kind": "ucb"}, {"unmask.threshold": 0.7}):
        with pytest.raises(Outside):
            found.params(settings | other)


@pytest.mark.parametrize("text", ["accuracy", "accuracy,speed", "accuracy,accuracy", "accuracy,speedup", "a,b,c"])
def test_objectives_are_two_known_metrics(text):
    with pytest.raises(ConfigError, match="--objective must name two of accuracy"):
        objectives(text)


def test_the_direction_of_a_metric_is_known():
    search = begin()
    search = replace(search, asked=replace(search.asked, objectives=["forwards_per_token", "accuracy"]))
    assert [direction.name for direction in Study(search).study.directions] == ["MINIMIZE", "MAXIMIZE"]


def test_limits():
    assert limits_of(None, []) == [None] and limits_of(None, ["40"]) == [40] and limits_of("2,4", ["3"]) == [2, 4]
    for text, typed in (("4,2", []), ("2,2", []), ("0,2", []), ("a", []), (None, ["1", "2"])):
        with pytest.raises(ConfigError, match="limit"):
            limits_of(text, typed)


# The budget


def test_the_budget_holds_over_calls(decoders):
    told = work(begin(trials=4))
    assert [one.status for one in told] == ["done"] * 4 and len({tuple(one.words) for one in told}) == 4
    assert work(begin(trials=4)) == []  # the check comes before the first trial, not after it
    assert len(work(begin(trials=6))) == 2


def test_two_workers_together_reserve_no_more_than_the_budget(decoders):
    search = begin(trials=7)
    studies = [Study(search), Study(search)]
    asked_for = [studies[turn % 2].ask() for turn in range(10)]
    assert [one is not None for one in asked_for] == [True] * 7 + [False] * 3
    assert len({tuple(one.words) for one in asked_for if one}) == 7


def test_invalid_corners_and_repeated_settings_cost_nothing(decoders):
    search = begin("decode.block_length=4,8", "decode.denoising_steps=4,8", "decoder=dynamic", trials=10)
    told = work(search)
    found = {tuple(word.rpartition("=")[2] for word in one.words if word.startswith("decode.")) for one in told}
    assert found == {("4", "4"), ("8", "4"), ("8", "8")}
    assert len(told) == 3 and Study(search).spent() == 3  # all that is valid, though ten were allowed


def test_a_trial_is_an_ordinary_run(decoders):
    told = work(begin(trials=3))
    for one in told:
        record = folder_of(compose([*one.words, "limit=4"])).record()
        assert record is not None and record["status"] == "success" and record["n"] == 4


def test_a_seed_names_a_search_and_a_stopped_one_goes_on_as_it_would_have(decoders, tmp_path, monkeypatch):
    whole = [one.words for one in work(begin(trials=14))]
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    parts = [one.words for trials in (3, 12, 14) for one in work(begin(trials=trials))]
    assert parts == whole
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert [one.words for one in work(begin("seed=5", "decode.max_new_tokens=range(1,20)", trials=14))] != whole


# Workers that die, fail or are stopped


def test_a_trial_whose_worker_died_is_finished_by_another(decoders):
    search = begin(trials=3)
    dead = Study(search).ask()
    told = work(search)
    assert len(told) == 3 and told[0].words == dead.words
    assert Study(search).running() == [] and Study(search).spent() == 3


def test_a_trial_that_another_worker_has_in_hand_is_left_alone(decoders, monkeypatch):
    search = begin(trials=2)
    study = Study(search)
    theirs = study.ask()
    waits = []

    def wait(worker: Worker, idle: bool) -> None:
        """The other worker ends while this one waits."""
        waits.append(idle)
        held.__exit__(None, None, None)
        evaluate(theirs.config, Models())
        study.tell(theirs, [0.5, 1.0])

    held = folder_of(theirs.config).locked()
    held.__enter__()
    monkeypatch.setattr(Worker, "wait", wait)
    told = [one for one in Worker(search, study).run() if one.words == theirs.words]
    assert told == [] and waits == [True] and len(study.complete()) == 2


def test_ctrl_c_ends_after_the_samples_in_hand_and_the_trial_goes_on(decoders, monkeypatch):
    from s2d2cli.runs import evaluate as module

    search = begin("batch_size=1", "decode.max_new_tokens=range(1,20)", trials=3)
    worker, usual = Worker(search, Study(search)), module.judged

    def judged(row, task, sample):
        worker.stop.requested = row["id"] == "echo/2" and len(decoders) == 2  # in the second trial
        return usual(row, task, sample)

    monkeypatch.setattr(module, "judged", judged)
    told = list(worker.run())
    assert [one.status for one in told] == ["done", "interrupted"]
    monkeypatch.setattr(module, "judged", usual)
    decoders.clear()
    again = work(search)
    assert [one.status for one in again] == ["done", "done"] and again[0].words == told[1].words
    decoded = [name for call in decoders[0].calls[1:] for name in call]
    assert decoded and "echo/2" not in decoded  # what was in hand when it was stopped is kept


def test_failed_settings_are_told_and_count(decoders, monkeypatch):
    monkeypatch.setattr(doubles.EchoDecoder, "check", refuse_long)
    told = work(begin(trials=8))
    failed = [one for one in told if one.status == "failed"]
    assert failed and all("RuntimeError: too long" in one.error for one in failed) and len(told) == 8
    assert work(begin(trials=8)) == []


def refuse_long(self, model, requests) -> None:
    if self.config.decode.max_new_tokens > 12:
        raise RuntimeError("too long")


def test_a_search_in_which_nothing_works_gives_up(decoders, monkeypatch):
    def broken(self, model, requests) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(doubles.EchoDecoder, "check", broken)
    with pytest.raises(ConfigError, match="first 3 settings of this search all failed, the last with RuntimeError: no"):
        work(begin(trials=8))


def test_a_torn_journal_goes_on(decoders):
    search = begin(trials=3)
    work(search)
    with (search.path / "journal.log").open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    assert len(work(begin(trials=5))) == 2


# What is taken over


def test_finished_runs_are_trials_that_cost_nothing(decoders):
    for length in (3, 7, 25):
        evaluate(compose(["task=echo", "limit=4", f"decode.max_new_tokens={length}"]), Models())
    evaluate(compose(["task=echo", "limit=3", "decode.max_new_tokens=5"]), Models())  # other samples
    search = begin(trials=4)
    study = Study(search)
    assert reuse(search, study) == 2 and study.spent() == 0  # 25 lies outside of the range
    assert reuse(search, study) == 0
    told = work(search)
    lengths = {word for one in told for word in one.words if word.startswith("decode.max")}
    assert len(told) == 4 and not lengths & {"decode.max_new_tokens=3", "decode.max_new_tokens=7"}
    assert len(study.complete()) == 6


def test_a_run_on_more_samples_takes_over_those_of_a_smaller_one(decoders):
    small, large = (compose(["task=echo", "batch_size=2", f"limit={limit}"]) for limit in (2, 5))
    evaluate(small, Models())
    assert inherit(large, small) == 2
    decoders.clear()
    outcome = evaluate(large, Models())
    assert outcome.resumed == 2 and outcome.record["n"] == 5 and outcome.record["resumed_with"] == []
    decoded = {name for decoder in decoders for call in decoder.calls[1:] for name in call}
    assert decoded == {"echo/2", "echo/3", "echo/4"}
    alone = evaluate(replace(large, results="alone"), Models())
    assert RunFolder(outcome.folder).rows() == RunFolder(alone.folder).rows()
    keys = ("run_id", "accuracy", "interval", "speed", "samples", "status", "config", "first_prompt")
    assert {key: outcome.record[key] for key in keys if key != "config"} == {
        key: alone.record[key] for key in keys if key != "config"
    }
    assert inherit(large, small) == 0  # begun already


def test_survivors_go_on_to_larger_limits(decoders):
    search = begin(trials=6, limits="2,4")
    told = work(search)
    first, further = ([one for one in told if one.limit == limit] for limit in (2, 4))
    assert len(first) == 6 and 1 <= len(further) <= 3
    rows = measured(search, [one.words for one in first], 2)
    best = rows[rows["front"]].sort_values("tokens_per_forward").iloc[-1]
    assert best["words"] in [one.words for one in further]
    assert further[0].record["inherited"]["samples"] == 2
    assert survivors(search, [one.words for one in first], 2) == [one.words for one in further]
    assert work(search) == further or [one.status for one in work(search)] == ["kept"] * len(further)


def test_a_worker_finds_its_search_in_its_folder(decoders, tmp_path, monkeypatch):
    search = begin(trials=3)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = read_search(tmp_path / search.path)
    assert Path.cwd() == tmp_path and len(work(found)) == 3
    assert found.asked == search.asked
    plain = json.loads((search.path / "search.json").read_text())
    (search.path / "search.json").write_text(json.dumps(plain | {"schema": 0}))
    with pytest.raises(ConfigError, match="must be the folder of a search"):
        read_search(search.path)


def test_the_shipped_space_is_valid():
    file = Path(__file__).parents[2] / "sweeps" / "routing_tiny.yaml"
    spaces = spaces_of(grids_of([], read(file)), {})
    assert [one.size for one in spaces] == [1, 18, 36, 72, 108]


# The command line

WORDS = ("search", "--task", "echo", "decode.max_new_tokens=range(1,20)")


def test_the_command_prints_the_front_with_a_command_for_each_point(s2d2, decoders):
    assert s2d2(*WORDS, "--trials", "5", "limit=4", "--dry-run") == 0 and s2d2.out == "" and decoders == []
    assert "5 trials among 19 combinations for accuracy (up) and tokens/forward (up), on 4 samples" in s2d2.err
    assert "decode.max_new_tokens=1..19 by 1" in s2d2.err
    assert s2d2(*WORDS, "--trials", "5", "limit=4") == 0
    assert "[5/5] done task=echo decode.max_new_tokens=" in s2d2.err
    front = s2d2.out.partition("The front of accuracy and tokens/forward on 4 samples:")[2].splitlines()[1:]
    assert front[0].startswith("accuracy 0.500 (0.150-0.850), tokens/forward ") and "% of bootstrap draws" in front[0]
    (html,) = Path("results/report").glob("search-*/report.html")
    assert "decode.max_new_tokens" in html.read_text()
    decoders.clear()
    assert s2d2(*front[1].split()[1:]) == 0 and "4 samples were there already" in s2d2.out  # that very run
    assert s2d2(*WORDS, "--trials", "5", "limit=4") == 0 and not any(len(one.calls) for one in decoders)


def test_the_command_says_when_the_ranges_are_used_up_and_what_failed(s2d2, decoders, monkeypatch):
    monkeypatch.setattr(doubles.EchoDecoder, "check", refuse_long)
    words = ("search", "--task", "echo", "decode.max_new_tokens=5,9,14", "limit=2")
    assert s2d2(*words, "--trials", "9") == 1
    assert "failed: task=echo decode.max_new_tokens=14: RuntimeError: too long" in s2d2.err
    assert "Only 3 trials: the ranges hold no other settings that are valid." in s2d2.err


def test_a_search_as_one_json_object(s2d2, decoders, monkeypatch):
    monkeypatch.setattr(doubles.EchoDecoder, "check", refuse_long)
    steps = ("decode.block_length=4,8", "decode.denoising_steps=4,8")  # four pairs, one of them invalid
    words = ("search", "--task", "echo", "decode.max_new_tokens=5,14", *steps, "limit=2", "--trials", "9", "--json")
    assert s2d2(*words) == 1 and "failed: " in s2d2.err
    told = json.loads(s2d2.out)
    kinds = [point["status"] for point in told["points"]]
    assert sorted(kinds) == ["done"] * 3 + ["failed"] * 3 and len(told["failed"]) == 3
    assert {one["error"] for one in told["failed"]} == {"RuntimeError: too long"}
    assert told["skipped"] and all("got 8" in one["reason"] for one in told["skipped"])
    measured = {point["run_id"]: point for point in told["points"] if point["status"] == "done"}
    assert told["front"] and set(told["front"]) <= measured.keys()
    assert all(point["n"] == 2 and point["tokens_per_s"] and point["accuracy"] == 0.5 for point in measured.values())
    assert (Path(told["report"]) / "report.html").is_file() and (Path(told["search"]) / "search.json").is_file()
    assert s2d2(*words, "--dry-run") == 2 and "leave one of them out" in s2d2.err


def test_limits_replace_the_limit_of_a_file(s2d2, decoders):
    Path("mine.yaml").write_text("overrides: [task=echo, limit=1]\ngrid: {decode.max_new_tokens: '4,8,12'}")
    assert s2d2("search", "./mine.yaml", "--limits", "2,4", "--trials", "3") == 0
    assert "on 2 then 4 samples" in s2d2.err and "on 4 samples:" in s2d2.out


def test_finished_runs_are_counted_aloud(s2d2, decoders):
    assert s2d2("sweep", "--task", "echo", "decode.max_new_tokens=3,5", "limit=4") == 0
    assert s2d2(*WORDS, "--trials", "2", "limit=4") == 0
    assert "2 finished runs lie in this space" in s2d2.err and "[2/2]" in s2d2.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["decode.max_new_tokens=5"], "nothing to choose from"),
        (["decode.max_new_tokens=5,6", "--objective", "speed"], "--objective must name two of accuracy"),
        (["decode.max_new_tokens=5,6", "--limits", "9,3"], "--limits must be rising"),
        (["decode.max_new_tokens=5,6", "limit=3", "--limits", "3,9"], "leave out limit"),
        (["paretto_tiny"], "did you mean 'pareto_tiny'"),
        (["router=min_spam,always"], "did you mean 'min_span'"),
        (["--worker", "nowhere"], "must be the folder of a search"),
    ],
)
def test_words_that_make_no_search(s2d2, decoders, words, sentence):
    assert s2d2("search", *words) == 2
    assert sentence in s2d2.err and "Traceback" not in s2d2.err and not Path("results").exists()


def test_data_that_are_missing_end_a_search_and_not_a_trial(s2d2, decoders):
    words = ("search", "--task", "echo", "task.code=true", "decode.max_new_tokens=5,6", "limit=2")
    assert s2d2(*words) == 2 and "--allow-code-execution" in s2d2.err
    assert s2d2(*words, "--allow-code-execution") == 0 and "failed" not in s2d2.err


@pytest.mark.slow
def test_two_processes_share_a_search_on_the_shipped_model(s2d2):
    words = ("search", "decoder=dynamic", "unmask.threshold=interval(0.5,1)", "-b", "4,8,16", "-n", "32")
    assert s2d2(*words, "--limits", "2,4", "--trials", "6", "--workers", "2") == 0
    (folder,) = Path("results/searches").iterdir()
    logs = [file.read_text() for file in sorted((folder / "logs").glob("*.log"))]
    lines = [line for log in logs for line in log.splitlines()]
    assert len(logs) == 2 and all(log.count("done") for log in logs)
    assert sum("limit=2:" in line and "done" in line for line in lines) == 6
    assert all(line in s2d2.err for line in lines)
    study = Study(read_search(folder))
    assert study.spent() == 6 and study.running() == []


# What it is for


def recorded_grid() -> dict[str, list[float]]:
    """Accuracy and tokens per forward of all of sweeps/routing_tiny.yaml, as scripts/search_gain.py measured them."""
    lines = (GOLDEN / "routing_tiny.csv").read_text().splitlines()[1:]
    return {name: [float(a), float(b)] for name, a, b in (line.split(",") for line in lines)}


def area(values, worst: tuple[float, float] = (0.0, 0.0)) -> float:
    return hypervolume([a for a, _ in values], [b for _, b in values], worst)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_quarter_of_a_grid_s_runs_reaches_its_front(seed):
    grid = recorded_grid()
    file = read(GOLDEN.parents[1] / "sweeps" / "routing_tiny.yaml")
    search = begin(f"seed={seed}", trials=len(grid) // 4, file=replace(file, overrides=["model=tiny"]))
    study, found = Study(search), []
    while (proposal := study.ask()) is not None:
        said = [word for word in proposal.words if word.partition("=")[0] not in NOT_VARIED]
        found.append(grid[" ".join(sorted(said))])
        study.tell(proposal, found[-1])
    worst = tuple(map(min, zip(*grid.values(), strict=True)))
    assert len(found) == 58
    assert area(found) >= 0.98 * area(grid.values())
    assert area(found, worst) >= 0.97 * area(grid.values(), worst)
