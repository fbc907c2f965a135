"""Checkpoint folders: find them (package, disk or hub), read their JSON files, load their safetensors."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from s2d2cli.errors import CheckpointError

FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt"]
BESIDE_WEIGHTS = (
    *("config.json", "generation_config.json", "chat_template.jinja"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"),
)
MIB, WINDOWS = 1 << 20, 16
LOG = logging.getLogger(__name__)


def find_folder(source: str, revision: str | None, files: Sequence[str] = FILES, what: str = "model") -> Path:
    """The folder of `source`: "package:NAME", an existing folder, or a hub id (`files` of it downloaded, or from the
    hub's cache). `what` it is, errors say."""
    if source.startswith("package:"):
        return Path(__file__).resolve().parent.parent / "assets" / source.removeprefix("package:")
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or source.startswith(("~", ".")) or source.count("/") != 1:
        raise CheckpointError(
            f"the {what} must be a folder or a hub id such as JetLM/SDAR-8B-Chat; no folder {source!r}"
        )
    return download(source, revision, files, what)


def download(repository: str, revision: str | None, files: Sequence[str], what: str) -> Path:
    """From the hub or its cache. HF_HUB_OFFLINE, HF_TOKEN and HF_HOME mean what they mean to the hub's own tools."""
    from huggingface_hub import snapshot_download

    try:
        if any(name.endswith(".safetensors") for name in files):
            announce(repository, revision, files)
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(files)))
    except (OSError, ValueError) as error:  # every hub error derives from one of these
        raise CheckpointError(f"{what} {repository!r} {reason(error, revision)}") from error


def announce(repository: str, revision: str | None, files: Sequence[str]) -> None:
    """How much is about to be downloaded; nothing when all is there, or the hub does not tell."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.utils import tqdm

    class Silent(tqdm):  # type: ignore[misc]
        """The hub draws a bar for its look at the files, too."""

        def __init__(self, *words: Any, **settings: Any) -> None:
            super().__init__(*words, **{**settings, "disable": True})

    if constants.HF_HUB_OFFLINE:
        return
    try:
        found = snapshot_download(
            repository, revision=revision, allow_patterns=list(files), dry_run=True, tqdm_class=Silent
        )
    except (OSError, ValueError):  # the download will say why, or do with what is there
        return
    due = sum(file.file_size or 0 for file in found if file.will_download)
    if due:
        LOG.warning("downloading %s: %s", repository, f"{due / 1e9:.1f} GB" if due >= 1e9 else f"{due / 1e6:.1f} MB")


def reason(error: Exception, revision: str | None) -> str:
    """Why a model cannot be had from the hub, and what to do."""
    from huggingface_hub import constants, errors, get_token

    token = "the token in use has no access" if get_token() else "no token is set"
    if isinstance(error, errors.GatedRepoError):
        return f"is gated, and {token}; accept its terms on the hub, then `hf auth login`, or set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"is neither a local folder nor on the hub, or it is private and {token}; check the id, "
            f"and for a private one `hf auth login`, or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"has no revision {revision!r} on the hub; a revision is a branch, a tag or a commit"
    if isinstance(error, errors.HFValidationError):
        return "is neither a local folder nor a hub id such as JetLM/SDAR-8B-Chat"
    pinned = f" at revision {revision!r}" if revision else ""
    if isinstance(error, (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError)) and constants.HF_HUB_OFFLINE:
        return (
            f"is not in the hub's cache{pinned}, and HF_HUB_OFFLINE forbids a download; "
            f"unset it, or give the model's folder"
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        return (
            f"is not in the hub's cache{pinned}, and the hub cannot be reached; "
            f"check the network, or give the model's folder"
        )
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"is not to be had from the hub ({said}); check the network and the disk, or give the model's folder"


def read_json(folder: Path, name: str, required: bool = False) -> dict[str, Any]:
    path = folder / name
    if not path.is_file():
        if required:
            raise CheckpointError(f"a checkpoint folder must hold {name}; there is none in {folder}")
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} must be JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def shard_names(folder: Path) -> list[str]:
    """File names of the weights: the index's shards, or the single file."""
    index = read_json(folder, "model.safetensors.index.json")
    if index and not isinstance(index.get("weight_map"), dict):
        raise CheckpointError(f"model.safetensors.index.json in {folder} must hold a weight_map; download it again")
    names = sorted(set(index["weight_map"].values())) if index else ["model.safetensors"]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"weights are missing from {folder}: {', '.join(missing)}; download the checkpoint again")
    return names


def fingerprint(folder: Path) -> dict[str, dict[str, Any]]:
    """Which checkpoint lies in `folder`, without loading it: size and digest of every file that shapes an answer."""
    return digests(folder, [*shard_names(folder), *(name for name in BESIDE_WEIGHTS if (folder / name).is_file())])


def digests(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Size and digest of each of these files."""
    stats = {name: (folder / name).stat() for name in names}
    return {
        name: {"size": stat.st_size, "sha256": digest(folder / name, stat.st_size, stat.st_mtime_ns)}
        for name, stat in stats.items()
    }


@cache
def digest(path: Path, size: int, changed_ns: int) -> str:
    """sha256 of the whole file, or of a large one's size and 16 MiB of it: first, last and 14 evenly between."""
    if size <= WINDOWS * MIB:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for number in range(WINDOWS):
            file.seek(number * (size - MIB) // (WINDOWS - 1))
            found.update(file.read(MIB))
    return found.hexdigest()


def weights(
    folder: Path, dtype: torch.dtype, device: torch.device, exact: tuple[str, ...] = ()
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the checkpoint by name, one at a time, in `dtype` on `device`; in float32 those whose names hold
    one of `exact`."""
    for name in shard_names(folder):
        try:
            with safe_open(str(folder / name), framework="pt") as shard:
                for key in shard.keys():  # noqa: SIM118  (safe_open is not a dict)
                    precise = any(part in key for part in exact)
                    yield key, shard.get_tensor(key).to(device, torch.float32 if precise else dtype)
        except SafetensorError as error:
            raise CheckpointError(f"{folder / name} cannot be read ({error}); download the checkpoint again") from error


def load_weights(network: nn.Module, tensors: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Assign `tensors` to the weights of `network` (built on the meta device); every name and shape must fit."""
    expected = {name: tensor.shape for name, tensor in network.state_dict().items()}
    state = dict(tensors)
    tied = "lm_head.weight" not in state and getattr(network.config, "tie_word_embeddings", False)
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    unknown, missing = sorted(state.keys() - expected.keys()), sorted(expected.keys() - state.keys())
    misshapen = sorted(key for key in state.keys() & expected.keys() if state[key].shape != expected[key])
    for what, names in (("unknown", unknown), ("missing", missing), ("misshapen", misshapen)):
        if names:
            raise CheckpointError(
                f"the weights in {folder} do not fit its config.json: {len(names)} {what}, first {names[0]}"
            )
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)
