"""AR-ness against the examples of DiffuCoder's definition and of our notes on it."""

from __future__ import annotations

import csv
import itertools
import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2d2cli.config import compose
from s2d2cli.runs.arness import expected_global, expected_local, groups, left_to_right, measure
from s2d2cli.runs.labels import config_of, labels
from s2d2cli.runs.orders import Decoded, order
from tests.test_cli import s2d2 as s2d2

# The definition, word for word, for an order without ties


def local(order: list[int], k: int) -> float:
    times = range(k, len(order))
    return statistics.fmean(
        {order[t - j] for j in range(1, k + 1)} == {order[t] - j for j in range(1, k + 1)} for t in times
    )


def global_(order: list[int], k: int) -> float:
    return statistics.fmean(p in sorted(set(order) - set(order[:t]))[:k] for t, p in enumerate(order))


def steps_of(order: list[int]) -> list[int]:
    """The reveal step of each position, for positions revealed in this order."""
    return [order.index(position) for position in range(len(order))]


def all_orders(steps: list[int]) -> list[list[int]]:
    """Every order of the positions that keeps the order of the steps."""
    choices = [itertools.permutations(group) for group in groups(steps)]
    return [list(itertools.chain(*parts)) for parts in itertools.product(*choices)]


@given(st.permutations(range(7)), st.integers(1, 5))
def test_without_ties_it_is_the_definition(order, k):
    assert expected_local(steps_of(order), k) == pytest.approx(local(order, k))
    assert expected_global(steps_of(order), k) == pytest.approx(global_(order, k))


@given(st.lists(st.integers(0, 4), min_size=6, max_size=6), st.integers(1, 4))
def test_expected_is_the_mean_over_all_orders_within_the_steps(steps, k):
    orders = all_orders(steps)
    assert expected_local(steps, k) == pytest.approx(statistics.fmean(local(order, k) for order in orders))
    assert expected_global(steps, k) == pytest.approx(statistics.fmean(global_(order, k) for order in orders))


def test_an_order_that_the_decoder_knows_leaves_no_ties(s2d2, tmp_path):
    """SSD decides several tokens in a step, in the order of one-token decoding: the two score alike, from runs and from
    traces, and nobody is told that verified tokens came left to right."""
    words = ("task=tiny_math", "limit=3", "-b", "8", "--results", str(tmp_path / "runs"))
    for name in ("static", "ssd"):
        assert s2d2("eval", f"decoder={name}", *words, "--trace", str(tmp_path / f"{name}.jsonl")) == 0
    for paths in ([tmp_path / "runs"], [tmp_path / "ssd.jsonl", tmp_path / "static.jsonl"]):
        assert s2d2("arness", *map(str, paths), "--json") == 0
        found = {one["decoder"].split()[0]: one for one in json.loads(s2d2.out)["measured"]}
        assert found["ssd"]["levels"] == found["static"]["levels"]
        assert found["ssd"]["tokens_per_step"] > 1.2 and found["static"]["tokens_per_step"] == 1
        assert s2d2("arness", *map(str, paths)) == 0 and "left to right by construction" not in s2d2.out


@given(st.lists(st.integers(0, 4), min_size=6, max_size=6), st.integers(1, 4))
def test_optimistic_reads_each_step_from_the_left(steps, k):
    read = [position for group in groups(steps) for position in sorted(group)]
    assert expected_local(left_to_right(steps), k) == pytest.approx(local(read, k))
    assert expected_global(left_to_right(steps), k) == pytest.approx(global_(read, k))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
def test_left_to_right_is_one(k):
    assert expected_global(range(9), k) == expected_local(range(9), k) == 1


def test_order_1_0_2_has_local_2_by_sets():
    """The set definition: {p1, p0} = {0, 1} = {2 - 1, 2 - 2} at the last step, whatever their order."""
    steps = steps_of([1, 0, 2])
    assert expected_local(steps, 2) == 1 and expected_local(steps, 1) == 0
    assert expected_global(steps, 1) == pytest.approx(2 / 3) and expected_global(steps, 2) == 1


