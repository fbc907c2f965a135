"""A page for a browser in one file: a folder of assets, and data that travel as JSON without a "<". What comes from
outside can so never become markup, and the page's script writes it as text only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import s2d2cli


def filled(name: str, data: Any) -> str:
    """`assets/NAME/page.html` with style, script and data in their places."""
    assets = Path(s2d2cli.__file__).parent / "assets" / name
    parts = {part: (assets / f"page.{part}").read_text(encoding="utf-8") for part in ("css", "js")}
    parts["data"] = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    text = (assets / "page.html").read_text(encoding="utf-8")
    for part, content in parts.items():
        text = text.replace(f"/*{part}*/", content, 1)
    return text
