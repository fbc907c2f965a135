"""Sweep strings and sweep files as points."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2d2cli.config import hydra_session, run_id
from s2d2cli.errors import ConfigError
from s2d2cli.folders import package_folder
from s2d2cli.overrides import axes, product
from s2d2cli.runs.grid import Grid, SweepFile, combinations, default_file, find, has_axis, read
from s2d2cli.runs.sweep import plan


def expand(*words: str) -> list[list[str]]:
    with hydra_session():
        return list(product(axes(words)))


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=1,2", ["1", "2"]),
        ("seed=choice(1,2)", ["1", "2"]),
        ("seed=range(1,10,3)", ["1", "4", "7"]),
        ("x=range(0.1,0.35,0.1)", ["0.1", "0.2", "0.3"]),  # not 0.30000000000000004
        ("seed=sort(3,1,2)", ["1", "2", "3"]),
        ("model.stop_tokens=[a],[b,c]", ["[a]", "[b,c]"]),
        ("decoder=glob(s*,exclude=s2*)", ["sequential", "simsd", "ssd", "static"]),
        ("seed=1", ["1"]),
        ("name='a,b'", ["'a,b'"]),
    ],
)
def test_sweep_strings(word, values):
    key = word.partition("=")[0]
    assert expand(word) == [[f"{key}={value}"] for value in values]


def test_grid_is_complete_and_in_reading_order():
    """wandb#11445: a nested grid whose first parameter never varied."""
    assert expand("seed=1,2", "limit=7,8,9") == [[f"seed={a}", f"limit={b}"] for a in (1, 2) for b in (7, 8, 9)]


@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 6)), min_size=1, max_size=6, unique=True))
@settings(max_examples=25, deadline=None)
def test_floats_arrive_as_typed(values):
    words = expand("decode.temperature=" + ",".join(map(repr, values)))
    assert [float(word.partition("=")[2]) for (word,) in words] == values


def test_a_key_given_again_replaces_the_earlier_one():
    assert expand("seed=1,2", "limit=3", "seed=5") == [["limit=3", "seed=5"]]


def test_invalid_points_are_left_out_and_equal_ones_run_once():
    planned = plan(expand("decode.block_length=4,8", "decode.denoising_steps=4,8"), {})
    assert [(p.config.decode.block_length, p.config.decode.denoising_steps) for p in planned.points] == [
        (4, 4),
        (8, 4),
        (8, 8),
    ]
    assert [s.overrides for s in planned.skipped] == [["decode.block_length=4", "decode.denoising_steps=8"]]
    assert "must lie between 1 and decode.block_length=4, got 8" in planned.skipped[0].reason
    same = plan([["limit=1"], ["limit=1", "decode.block_length=16"], ["limit=2"]], {})
    assert [p.config.limit for p in same.points] == [1, 2] and same.duplicates == 1
    assert len({p.run_id for p in planned.points}) == 3 and planned.points[0].run_id == run_id(planned.points[0].config)


@pytest.mark.parametrize(
    ("words", "valid", "skipped"),
    [
        (["router=min_span,always", "router.tau_span=1,2"], 2, 2),  # a key that another axis value does not have
        (["decode.block_length=4,8", "decode.denoising_steps=2,8,12"], 3, 3),
        (["router=hysteresis", "router.tau_on=-2,0", "router.tau_off=-1,-3"], 3, 1),
    ],
)
def test_what_is_invalid_by_combination_only_is_left_out(words, valid, skipped):
    planned = plan(expand(*words), {})
    assert (len(planned.points), len(planned.skipped)) == (valid, skipped)


def test_what_is_invalid_in_each_of_its_points_is_refused():
    for words in (["seed=1,2", "router.tau_span=2"], ["router=min_span,always", "router.tau_span=0,1"]):
        with pytest.raises(ConfigError, match="^router.tau_span"):
            plan(expand(*words), {})
    with pytest.raises(ConfigError, match="^model.source must be given"):
        plan(expand("model=tiny,custom"), {})
    assert len(plan(expand("model=custom", "model.source=a,b"), {}).points) == 2


def test_one_autoregressive_point_whatever_the_block_length():
    words = ["decode.block_length=4,8", "decoder=s2d2,autoregressive", "decode.denoising_steps=2", "limit=5,6"]
    planned = plan(expand(*words), {})
    alone = [p.overrides for p in planned.points if p.config.decode.block_length == 1]
    assert alone == [["decoder=autoregressive", "limit=5"], ["decoder=autoregressive", "limit=6"]]
    assert len(planned.points) == 6 and planned.skipped == [] and planned.duplicates == 0
    assert planned.cleared == ["decode.block_length=4", "decode.denoising_steps=2", "decode.block_length=8"]


def test_runs_that_share_a_model_stand_together():
    planned = plan(expand("limit=1,2", "model=tiny,sdar-8b"), {})
    assert [(p.config.model.name, p.config.limit) for p in planned.points] == [
        ("tiny", 1),
        ("tiny", 2),
        ("sdar-8b", 1),
        ("sdar-8b", 2),
    ]


FILE = SweepFile(
    "f",
    ["limit=9", "task=tiny_math"],
    [
        Grid({"decoder": "autoregressive"}),
        Grid({"decoder": "dynamic", "unmask.threshold": "0.5,0.9"}),
        Grid({"decoder": "s2d2", "router": "always,min_span", "decode.block_length": "4,8"}),
    ],
)


