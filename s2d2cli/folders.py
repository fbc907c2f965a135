"""Where configuration files lie: ours, and the user's folders that add to them and shadow them.

A user's folder is laid out as conf/ is (model/, decoder/, experiment/, router/, ...), with sweeps/ beside those. The
folders are named by --config-dir and by S2D2_CONFIG_DIR, and nowhere else: a file that nobody named must not change a
score. `use` writes to the variable too, so that worker processes search the same places.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from s2d2cli.errors import ConfigError

VARIABLE = "S2D2_CONFIG_DIR"
PARTS = ("model", "decoder", "experiment", "unmask", "router", "estimator", "verifier", "task", "sweeps")


def package_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside the package when installed from a wheel, beside it in a checkout."""
    here = Path(__file__).resolve().parent
    checkout = here.parent
    return (checkout if (checkout / "pyproject.toml").is_file() else here) / name


def user_folders() -> tuple[Path, ...]:
    """The user's folders, the first one winning; each must be there and hold something that is read."""
    folders = [Path(word).expanduser().absolute() for word in os.environ.get(VARIABLE, "").split(os.pathsep) if word]
    for folder in folders:
        if not any((folder / part).is_dir() for part in PARTS):
            found = "there is none of them" if folder.is_dir() else "it is not there"
            raise ConfigError(
                f"a folder of --config-dir or {VARIABLE} must hold one of {'/, '.join(PARTS)}/; "
                f"{str(folder)!r}: {found}"
            )
    return tuple(folders)


def use(folders: Sequence[Path]) -> None:
    """From now on search these before the ones named so far."""
    words = [str(folder.expanduser().absolute()) for folder in folders]
    strange = [word for word in words if os.pathsep in word]
    if strange:
        raise ConfigError(f"a folder of --config-dir must have no {os.pathsep!r} in its name, got {strange[0]!r}")
    known = os.environ.get(VARIABLE, "").split(os.pathsep)
    os.environ[VARIABLE] = os.pathsep.join([*words, *(word for word in known if word and word not in words)])
    user_folders()


def files(part: str) -> dict[str, Path]:
    """The files of `model`, `sweeps`, ... by name; a user's file hides ours of the same name."""
    ours = package_folder("sweeps") if part == "sweeps" else package_folder("conf") / part
    found: dict[str, Path] = {}
    for folder in (ours, *(folder / part for folder in reversed(user_folders()))):
        found |= {file.stem: file for file in folder.glob("*.yaml")}
    return dict(sorted(found.items()))
