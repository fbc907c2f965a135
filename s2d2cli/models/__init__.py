"""Models: `load_model(config)` turns a checkpoint folder or hub id into a `ModelAdapter`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from s2d2cli.config import ModelConfig, RunConfig
from s2d2cli.errors import CheckpointError, ConfigError, S2D2Error
from s2d2cli.models import dream, fast_dllm_v2, llada, llada2, sdar
from s2d2cli.models.adapter import ModelAdapter, Vocabulary
from s2d2cli.models.checkpoint import find_folder, load_weights, read_json, weights
from s2d2cli.models.lora import CONFIG, FILES, Lora
from s2d2cli.models.memory import need_memory
from s2d2cli.values import FULL_ATTENTION, RIGHT_SHIFTED, WHOLE_PROMPT

__all__ = ["ModelAdapter", "load_model", "pick_device"]

LOG = logging.getLogger(__name__)
ALL_THREADS = torch.get_num_threads()
UNLIMITED = 1 << 40  # tokens; the decoder checks lengths itself, and in a sentence of its own
SMALL = 20_000_000  # parameters; below, the forwards are too short to share out: threads would wait for each other


@dataclass(frozen=True)
class Family:
    """What differs between the formats of checkpoints."""

    build_network: Callable[[dict[str, Any], torch.device], Any]  # config.json as it is; weights on the meta device
    native: Callable[[Iterator[tuple[str, Tensor]], Any], Iterator[tuple[str, Tensor]]] = lambda tensors, _: tensors
    exact: tuple[str, ...] = ()  # parts of names of tensors that stay in float32
    commits_last: bool = True  # see models/adapter.py


FAMILIES = {
    "sdar": Family(sdar.build_network),
    "fast_dllm_v2": Family(fast_dllm_v2.build_network),
    "dream": Family(dream.build_network),
    "llada": Family(llada.build_network, llada.native),
    "d2f_dream": Family(dream.build_network),
    "d2f_llada": Family(llada.build_network, llada.native),
    "llada2": Family(llada2.build_network, llada2.native, llada2.EXACT, commits_last=False),
}


def load_model(config: RunConfig) -> ModelAdapter:
    """Load `config.model` on `config.device` in `config.dtype`, and beside it `config.draft_model` if there is one; the
    same path for `tiny`, a folder and a hub id."""
    device = pick_device(config.device)
    adapter = load(config.model, device, config)
    if config.draft_model is not None:
        place = device if config.draft_device == "auto" else pick_device(config.draft_device, "draft_device")
        try:
            adapter.draft_model = load(config.draft_model, place, config)
        except S2D2Error as error:
            raise type(error)(f"the draft model {config.draft_model.name}: {error}") from error
        need_same_vocabulary(adapter, adapter.draft_model)
    small = adapter.network.num_parameters() < SMALL
    torch.set_num_threads(config.threads or (1 if small else ALL_THREADS))
    return adapter


def load(model: ModelConfig, device: torch.device, config: RunConfig) -> ModelAdapter:
    """One of the run's models."""
    if model.family not in FAMILIES:
        raise ConfigError(f"model.family must be one of {', '.join(FAMILIES)}, got {model.family!r}")
    folder = find_folder(model.source, model.revision, ["config.json", CONFIG])
    need_no_adapter(folder)
    settings = read_json(folder, "config.json", required=True)
    family = FAMILIES[model.family]
    network = build_network(family, settings, device, folder)
    dtype = pick_dtype(config.dtype, model, device)
    need_memory(model.name, network, dtype, device)
    folder, adapter_folder = find_folder(model.source, model.revision), find_adapter(model)
    tensors = weights(folder, dtype, device, family.exact)
    if adapter_folder is not None:
        tensors = Lora(adapter_folder).merged(tensors)
    load_weights(network, family.native(tensors, network), folder)
    where = f"{folder} with {adapter_folder}" if adapter_folder else folder
    LOG.info("%s from %s, %s on %s", model.name, where, str(dtype).removeprefix("torch."), device)
    tokenizer = load_tokenizer(folder)
    settings["vocab_size"] = network.config.vocab_size
    vocabulary = special_ids(model, folder, settings, tokenizer)
    adapter = ModelAdapter(model.name, network, vocabulary, tokenizer, int(model.family in RIGHT_SHIFTED))
    adapter.commits_last = family.commits_last
    adapter.attends_fully = model.family in FULL_ATTENTION
    adapter.whole_prompt = model.family in WHOLE_PROMPT
    return adapter


def need_no_adapter(folder: Path) -> None:
    """An adapter is no model of its own."""
    if (folder / CONFIG).is_file() and not (folder / "config.json").is_file():
        base = read_json(folder, CONFIG).get("base_model_name_or_path")
        raise CheckpointError(
            f"{folder} holds a LoRA adapter, not a model; give it as model.adapter, and the model that it changes"
            f"{f' ({base})' if base else ''} as --model"
        )