def test_reversed_blocks_of_four_have_global_4():
    steps = steps_of([3, 2, 1, 0, 7, 6, 5, 4])
    assert expected_global(steps, 4) == 1 and expected_global(steps, 1) == 2 / 8 and expected_local(steps, 1) == 0


def test_a_step_that_reveals_all_four():
    """Index order gives 1.0; random order of four has global@1 H_4 / 4 = 0.52 and local@1 1/4."""
    together = [0, 0, 0, 0]
    read = left_to_right(together)
    assert expected_local(read, 1) == expected_global(read, 1) == 1
    assert expected_global(together, 1) == pytest.approx(25 / 48) and expected_local(together, 1) == pytest.approx(
        1 / 4
    )


def test_too_short_for_k_has_no_local_score():
    assert expected_local([0, 1], 2) is None and expected_local([0, 1, 2], 2) == 1


# Measuring


def source(*steps: list[int], words: tuple[str, ...] = ("decoder=static", "decode.block_length=4")) -> Decoded:
    config = compose(list(words))
    return Decoded("here", config_of(config), [order(4, s, config.decode.block_length) for s in steps])


def test_blocks_follow_the_grid_of_positions():
    assert order(6, range(7), 4).blocks == [1, 1, 2, 2, 2, 2, 3]


def test_measure_averages_over_samples_and_leaves_short_ones_out():
    (measured,) = measure([source([0, 1, 2, 3], [1, 0], [])])
    assert (measured.n, measured.tokens, measured.tokens_per_step) == (2, 6, 1)
    assert measured.levels[0].global_optimistic == measured.levels[0].global_expected == 0.75
    assert [level.local_n for level in measured.levels] == [2, 1, 1, 0]
    assert measured.levels[3].local_optimistic is None and measured.levels[1].local_optimistic == 1


def test_chance_is_random_order_inside_the_blocks():
    (level,) = measure([source(list(range(16)))], [1])[0].levels
    assert level.global_optimistic == 1 and level.global_chance == pytest.approx(25 / 48)
    (alone,) = measure([source(list(range(16)), words=("decoder=autoregressive",))], [1])[0].levels
    assert alone.global_chance == alone.local_chance == 1


def test_nothing_decoded_has_no_score():
    (measured,) = measure([source([])])
    assert measured.n == 0 and measured.tokens_per_step is None and measured.levels[0].global_expected is None


def test_labels_name_what_differs_among_those_of_a_name():
    words = [
        ("decoder=static", "decode.block_length=8"),
        ("decoder=dynamic", "unmask.threshold=0.5"),
        ("decoder=dynamic", "unmask.threshold=0.9", "batch_size=2"),
        ("decoder=s2d2", "decode.block_length=8"),
    ]
    assert labels([config_of(compose(list(one))) for one in words]) == [
        "static block=8",
        "dynamic block=16 threshold=0.5",
        "dynamic block=16 threshold=0.9",
        "s2d2 always block=8",
    ]


# The command


RUN = ("--limit", "3", "-n", "24", "-b", "8", "task=tiny_math")


def levels(s2d2, *words: str) -> list[dict]:
    assert s2d2("arness", *words, "--json") == 0, s2d2.err
    return [{k: v for k, v in one.items() if k != "origin"} for one in json.loads(s2d2.out)["measured"]]


def test_stored_runs_and_traces_give_what_decoding_gives(s2d2):
    decoders = ("decoder=dynamic", "decoder=s2d2")
    for name in decoders:
        assert s2d2("eval", name, *RUN, "--trace", f"{name[8:]}.jsonl") == 0
    now = levels(s2d2, "decoder=dynamic,s2d2", *RUN, "--k", "1,8")
    assert [one["decoder"] for one in now] == ["dynamic block=8", "s2d2 always block=8"]
    assert [level["k"] for level in now[0]["levels"]] == [1, 8] and all(one["n"] == 3 for one in now)
    assert now[1]["levels"][0]["local_optimistic"] == 1 > now[0]["levels"][0]["local_optimistic"]
    assert levels(s2d2, "results", "--k", "8,1,1") == now
    assert levels(s2d2, "dynamic.jsonl", "s2d2.jsonl", "--k", "1,8") == now
    both = Path("dynamic.jsonl").read_text() + Path("s2d2.jsonl").read_text()
    Path("both.jsonl").write_text(both)
    assert levels(s2d2, "both.jsonl", "--k", "1,8") == now


