"""zip, exclude, include and repeat in sweep files."""

from __future__ import annotations

import pytest

from s2d2cli.errors import ConfigError
from s2d2cli.runs.grid import SweepFile, combinations, find
from s2d2cli.runs.sweep import plan


@pytest.fixture
def sweep_file(tmp_path):
    def write(text: str) -> SweepFile:
        (tmp_path / "mine.yaml").write_text(text)
        return find(str(tmp_path / "mine.yaml"))

    return write


def test_zipped_axes_move_together(sweep_file):
    file = sweep_file("""
        grid:
          seed: 1,2
        zip:
          router.tau_on: [0, 1, 2]
          router.tau_off: range(-5,-2)
    """)
    points = combinations([], file)
    assert len(points) == 6 and points[1] == ["seed=1", "router.tau_on=1", "router.tau_off=-4"]
    typed = combinations(["router.tau_on=7"], file)
    assert len(typed) == 6 and typed[2] == ["seed=1", "router.tau_on=7", "router.tau_off=-3"]


def test_several_zips_and_one_for_a_grid_alone(sweep_file):
    file = sweep_file("""
        grids:
          - decoder: autoregressive
          - decoder: s2d2
            zip: [{decode.block_length: "4,8", batch_size: "16,8"}, {seed: "1,2", limit: "5,6"}]
    """)
    points = combinations([], file)
    assert points[0] == ["decoder=autoregressive"] and len(points) == 1 + 2 * 2
    assert points[-1] == ["decoder=s2d2", "decode.block_length=8", "batch_size=8", "seed=2", "limit=6"]
    assert combinations(["decode.block_length=32"], file)[0] == ["decoder=autoregressive"]


def test_what_agrees_with_all_keys_of_an_exclude_is_left_out(sweep_file):
    file = sweep_file("""
        overrides: [task=tiny_math]
        grid: {decode.block_length: "4,8,16", unmask.threshold: "0.5,0.90"}
        exclude:
          - {decode.block_length: 16, unmask.threshold: 0.90}
          - {decode.block_length: "4,8", unmask.threshold: 0.5}
    """)
    points = [point[1:] for point in combinations([], file)]
    assert points == [
        ["decode.block_length=4", "unmask.threshold=0.9"],
        ["decode.block_length=8", "unmask.threshold=0.9"],
        ["decode.block_length=16", "unmask.threshold=0.5"],
    ]


def test_included_points_come_besides(sweep_file):
    file = sweep_file("""
        overrides: [limit=3]
        grid: {decode.block_length: "4,8"}
        exclude: [{decode.block_length: 8}]
        include: [{decode.block_length: 8, router: never}, {decoder: autoregressive}]
    """)
    points = combinations([], file)
    assert points == [
        ["limit=3", "decode.block_length=4"],
        ["limit=3", "decode.block_length=8", "router=never"],
        ["limit=3", "decoder=autoregressive"],
    ]


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("[7, 9]", [7, 9])])
def test_every_point_with_every_seed(sweep_file, text, seeds):
    file = sweep_file(f"""
        overrides: [decode.temperature=1]
        grid: {{decode.block_length: "4,8"}}
        repeat: {text}
    """)
    planned = plan(combinations([], file), {})
    assert sorted({point.config.seed for point in planned.points}) == seeds
    assert len(planned.points) == 2 * len(seeds)
    assert {point.config.seed for point in plan(combinations(["seed=5"], file), {}).points} == {5}
    greedy = plan(combinations(["decode.temperature=0"], file), {})
    assert len(greedy.points) == 2 and greedy.duplicates == 2 * len(seeds) - 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("grid: {}\nzip: {seed: '1,2', limit: '1,2,3'}", "seed has 2, limit has 3"),
        ("grid: {}\nzip: 3", "zip must be `key: value` or a list of such, got 3"),
        ("grid: {}\nexclude: {seed: 1}", "exclude has another shape"),
        ("grid: {}\nexclude: [3]", "exclude must be `key: value` or a list of such"),
        (
            "grid: {decode.block_length: '4,8'}\nexclude: [{decode.blocklength: 4}]",
            "did you mean 'decode.block_length'",
        ),
        ("grid: {}\ninclude: [x]", "include must be `key: value`"),
        ("grid: {}\nrepeat: 0", "repeat must be a number of seeds or a list of them, got 0"),
        ("grid: {}\nrepeat: true", "repeat must be a number"),
        ("grid: {}\nrepeat: [a]", "repeat must be a number"),
        ("grid: {}\ngrids: []", "grid beside grids"),
        ("grids: [3]", "one of its grids has another shape"),
    ],
)
def test_slips_of_the_pen(sweep_file, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        combinations([], sweep_file(text))
