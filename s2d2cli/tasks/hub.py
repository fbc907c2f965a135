"""Data sets of the Hugging Face hub, through `datasets` and its cache; HF_HUB_OFFLINE and HF_HOME are its own."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from s2d2cli.errors import TaskDataError


@dataclass(frozen=True)
class Hub:
    """Which part of a hub data set is meant."""

    config: str | None
    split: str = "test"


def fetch(dataset: str, hub: Hub, revision: str | None) -> tuple[list[dict[str, Any]], str]:
    """The rows, and where they came from as `id@commit`."""
    try:
        from datasets import load_dataset

        with errors_only("huggingface_hub"):  # it would print each of its attempts; what came of them is said here
            table = load_dataset(dataset, hub.config, split=hub.split, revision=revision)
        rows = [dict(row) for row in table]
    except Exception as error:  # no address, no such part, a loading script: each library has its own kinds
        reason = " ".join(str(error).split())
        raise TaskDataError(
            f"the data set {dataset} ({hub.config}, {hub.split}) must come from the Hugging Face hub, "
            f"which failed ({reason}); go online once, or give a local file as task.data=PATH.jsonl"
        ) from error
    commit = resolved_revision(table)
    if commit and revision and re.fullmatch("[0-9a-f]{7,40}", revision) and not commit.startswith(revision):
        raise TaskDataError(  # `datasets` falls back to what it has, whatever was asked for
            f"the data set {dataset} must be of revision {revision}, the copy in the cache is of {commit}; "
            f"go online once, or ask for {dataset}@{commit}"
        )
    return rows, f"{dataset}@{commit or revision or 'unknown'}"


@contextmanager
def errors_only(name: str) -> Iterator[None]:
    """A library's warnings are not printed meanwhile."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def resolved_revision(table: Any) -> str | None:
    """The commit that was fetched; unlike a tag, it cannot move.

    It stands in the addresses of the files; newer versions of `datasets` do not keep those, but name a folder after it.
    """
    places = [*(table.info.download_checksums or ()), *(file["filename"] for file in table.cache_files)]
    found = re.search(r"[@/\\]([0-9a-f]{40})[/\\]", " ".join(places))
    return found.group(1) if found else None