def find_adapter(model: ModelConfig) -> Path | None:
    """The folder of the model's LoRA, if it has one."""
    return find_folder(model.adapter, model.adapter_revision, FILES, "adapter") if model.adapter else None


def need_same_vocabulary(target: ModelAdapter, draft: ModelAdapter) -> None:
    """Refuse a draft model whose token ids mean something else. Stop tokens may differ: only the target's count."""
    ours, theirs = target.vocabulary, draft.vocabulary
    for what, here, there in (
        ("vocabulary size", ours.size, theirs.size),
        ("mask id", ours.mask_id, theirs.mask_id),
    ):
        if here != there:
            raise CheckpointError(
                f"a draft model must have the {what} of its target, and {draft.name} has {there} where {target.name} "
                f"has {here}; use a smaller model of the same family"
            )
    known = [model.tokenizer.get_vocab() for model in (target, draft) if model.tokenizer is not None]
    if len(known) == 2 and known[0] != known[1]:
        token, number = sorted(known[0].items() ^ known[1].items())[0]
        raise CheckpointError(
            f"a draft model must have the tokenizer of its target, and {draft.name} and {target.name} differ, first in "
            f"{token!r} (id {number}); use a smaller model of the same family"
        )


def build_network(family: Family, settings: dict[str, Any], device: torch.device, folder: Path) -> Any:
    try:
        return family.build_network(settings, device)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"config.json in {folder} does not describe a network ({type(error).__name__}: {reason})"
        ) from error


def pick_device(name: str, key: str = "device") -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"{key}=cuda needs a CUDA device and a CUDA build of torch; none is here, use {key}=cpu")
    return torch.device(name)


def pick_dtype(name: str, model: ModelConfig, device: torch.device) -> torch.dtype:
    """`auto` is float32 on a CPU, where halves are slow, and the model's own choice elsewhere."""
    if name == "auto":
        name = "float32" if device.type == "cpu" else model.dtype
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def load_tokenizer(folder: Path) -> Any | None:
    """The folder's fast tokenizer, without remote code; None when the folder has no tokenizer files."""
    from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

    if (folder / "tokenizer.json").is_file():
        kind = PreTrainedTokenizerFast
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        kind = Qwen2Tokenizer
    else:
        return None
    try:
        return kind.from_pretrained(folder, model_max_length=UNLIMITED)
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise CheckpointError(
            f"the tokenizer files in {folder} cannot be read ({type(error).__name__}: {error})"
        ) from error


def special_ids(model: ModelConfig, folder: Path, settings: dict[str, Any], tokenizer: Any | None) -> Vocabulary:
    """Mask and stop ids from the checkpoint and the model's config, checked against the vocabulary."""
    size = settings["vocab_size"]
    stops = ids_of(read_json(folder, "generation_config.json").get("eos_token_id")) + ids_of(
        settings.get("eos_token_id")
    )
    stops += [token_id(tokenizer, token, "stop token") for token in model.stop_tokens]
    vocabulary = Vocabulary(size, mask_id_of(model, settings, tokenizer), tuple(sorted(set(stops))))
    for name, value in [("mask token", vocabulary.mask_id), *(("stop token", stop) for stop in vocabulary.stop_ids)]:
        if not 0 <= value < size:
            raise CheckpointError(f"the {name}'s id must be below the vocabulary size {size}, got {value} in {folder}")
    return vocabulary


def mask_id_of(model: ModelConfig, settings: dict[str, Any], tokenizer: Any | None) -> int:
    if model.mask_token is not None:
        return token_id(tokenizer, model.mask_token, "mask token")
    named = settings.get("mask_token_id")
    if named is None:
        named = getattr(tokenizer, "mask_token_id", None)
    if named is None:
        raise CheckpointError(
            f"model {model.name} names no mask token in config.json or tokenizer, so it cannot decode by diffusion; "
            f"set model.mask_token to the token that stands for a mask"
        )
    if not isinstance(named, int):
        raise CheckpointError(f"mask_token_id must be a token id, the checkpoint of model {model.name} has {named!r}")
    return named


def token_id(tokenizer: Any | None, token: str, what: str) -> int:
    if tokenizer is None or token not in tokenizer.get_vocab():
        raise CheckpointError(f"the {what} {token!r} must be in the checkpoint's tokenizer; it is not")
    return int(tokenizer.convert_tokens_to_ids(token))


def ids_of(value: Any) -> list[int]:
    """Checkpoints write one id, a list of ids, or nothing."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(one, int) for one in ids):
        raise CheckpointError(f"eos_token_id must be a token id, a list of them, or null; the checkpoint has {value!r}")
    return ids
