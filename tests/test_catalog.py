"""The catalogue read from source says what the classes say."""

from __future__ import annotations

import sys
from dataclasses import MISSING, fields

import pytest
from omegaconf import MISSING as MUST_BE_GIVEN

from s2d2cli import catalog
from s2d2cli.config import DecodeConfig, ModelConfig, RunConfig, names_of, strategy, top_level_keys
from s2d2cli.plugins import NEEDED


def default(field):
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return None if value == MUST_BE_GIVEN else value


@pytest.mark.parametrize("group", catalog.GROUPS)
def test_names_are_those_that_can_be_chosen(group):
    found = catalog.choices(group)
    assert [choice.name for choice in found] == [name for name in names_of(group) if name not in TESTS_OWN]
    for choice in found:
        assert choice.about.endswith((".", "Chat")) or group == "model", f"{choice.origin} must say what it is"


TESTS_OWN = ("echo",)  # tests/runs/doubles.py


@pytest.mark.parametrize("group", catalog.STRATEGIES)
def test_settings_are_those_of_the_classes(group):
    for choice in catalog.choices(group):
        cls = strategy(group, choice.name)
        assert choice.settings == [
            catalog.Setting(f.name, default(f), f.type, choice.settings[number].about)
            for number, f in enumerate(fields(cls))
        ]
        assert choice.origin == sys.modules[cls.__module__].__file__


def test_the_tree_is_that_of_the_configuration():
    for part, cls in (("", RunConfig), ("model", ModelConfig), ("decode", DecodeConfig)):
        assert [setting.name for setting in catalog.tree()[part]] == [f.name for f in fields(cls)]
    plain = {s.name: s.default for s in catalog.tree()["decode"]}
    assert plain == {f.name: default(f) for f in fields(DecodeConfig)}
    about = {s.name: s.about for s in catalog.tree()["decode"]}
    assert about["top_k"] == "0 is off"


def test_groups_and_keys():
    assert set(catalog.STRATEGIES) == set(NEEDED)
    heads = {key.partition(".")[0] for key in catalog.keys({})}
    assert heads == set(top_level_keys())
    assert "router.tau_on" in catalog.keys({}) and "router.tau_on" not in catalog.keys({"router": "min_span"})


def test_a_plugin_file_is_read_and_not_run(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "raise SystemExit\n@register('router', 'mine')\n@dataclass\nclass Mine(Stateless):\n"
        '    """Verify on Mondays. Never else."""\n    day: int = 1  # Monday\n    verifies: ClassVar[bool] = True\n'
    )
    mine = next(choice for choice in catalog.choices("router", (file,)) if choice.name == "mine")
    assert mine.about == "Verify on Mondays." and mine.settings == [catalog.Setting("day", 1, "int", "Monday")]
    (tmp_path / "torn.py").write_text("def (")
    assert len(catalog.choices("router", (tmp_path / "torn.py",))) == len(catalog.choices("router"))