def test_an_edited_token_counts_by_its_first_reveal(s2d2):
    """Runs, traces and decoding now agree, and the edits are told beside the scores."""
    editing = ("decoder=dynamic", "unmask=edit_tokens", "unmask.threshold=0.1", "unmask.edit_threshold=0.3")
    assert s2d2("eval", *editing, *RUN, "--trace", "edits.jsonl") == 0
    (stored,) = levels(s2d2, "results")
    assert [stored] == levels(s2d2, "edits.jsonl") == levels(s2d2, *editing, *RUN)
    assert stored["edits"] > 0 and s2d2("arness", "edits.jsonl") == 0
    assert f"{stored['edits']} edits of {stored['tokens']} tokens, which count by their first reveal." in s2d2.out
    entry = json.loads(Path("edits.jsonl").read_text().splitlines()[0])
    edited = next(token for step in entry["steps"] for token in step["tokens"] if token["source"] == "edited")
    assert edited["reason"] == "edited" and edited["was"] != edited["token"]


def test_a_trace_of_a_typed_prompt_is_of_no_task(s2d2):
    assert s2d2("generate", "1+1=", "-n", "8", "--trace", "own.jsonl") == 0
    assert s2d2("arness", "own.jsonl") == 0
    assert "AR-ness@k, own prompts on tiny" in s2d2.out


def test_the_table_says_what_its_words_mean_and_files_are_written(s2d2):
    assert s2d2("eval", "decoder=s2d2", *RUN) == 0
    assert s2d2("arness", "results", "--k", "2,16", "--out", "plots") == 0
    assert "tiny_math on tiny" in s2d2.out and "s2d2 always block=8" in s2d2.out
    for words in ("local@k: share of", "expected score of random order", "with router=always this measures the router"):
        assert words in s2d2.out
    assert "\x1b" not in s2d2.out
    with open("plots/arness.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["decoder"], row["k"]) for row in rows] == [("s2d2 always block=8", "2"), ("s2d2 always block=8", "16")]
    assert float(rows[0]["local_optimistic"]) == 1
    assert Path("plots/arness.png").read_bytes()[:4] == b"\x89PNG" and "<svg" in Path("plots/arness.svg").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--k", "0,1"], "--k takes whole numbers from 1"),
        (["--k", "two"], "--k takes whole numbers from 1, as in --k 1,2,4,8; got 'two'"),
        (["nowhere"], "no run folder or trace file 'nowhere'"),
        (["empty"], "must be a run's folder or hold some"),
        (["empty", "decoder=static"], "what is stored is measured as it is, so 'decoder=static' cannot go with empty"),
        (["empty", "-b", "4"], "so 'decode.block_length=4' cannot go with empty"),
        (["strange.jsonl"], "strange.jsonl, line 1: this is no line of a trace, or one of an older s2d2"),
        (["torn.jsonl"], "torn.jsonl, line 1: a trace must hold a JSON object per sample"),
        (["hollow.jsonl"], "a trace must hold a sample, and hollow.jsonl holds none"),
        (["decoder=dynamic,statik"], "did you mean 'static'?"),
    ],
)
def test_mistakes(s2d2, words, sentence):
    Path("empty").mkdir()
    Path("strange.jsonl").write_text('{"id": "a", "steps": []}\n')
    Path("torn.jsonl").write_text('{"id": "a", \n')
    Path("hollow.jsonl").write_text("")
    assert s2d2("arness", *words) == 2 and sentence in s2d2.err, s2d2.err


def test_a_run_of_older_rows_is_told(s2d2):
    assert s2d2("eval", "decoder=static", *RUN) == 0
    (file,) = Path("results").glob("*/samples.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({k: v for k, v in row.items() if k != "reveal_steps"}) + "\n" for row in rows))
    assert s2d2("arness", "results") == 2 and "must have reveal_steps, and some have none" in s2d2.err
