"""The configuration tree, its registry, and `compose`: overrides in, a validated `RunConfig` out.

A strategy (router, estimator, unmask rule, verifier, task) is its own config: a dataclass registered beside its code
with `@register(group, name)`. Hydra composes the tree, OmegaConf turns every node back into an instance of its class.
Below this file and overrides.py nobody knows Hydra.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import MISSING, DictConfig, OmegaConf
from yaml import MarkedYAMLError, YAMLError

from s2d2cli import plugins
from s2d2cli.choose import draft_choice
from s2d2cli.effect import effective, without_effect
from s2d2cli.errors import ConfigError
from s2d2cli.folders import package_folder, user_folders
from s2d2cli.overrides import HYDRA_ERRORS, dotted_keys, explain, leaves, options, single, tidy
from s2d2cli.values import FROM_PROMPT, FULL_ATTENTION, VALUES

LOG = logging.getLogger(__name__)
STRATEGY_GROUPS = tuple(plugins.NEEDED)

T = TypeVar("T")


def register(group: str, name: str) -> Callable[[type[T]], type[T]]:
    """Make a dataclass selectable as `group=name`; its fields are its settings and hold their only defaults."""

    def store(cls: type[T]) -> type[T]:
        plugins.admit(group, name, cls)
        cls.kind = name  # type: ignore[attr-defined]
        ConfigStore.instance().store(group=group, name=name, node=cls)
        chosen.cache_clear()
        return cls

    return store


@dataclass
class ModelConfig:
    """Where a checkpoint comes from and what its files do not say."""

    name: str = MISSING
    source: str = MISSING  # folder, hub id, or "package:tiny" for the checkpoint inside the wheel
    family: str = "sdar"
    revision: str | None = None
    adapter: str | None = None  # a LoRA that is merged into the weights: folder or hub id; null: none
    adapter_revision: str | None = None
    mask_token: str | None = None  # null: what the checkpoint itself names
    stop_tokens: list[str] = field(default_factory=list)  # in addition to the checkpoint's own stop ids
    block_length: int = 4  # the block length it was trained with
    dtype: str = "bfloat16"  # what dtype=auto means on an accelerator


@dataclass
class DecodeConfig:
    """What every decoder shares."""

    block_length: int | None = None  # null: the model's trained block length
    sub_block_length: int | None = None  # null: none; parts of a block, each decided before the next, all of it visible
    denoising_steps: int | None = None  # null: the block length, i.e. at least one token a step
    max_new_tokens: int | None = None  # null: the task's length, 256 without a task
    temperature: float = 0.0  # 0 is greedy: argmax draft, exact acceptance, argmax replacement
    top_k: int = 0  # 0 is off
    top_p: float = 1.0  # 1 is off
    context: str | None = None  # how decided tokens attend; null: as the model was trained. See decode/layout.py
    commit: str = "pending"  # "separate" repeats the published pass per block that only writes the cache
    boundary: str = "verified"  # "published": in right-shifted models that pass gives the next block's first token
    cache: str = "none"  # context=full: what a step keeps of the last, all but "none" approximate. See decode/full.py


@dataclass
class RunConfig:
    """One run, completely: the hash of this tree is the run's name."""

    model: ModelConfig = field(default_factory=ModelConfig)
    draft_model: ModelConfig | None = None  # a second, smaller model of the same tokenizer, for decoders that use one
    draft_device: str = "auto"  # where it computes; "auto" is the device of the model
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    decoder: str = MISSING  # the preset's name; a label only
    unmask: Any = MISSING
    router: Any = MISSING
    estimator: Any = MISSING
    verifier: Any = MISSING
    task: Any = MISSING
    device: str = "auto"
    dtype: str = "auto"
    backend: str = "eager"
    threads: int = 0  # CPU threads; 0 chooses by the model's size, see models/__init__.py
    seed: int = 0
    limit: int | None = None
    repeats: int = 1  # how often each sample is decoded, each time with random numbers of its own
    batch_size: int = 8
    results: str = "results"


