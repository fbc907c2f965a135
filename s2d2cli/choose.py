"""`--model` in words: a known name, a folder or a hub id. Hydra is imported only when it is asked."""

from __future__ import annotations

import json
import re
from pathlib import Path

from s2d2cli.errors import CheckpointError, ConfigError


def model_choice(text: str) -> tuple[list[str], dict[str, str]]:
    """`--model`: a known name (several for a sweep), a folder, or a hub id."""
    from s2d2cli.config import names_of
    from s2d2cli.overrides import did_you_mean

    names = names_of("model")
    if all(part in names for part in text.split(",")):
        return [f"model={text}"], {}
    folder = Path(text).expanduser()
    if text and folder.is_dir():
        return ["model=custom", *trained_length(folder)], {
            "model.source": str(folder.resolve()),
            "model.name": folder.resolve().name,
        }
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not text.startswith("."):
        return ["model=custom"], {"model.source": text, "model.name": text.rpartition("/")[2]}
    if "/" in text or text.startswith("~"):
        raise CheckpointError(f"no folder {text!r}; give a folder with config.json and weights, or a hub id owner/name")
    near = did_you_mean(text, names)
    raise ConfigError(f"no model {text!r}: give a folder, a hub id owner/name, or one of {', '.join(names)}{near}")


def trained_length(folder: Path) -> list[str]:
    """The block length that the checkpoint says it was trained with, if it does. Whatever else is wrong with its files,
    the loader says."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        length = config["bd_size" if "bd_size" in config else "block_size"]  # Fast-dLLM v2 and SDAR name it so
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [f"model.block_length={length}"] if isinstance(length, int) else []
