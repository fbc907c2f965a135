"""Where the real benchmark files are: `$S2D2_DATA`, else `shared/data` beside the repository; never committed."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = Path(os.environ.get("S2D2_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no benchmark files in {folder}; set S2D2_DATA to a folder that has them")
    return folder