ConfigStore.instance().store(name="s2d2_schema", node=RunConfig)


class UserFolders(SearchPathPlugin):
    """Hydra looks into the user's folders first: their files shadow ours of the same name."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in reversed(user_folders()):
            search_path.prepend("s2d2-user", f"file://{folder}")


Plugins.instance().register(UserFolders)


@contextmanager
def hydra_session() -> Iterator[None]:
    """Hydra initialised on the user's folders and our `conf/`, whatever the working directory."""
    plugins.load_installed()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(package_folder("conf")), version_base="1.3", job_name="s2d2"):
        yield


def compose(
    overrides: Sequence[str] = (), texts: Mapping[str, str] | None = None, base: RunConfig | None = None
) -> RunConfig:
    """The configuration that Hydra composes from `overrides`, completed and checked.

    `texts` are values by dotted key that must arrive as typed (paths): they never meet Hydra's grammar. With `base`, a
    complete configuration, they are laid over it instead of over our defaults.
    """
    overrides, found = draft_choice(overrides)
    texts = found | dict(texts or {})
    with hydra_session():
        choices, values = single(overrides)
        try:
            node = deepcopy(chosen(tuple(choices), user_folders()))
            if base is not None:
                node = over(base, node, [choice.partition("=")[0].rpartition("@")[2] for choice in choices])
            for key, value in [*values, *((key, "") for key in texts)]:
                require(
                    not key.startswith("draft_model.") or node.draft_model is not None,
                    f"{key} is a setting of a draft model, and there is none; add draft_model=NAME (or folder, hub id)",
                )
                OmegaConf.update(node, key, value, merge=True)
            config = OmegaConf.to_object(node)
        except HYDRA_ERRORS as error:
            raise explain(error, *surroundings(choices)) from error
    assert isinstance(config, RunConfig)
    for key, text in texts.items():
        parent, _, name = key.rpartition(".")
        setattr(attrgetter(parent)(config) if parent else config, name, text)
    complete(config)
    validate(config)
    LOG.info("settings from %s: %s", [*map(str, user_folders()), str(package_folder("conf"))], [*overrides, *texts])
    return config


@cache
def chosen(choices: tuple[str, ...], folders: tuple[Path, ...]) -> DictConfig:
    """The tree under these group choices. Composing takes a tenth of a second, and a grid repeats few choices."""
    try:
        return hydra_compose("config", list(choices))
    except YAMLError as error:
        place = f"{error.problem_mark}".strip() if isinstance(error, MarkedYAMLError) else str(error)
        raise ConfigError(f"a configuration file must be YAML; it cannot be read {' '.join(place.split())}") from error


def over(base: RunConfig, node: DictConfig, groups: Sequence[str]) -> DictConfig:
    """`base` with the options that were chosen for these groups. A preset is refused: which of its settings are meant
    to replace those of the run cannot be told."""
    presets = [group for group in groups if group in ("decoder", "experiment")]
    require(
        not presets, f"--config holds a whole run, and {', '.join(presets)}= sets one up anew; leave one of them out"
    )
    laid: DictConfig = OmegaConf.structured(base)
    for group in groups:
        laid[group] = node[group]
    return laid


