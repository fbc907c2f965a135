"""A sweep on disk: `results/sweeps/<name>-<hash>/`, from which any process on any machine can take points.

    manifest.json   the points: run id, overrides, settings; replaced as a whole, so it is never torn
    claims/         who has which point in hand, see claims.py
    rows/           one file per process, a line per attempt at a point, see ledger.py
    logs/           what local workers print
    replaced/       runs of another version of the code, set aside by --strict-code

Samples stay in the run folders beside `sweeps/`, which go on inside a point. Nothing here imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from s2d2cli.errors import ConfigError
from s2d2cli.runs import files

SCHEMA = 1


@dataclass(frozen=True)
class Entry:
    """One point as workers see it."""

    run_id: str
    overrides: list[str]
    config: dict[str, Any]  # as `config.record` gives it
    model: str  # points of equal text can share a loaded model
    after: int = 0  # attempts up to this one are past, and do not count any more

    @property
    def words(self) -> str:
        return " ".join(self.overrides)


@dataclass(frozen=True)
class Manifest:
    entries: list[Entry]
    cwd: str = ""  # relative paths in the settings start from here
    plugins: list[dict[str, Any]] = field(default_factory=list)
    fail_fast: bool = False


@dataclass(frozen=True)
class SweepFolder:
    path: Path

    @property
    def results(self) -> Path:
        """Where the run folders are: a moved or mounted sweep finds them beside itself."""
        return self.path.parent.parent

    @property
    def stop(self) -> Path:
        """While this file is there, workers begin no further point: it reaches those that no signal reaches."""
        return self.path / "stop"

    def write(self, manifest: Manifest) -> None:
        for name in ("claims", "rows", "logs"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        plain = {"schema": SCHEMA, **asdict(manifest)}
        text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
        files.replace(self.path / "manifest.json", text)

    def read(self) -> Manifest:
        file = self.path / "manifest.json"
        try:
            return from_plain(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{str(self.path)!r} must be the folder of a sweep, as `s2d2 sweep` makes one; {reason(error, file)}"
            ) from error


def reason(error: Exception, file: Path) -> str:
    return f"{file.name}: {error.strerror}" if isinstance(error, OSError) else f"its {file.name} cannot be used"


def from_plain(plain: Mapping[str, Any]) -> Manifest:
    if plain["schema"] != SCHEMA:
        raise ValueError("another schema")
    known = {key: plain[key] for key in ("cwd", "plugins", "fail_fast")}
    return Manifest([Entry(**entry) for entry in plain["entries"]], **known)
