"""A seventh router from outside the package: one file, no edit."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from s2d2cli import plugins
from s2d2cli.config import compose, names_of, run_id
from s2d2cli.errors import ConfigError
from tests.test_cli import s2d2 as s2d2

ROUTER = '''
from dataclasses import dataclass

from torch import Tensor

from s2d2cli.config import register
from s2d2cli.decode.routers import Stateless
from s2d2cli.decode.state import BlockState, DraftStep


@register("router", "{name}")
@dataclass
class Mine(Stateless):
    """Verify each `field`-th step of a block."""

    field: int = 2

    def decide(self, draft: DraftStep, state: BlockState) -> Tensor:
        return state.block_step_B % self.field == 0
'''


@pytest.fixture(autouse=True)
def forget(forget_plugins): ...


@pytest.fixture
def plugin(tmp_path):
    """A router of this test's own name, in a file."""
    name = f"mine_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:6]}"
    file = tmp_path / "router=mine, v1.py"
    file.write_text(ROUTER.format(name=name))
    return SimpleNamespace(file=file, name=name)


def test_a_seventh_router(s2d2, plugin):
    words = ("--plugins", str(plugin.file), f"router={plugin.name}", "router.field=3", "-n", "12")
    assert s2d2("generate", "How many are 2 and 3 apples?", *words, "--json") == 0
    assert json.loads(s2d2.out)["forwards"]["verify"] >= 1
    assert s2d2("eval", "--limit", "2", *words, "--json") == 0
    run = json.loads(s2d2.out)
    digest = hashlib.sha256(plugin.file.read_bytes()).hexdigest()
    assert {"origin": str(plugin.file), "sha256": digest} in run["plugins"]
    assert run["config"]["router"] == {"kind": plugin.name, "field": 3, "plugin_sha256": digest}
    assert 0 < run["speed"]["verified"] < run["speed"]["drafted_steps"]
    assert s2d2("sweep", f"router={plugin.name}", "router.field=1,2", "--plugins", str(plugin.file), "--dry-run") == 0
    assert len(s2d2.out.splitlines()) == 2
    assert s2d2("arness", *words[:4], "--limit", "1", "-n", "4", "decoder=s2d2") == 0
    assert s2d2("generate", "hi", *words[:2], f"router={plugin.name}", "router.feild=3") == 2
    assert f"no 'feild' in router ({plugin.name}); did you mean 'router.field'?" in s2d2.err


def test_an_edited_file_makes_another_run(plugin):
    plugins.load([plugin.file])
    before = run_id(compose([f"router={plugin.name}"]))
    plugins.load([plugin.file])
    assert run_id(compose([f"router={plugin.name}"])) == before
    plugin.file.write_text(plugin.file.read_text().replace("field: int = 2", "field: int = 5"))
    plugins.load([plugin.file])
    config = compose([f"router={plugin.name}"])
    assert config.router.field == 5 and run_id(config) != before


def test_the_entry_point_group(monkeypatch, tmp_path):
    """As if a package named s2d2-seventh were installed."""
    (tmp_path / "seventh_router.py").write_text(ROUTER.format(name="seventh"))
    monkeypatch.syspath_prepend(str(tmp_path))
    from importlib.metadata import EntryPoint

    point = EntryPoint("seventh", "seventh_router", "s2d2.plugins")
    vars(point).update(dist=SimpleNamespace(name="s2d2-seventh", version="1.2"))
    asked = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: asked.append(group) or [point])
    plugins.load_installed.cache_clear()
    assert "seventh" in names_of("router") and compose(["router=seventh"]).router.field == 2
    assert set(asked) == {"s2d2.plugins"} and len(asked) == 1
    assert plugins.LOADED["seventh_router"] == plugins.Plugin("seventh = seventh_router (s2d2-seventh 1.2)", None)


def test_a_broken_package_is_named(monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("bad", "no_such_module_here", "s2d2.plugins")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    plugins.load_installed.cache_clear()
    with pytest.raises(ConfigError, match="the installed plugin bad = no_such_module_here .* cannot be loaded: Module"):
        compose([])
    plugins.load_installed.cache_clear()
    monkeypatch.undo()
    compose([])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\nclass A(:\n", "line 2: SyntaxError: invalid syntax"),
        ("import json\n\n\njson.loads('{')\n", "line 4: JSONDecodeError: Expecting property name"),
        ("import nowhere_to_be_found", "line 1: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        (
            "from s2d2cli.config import register\n@register('rooter', 'x')\nclass A: ...",
            "the group of @register must be one of unmask, router",
        ),
        ("from s2d2cli.config import register\n@register('router', 'x')\nclass A: ...", "A must be a dataclass: put"),
        (ROUTER.replace("(Stateless)", ""), "a router must have start, decide, observe, keep, enter; Mine lacks start"),
        (ROUTER.replace("{name}", "always"), "router=always is taken by s2d2cli.decode.routers; register Mine under"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
    ],
)
def test_errors_name_file_and_line(s2d2, tmp_path, text, sentence):
    file = tmp_path / "p.py"
    file.write_text(text)
    assert s2d2("generate", "hi", "--plugins", str(file)) == 2
    assert s2d2.err.startswith(f"error: the plugin {file}, line ") and sentence in s2d2.err
    assert s2d2.err.count("\n") == 1 and not [name for name in sys.modules if name.startswith("s2d2_plugin_p_")]
    assert compose(["router=always"]).router.__class__.__module__ == "s2d2cli.decode.routers"


def test_an_error_while_decoding_names_the_plugin(s2d2, plugin):
    plugin.file.write_text(ROUTER.format(name=plugin.name).replace("% self.field", "% self.wrong"))
    words = ("--plugins", str(plugin.file), f"router={plugin.name}", "-n", "8", "--limit", "2")
    told = f"the plugin {plugin.file}, line 19: AttributeError: 'Mine' object has no attribute 'wrong'"
    assert s2d2("eval", *words) == 1
    assert s2d2.err.splitlines()[-1] == f"error: {told} (--debug shows the traceback)"
    assert s2d2("sweep", *words) == 1 and told in s2d2.err


def test_a_file_that_is_not_there(s2d2):
    assert s2d2("eval", "--plugins", "nowhere.py") == 2
    assert s2d2.err == "error: cannot read the plugin 'nowhere.py': No such file or directory\n"
    assert Path.cwd().exists()