def surroundings(choices: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """For an error's sentence: every key that exists under these group choices, and each group's option."""
    try:
        node = chosen(tuple(choices), user_folders())
    except HYDRA_ERRORS:
        return [], {}
    kinds = {group: getattr(OmegaConf.get_type(node, group), "kind", "") for group in STRATEGY_GROUPS}
    return dotted_keys(node), {group: kind for group, kind in kinds.items() if kind}


def keys_under(choices: Sequence[str]) -> list[str]:
    """Every dotted key there is under these group choices; none when they do not go together."""
    with hydra_session():
        return surroundings(choices)[0]


def is_whole(key: str, choices: Sequence[str]) -> bool:
    """Whether `key`, under these group choices, takes integers only."""
    with hydra_session():
        node = deepcopy(chosen(tuple(choices), user_folders()))
        try:
            OmegaConf.update(node, key, 0.5)
        except HYDRA_ERRORS:
            return True
    return False


def top_level_keys() -> list[str]:
    """The first words that an override can begin with."""
    return [*(f.name for f in fields(RunConfig)), "experiment"]


def names_of(group: str) -> list[str]:
    """What `group=` can be set to."""
    with hydra_session():
        return options(group)


def strategy(group: str, name: str) -> type:
    """The class behind `group=name`."""
    found = ConfigStore.instance().repo.get(group, {}).get(f"{name}.yaml")
    if found is None:
        raise ConfigError(f"no {group}={name} in this version of s2d2, and no plugin that brings it was loaded")
    cls = OmegaConf.get_type(found.node)
    assert cls is not None
    return cls


def complete(config: RunConfig) -> None:
    """Fill in what follows from other settings, so that the record shows the value that was used."""
    decode = config.decode
    decode.block_length = config.model.block_length if decode.block_length is None else decode.block_length
    decode.context = trained_context(config) if decode.context is None else decode.context
    decode.denoising_steps = decode.block_length if decode.denoising_steps is None else decode.denoising_steps
    if decode.max_new_tokens is None:
        decode.max_new_tokens = getattr(config.task, "max_new_tokens", 256)
    for group in STRATEGY_GROUPS:
        fill_in = getattr(getattr(config, group), "complete", None)
        if fill_in is not None:
            fill_in(config)


def trained_context(config: RunConfig) -> str:
    return "full" if config.model.family in FULL_ATTENTION else "block"


def validate(config: RunConfig) -> None:
    """Refuse values out of range with one sentence each."""
    for key, value in leaves(asdict(config)):
        require(not isinstance(value, float) or math.isfinite(value), f"{key} must be a finite number, got {value}")
    decode = config.decode
    length, steps, tokens = decode.block_length, decode.denoising_steps, decode.max_new_tokens
    assert length is not None and steps is not None and tokens is not None, "complete() comes first"
    require(length >= 1, f"decode.block_length must be at least 1, got {length}")
    require(
        length == 1 or config.decoder != "autoregressive",
        f"decoder=autoregressive means decode.block_length=1, got {length}; choose another decoder for blocks",
    )
    require(
        1 <= steps <= length,
        f"decode.denoising_steps must lie between 1 and decode.block_length={length}, got {steps}; "
        f"leave it out for one step per position",
    )
    part = decode.sub_block_length
    require(
        part is None or (part >= 1 and length % part == 0),
        f"decode.sub_block_length must divide decode.block_length={length}, or be left out, got {part}",
    )
    require(
        decode.boundary != "published" or decode.commit == "separate",
        f"decode.boundary=published needs decode.commit=separate, got {decode.commit}",
    )
    require(tokens >= 1, f"decode.max_new_tokens must be at least 1, got {tokens}")
    require(decode.temperature >= 0, f"decode.temperature must be 0 (greedy) or more, got {decode.temperature}")
    require(decode.top_k >= 0, f"decode.top_k must be 0 (off) or more, got {decode.top_k}")
    require(0 < decode.top_p <= 1, f"decode.top_p must lie in (0, 1], got {decode.top_p}")
    for key, allowed in VALUES.items():
        value = attrgetter(key)(config)
        one_of(key, value.partition(":")[0] if key.endswith("device") else value, allowed)
    check_context(config)
    check_draft_model(config)
    most = 4 * (os.cpu_count() or 1)
    require(
        0 <= config.threads <= most,
        f"threads must lie between 0 (chosen by the model's size) and {most}, four per CPU core, got {config.threads}",
    )
    require(config.batch_size >= 1, f"batch_size must be at least 1, got {config.batch_size}")
    require(config.limit is None or config.limit >= 1, f"limit must be at least 1 or left out, got {config.limit}")
    require(config.repeats >= 1, f"repeats must be at least 1, got {config.repeats}")
    require(bool(config.results.strip()), f"results must name a folder, got {config.results!r}")
    for group in STRATEGY_GROUPS:
        check = getattr(getattr(config, group), "validate", None)
        if check is not None:
            check()
        fits = getattr(getattr(config, group), "check_run", None)
        if fits is not None:
            fits(config)
    require(
        config.repeats == 1 or "seed" not in without_effect(config),
        f"repeats={config.repeats} needs a decoder that draws at random, and this one gives the same answer each time; "
        f"set decode.temperature above 0, or leave repeats out",
    )


def check_context(config: RunConfig) -> None:
    family, context = config.model.family, config.decode.context
    trained = trained_context(config)
    require(
        trained != "full" or context == "full",
        f"decode.context must be full for model.family={family}, which attends fully and has no autoregressive mode, "
        f"got {context}; use decoder=static, sequential, dynamic or ssd",
    )
    require(
        trained == "full" or context != "full",
        f"decode.context=full is for models that attend fully (model.family={' or '.join(FULL_ATTENTION)}), got "
        f"model.family={family}; leave it out",
    )


def check_draft_model(config: RunConfig) -> None:
    """A decoder of two models needs the second one, and no other has a use for it."""
    kind, draft = getattr(config.verifier, "kind", "?"), config.draft_model
    needed = getattr(config.verifier, "uses_draft_model", False)
    require(
        draft is not None or not needed,
        f"verifier={kind} needs a draft model, and none is given; add draft_model=NAME, a folder or a hub id, of the "
        f"model's own tokenizer",
    )
    if draft is None:
        return
    require(
        needed,
        f"draft_model={draft.name} has no use under verifier={kind}; leave it out, or use decoder=draft_target or "
        f"simsd",
    )
    for one in (config.model, draft):
        require(
            one.family not in FROM_PROMPT,
            f"two models must both attend by blocks that are counted from the sequence's beginning, and {one.name} "
            f"(model.family={one.family}) does not; use models of another family",
        )


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ConfigError(sentence)


def need(what: str, preset: str, *needs: tuple[str, Any, Any]) -> None:
    """Refuse a strategy whose surroundings, (key, value, needed value), are not what it needs."""
    for key, value, needed in needs:
        wanted = "null" if needed is None else needed
        require(
            value == needed,
            f"{what} needs {key}={wanted}, got {value}; leave it out: decoder={preset} has that by itself",
        )


def one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    require(value in allowed, f"{key} must be one of {', '.join(allowed)}, got {value!r}")


def record(config: RunConfig) -> dict[str, Any]:
    """The whole configuration as plain JSON values; a strategy also says which one it is, under `kind`."""
    plain = asdict(config)
    for group in STRATEGY_GROUPS:
        node = getattr(config, group)
        if is_dataclass(node):
            plain[group] = {"kind": getattr(node, "kind", None), **plain[group], **plugins.mark(type(node))}
    plain["task"].setdefault("version", getattr(config.task, "version", None))  # a changed protocol is another run
    return plain


def run_id(config: RunConfig) -> str:
    """Twelve hex digits that name the settings. Labels and places (decoder, results) do not count, nor does what has no
    effect: an estimator that nobody asks makes no other run."""
    effect = effective(record(config), without_effect(config))
    semantic = tidied({k: v for k, v in effect.items() if k not in ("decoder", "results")})
    canonical = json.dumps(semantic, sort_keys=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def tidied(plain: Any) -> Any:
    """A tree of plain values with its floats as a reader would write them: 0.30000000000000004 and 0.3 are one run."""
    if isinstance(plain, dict):
        return {key: tidied(value) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [tidied(value) for value in plain]
    return tidy(plain) if isinstance(plain, float) else plain
