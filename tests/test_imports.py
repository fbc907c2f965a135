"""Who may import whom: arrows point down only, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "s2d2cli"
FILES = sorted(PACKAGE.rglob("*.py"))
BOTTOM = {
    "choose",
    "config",
    "overrides",
    "plain_yaml",
    "effect",
    "lossless",
    "plugins",
    "folders",
    "restore",
    "catalog",
    "values",
    "errors",
}
MAY_IMPORT = {  # layer -> the layers under it
    "cli": {"cli", "runs", "tasks", "decode", "models", "launchers"} | BOTTOM,
    "__main__": {"cli"},
    "api": {"runs", "tasks", "decode", "models"} | BOTTOM,
    "lm_eval": {"lm_eval", "runs", "decode", "models"} | BOTTOM,
    "runs": {"runs", "tasks", "decode", "models", "launchers"} | BOTTOM,
    "tasks": {"tasks"} | BOTTOM,
    "decode": {"decode", "models"} | BOTTOM,
    "models": {"models"} | BOTTOM,
    "choose": {"overrides", "folders", "errors"},
    "launchers": {"config", "overrides", "errors"},
    "config": {"choose", "overrides", "effect", "plugins", "folders", "values", "errors"},
    "effect": {"config"},  # for its types only
    "lossless": {"config"},  # the same
    "overrides": {"errors"},
    "plugins": {"errors"},
    "folders": {"errors"},
    "catalog": {"folders", "plugins"},
    "restore": {"config", "plugins", "errors"},
    "plain_yaml": set(),
    "values": set(),
    "errors": set(),
}
HEAVY = {
    "hydra": {"config", "launchers", "overrides"},
    "omegaconf": {"config", "overrides"},
    "transformers": {"models"},
}


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> list[str]:
    """Every module that a file imports, anywhere in it; `from s2d2cli import x` counts as s2d2cli.x."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    own = layer(path)
    if own == "__init__":
        return  # the public names of the whole package
    for name in imported(path):
        top, *rest = name.split(".")
        if top == "s2d2cli" and rest and rest[0] != "__version__":
            assert rest[0] in MAY_IMPORT[own], f"{own} must not import {name}"
        assert own in HEAVY.get(top, {own}), f"only {HEAVY.get(top)} may import {top}"
        assert top != "click", "typer brings its own"


def test_the_rule_sees_a_forbidden_import(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def f():\n    from s2d2cli.runs import store\n    import transformers.models\n")
    assert imported(file) == ["s2d2cli.runs.store", "transformers.models"]


def test_help_and_version_import_nothing_heavy():
    """typer#231: a completion that imports torch is no completion."""
    heavy = ("torch", "transformers", "hydra", "pandas", "numpy")
    script = (
        "import sys\n"
        "from s2d2cli.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        f"finally:\n    print('HEAVY', [m for m in {heavy} if m in sys.modules])"
    )
    for words in (["--help"], ["eval", "--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip().endswith("HEAVY []")