def test_file_alone():
    points = combinations([], FILE)
    assert points[0] == ["limit=9", "task=tiny_math", "decoder=autoregressive"]
    assert len(points) == 1 + 2 + 4 and points[-1][2:] == ["decoder=s2d2", "router=min_span", "decode.block_length=8"]


def test_typed_words_replace_what_the_file_has_and_otherwise_hold_for_all():
    points = combinations(["limit=3", "seed=1,2", "router=always", "decode.block_length=16"], FILE)
    assert len(points) == (1 + 2 + 1) * 2
    assert all("limit=3" in point and "limit=9" not in point for point in points)
    # router and block length have their place in one grid, so the other grids stay as they are
    assert [("router=always" in p, "decode.block_length=16" in p) for p in points[::2]] == [(False, False)] * 3 + [
        (True, True)
    ]


def test_the_baseline_keeps_clear_of_settings_about_blocks():
    points = combinations(["decode.denoising_steps=2", "estimator.beta=2"], FILE)
    assert points[0] == ["limit=9", "task=tiny_math", "decoder=autoregressive"]
    assert all("decode.denoising_steps=2" in point for point in points[1:])


@pytest.mark.parametrize("file", sorted(package_folder("sweeps").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_sweep_composes(file):
    planned = plan(combinations([], read(file)), {})
    # in routers_tiny four routers ask for no estimate, so both estimators are one point, at three block lengths
    assert planned.skipped == [] and planned.duplicates == (12 if file.stem == "routers_tiny" else 0)
    assert planned.points[0].config.decoder == "autoregressive"  # the baseline of the speed-ups
    models = {p.config.model.name for p in planned.points}
    assert models == {"tiny"} or (file.stem == "families_tiny" and all(name.startswith("tiny") for name in models))
    if file.stem.startswith("router_"):
        router = file.stem.removeprefix("router_")
        kinds = {p.config.router.kind for p in planned.points[1:]}
        assert router in kinds and kinds <= {router, "always"}  # what it has to keep up with may stand beside it


def test_pareto_tiny_covers_the_demo():
    points = plan(combinations([], find("pareto_tiny")), {}).points
    dynamic = {
        (p.config.decode.block_length, p.config.unmask.threshold) for p in points if p.config.decoder == "dynamic"
    }
    assert dynamic == {(length, t) for length in (4, 8, 16) for t in (0.5, 0.7, 0.9)}
    verified = {(p.config.decode.block_length, p.config.router.kind) for p in points if p.config.decoder == "s2d2"}
    assert verified == {(length, router) for length in (4, 8, 16) for router in ("always",)}


def test_routers_tiny_covers_six_routers_three_lengths_two_estimators():
    points = plan(combinations([], find("routers_tiny")), {}).points
    assert len(points) == 1 + 12 + 4 * 3 + 2 * 3 * 2 and {p.config.limit for p in points} == {None}
    estimators: dict[str, set[str]] = {}
    for point in points[13:]:
        estimators.setdefault(point.config.router.kind, set()).add(point.config.estimator.kind)
    assert {router for router, kinds in estimators.items() if len(kinds) == 2} == {"score_threshold", "hysteresis"}
    assert set(estimators) == {"never", "always", "min_span", "score_threshold", "hysteresis", "ucb"}


def test_hysteresis_as_typed():
    points = plan(expand("router=hysteresis", "router.tau_on=0,1,2", "router.tau_off=-5,-2"), {}).points
    found = [(p.config.router.tau_on, p.config.router.tau_off) for p in points]
    assert found == [(on, off) for on in (0.0, 1.0, 2.0) for off in (-5.0, -2.0)]
    planned = plan(expand("router=hysteresis", "router.tau_on=0,1", "router.tau_off=-1,0"), {})
    assert len(planned.points) == 3
    assert [s.reason for s in planned.skipped] == ["router.tau_off must be below router.tau_on=0.0, got 0.0"]


def test_router_without_a_grid_of_its_own_gets_the_default_one():
    assert default_file("min_span").name == "router_min_span"
    assert default_file("mine").name == default_file(None).name == "default"
    points = combinations(["router=mine"], default_file("mine"))
    assert "router=mine" not in points[0] and all("router=mine" in point for point in points[1:])


def test_what_is_an_axis():
    assert has_axis(["seed=1,2"]) and has_axis(["router=glob(*)"])
    assert not has_axis(["router=always", "model.stop_tokens=[a,b]"]) and not has_axis([])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("grid: [", "cannot be read"),
        ("[1, 2]", "found list"),
        ("grids: {a: 1}", "another shape"),
        ("overrides: a=1", "another shape"),
        ("gird: {a: 1}", "found gird"),
        ("", "found NoneType"),
    ],
)
def test_malformed_files(tmp_path, text, sentence):
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        find(str(file))


def test_yaml_values_become_sweep_strings(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("grid: {a: [1, 0, true, null, x], b: 0.5, c: '1,2', d: [[1, 2], [3]]}")
    assert read(file).grids == [Grid({"a": "1,0,true,null,x", "b": "0.5", "c": "1,2", "d": "[1, 2],[3]"})]
    assert math.prod(map(len, axes_of(read(file)).values())) == 5 * 2 * 2


def axes_of(file: SweepFile):
    with hydra_session():
        return axes(f"{key}={value}" for key, value in file.grids[0].axes.items())
