"""`--model` in words: a known name, a folder or a hub id. Hydra is imported only when it is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from s2d2cli.errors import CheckpointError, ConfigError
from s2d2cli.folders import files


def draft_choice(overrides: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """`draft_model=` takes what `--model` takes; every other override stays as it is."""
    kept: list[str] = []
    texts: dict[str, str] = {}
    for override in overrides:
        key, _, text = override.partition("=")
        if override == "draft_model=":
            kept.append("draft_model=null")
        elif key == "draft_model" and text != "null":
            words, found = model_choice(text.strip("'\""), key)
            kept += words
            texts |= found
        else:
            kept.append(override)
    return kept, texts


def model_choice(text: str, key: str = "model") -> tuple[list[str], dict[str, str]]:
    """`--model`: a known name (several for a sweep), a folder, or a hub id. `key` is the part of the configuration that
    it is for."""
    from s2d2cli.overrides import did_you_mean

    names, group = list(files("model")), "model" if key == "model" else f"model@{key}"
    if all(part in names for part in text.split(",")):
        return [f"{group}={text}"], {}
    folder = Path(text).expanduser()
    if text and folder.is_dir():
        return [f"{group}=custom", *(f"{key}.block_length={length}" for length in trained_length(folder))], {
            f"{key}.source": str(folder.resolve()),
            f"{key}.name": folder.resolve().name,
        }
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not text.startswith("."):
        return [f"{group}=custom"], {f"{key}.source": text, f"{key}.name": text.rpartition("/")[2]}
    if "/" in text or text.startswith("~"):
        raise CheckpointError(f"no folder {text!r}; give a folder with config.json and weights, or a hub id owner/name")
    near = did_you_mean(text, names)
    raise ConfigError(f"no {key} {text!r}: give a folder, a hub id owner/name, or one of {', '.join(names)}{near}")


def trained_length(folder: Path) -> list[int]:
    """The block length that the checkpoint says it was trained with, if it does. Whatever else is wrong with its files,
    the loader says."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        length = config["bd_size" if "bd_size" in config else "block_size"]  # Fast-dLLM v2 and SDAR name it so
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [length] if isinstance(length, int) else []
