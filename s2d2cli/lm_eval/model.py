"""The model `s2d2` of lm-eval; importing this module registers it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from s2d2cli import __version__, models
from s2d2cli.choose import model_choice
from s2d2cli.config import RunConfig, compose, record, validate
from s2d2cli.decode import Decoder, Generation, Request, build_decoder
from s2d2cli.errors import ConfigError, MissingExtraError
from s2d2cli.lm_eval.wishes import Wishes, agreed, cut, read_wishes
from s2d2cli.runs.prompts import Tally

try:
    import lm_eval.models  # noqa: F401  (lm-eval registers its own models only while it knows none)
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from tqdm import tqdm
except ImportError as missing:
    raise MissingExtraError(f"s2d2cli.lm_eval needs lm-eval ({missing}); pip install 's2d2[lm-eval]'") from missing

LENGTH = "decode.max_new_tokens"
NEW_TOKENS = 256  # lm-eval's own, where neither the task nor the user says
THEIR_DEVICE = "cuda:0"  # what lm-eval's command line says when the user says nothing
OF_EVAL = ("task", "limit", "repeats", "results", "batch_size", "device")  # lm-eval has its own words for them


@dataclass
class Job:
    """Requests that are decoded under the same settings, each with its place among all."""

    decoder: Decoder
    places: list[tuple[int, Request]] = field(default_factory=list)

    def results(self, model: models.ModelAdapter, width: int) -> Iterator[tuple[int, Generation]]:
        """Each place's generation as soon as it is done; prompts of similar length together."""
        place_of = {request.sample_id: place for place, request in self.places}
        ordered = sorted((request for _, request in self.places), key=lambda request: len(request.prompt_ids))
        for generation in self.decoder.session(model, ordered, width).results():
            yield place_of[generation.sample_id], generation


@register_model("s2d2")
class S2D2(LM):  # type: ignore[misc]
    """`model` and the settings are those of the command line: S2D2("tiny", decoder="s2d2", **{"decode.top_k": 5})."""

    def __init__(
        self, model: str = "", batch_size: int | str | None = None, device: str | None = None, **settings: Any
    ) -> None:
        super().__init__()
        self.settings = settings
        self.config = configuration(model, batch_size, device, settings)
        self.model = models.load_model(self.config)
        self.tally = Tally()

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Answers in the order of `requests`. Stop strings are cut off afterwards: what follows was decoded too."""
        answers = [""] * len(requests)
        jobs = self.jobs(requests)
        with tqdm(total=len(requests), disable=disable_tqdm, desc="s2d2") as progress:
            for job in jobs:
                for place, generation in job.results(self.model, self.config.batch_size):
                    self.tally.add(generation)
                    answers[place] = self.answer(requests[place], generation.token_ids)
                    progress.update(1)
        return answers

    def answer(self, request: Any, token_ids: list[int]) -> str:
        text = cut(self.model.text(token_ids), request.args[1].get("until"))
        self.cache_hook.add_partial("generate_until", request.args, text)
        return text

    def jobs(self, requests: list[Any]) -> list[Job]:
        """All prompts, checked before the first is decoded.

        A random stream has the name of its task, its document and its repetition: whatever else is asked for along
        with it, the answer stays the same.
        """
        jobs: dict[Wishes, Job] = {}
        seen: Counter[str] = Counter()
        for place, request in enumerate(requests):
            prompt, asked = request.args
            wishes = read_wishes(request.task_name, asked)
            if wishes not in jobs:
                jobs[wishes] = Job(self.decoder(request.task_name, wishes))
            name = f"{request.task_name}/{request.doc_id}"
            seen[name] += 1
            sample_id = name if seen[name] == 1 else f"{name}/{seen[name]}"
            jobs[wishes].places.append((place, Request(sample_id, self.model.encode(prompt))))
        for job in jobs.values():
            job.decoder.check(self.model, [request for _, request in job.places])
        return list(jobs.values())

    def decoder(self, task: str, wishes: Wishes) -> Decoder:
        config = replace(self.config, decode=agreed(task, wishes, self.config.decode, self.settings))
        validate(config)
        return build_decoder(config)

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        raise no_likelihood(requests)

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        raise no_likelihood(requests)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Without the generation prompt the last turn is the assistant's, and stays open to be continued."""
        if add_generation_prompt:
            return self.model.chat_prompt(chat_history)
        tokenizer: Any = self.model.tokenizer
        return str(tokenizer.apply_chat_template(chat_history, tokenize=False, continue_final_message=True))

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The template, for lm-eval's records."""
        if isinstance(chat_template, str):
            raise ConfigError(
                f"model {self.model.name} has one chat template, without a name, got {chat_template!r}; "
                f"write --apply_chat_template alone"
            )
        return str(getattr(self.model.tokenizer, "chat_template", None) or "") if chat_template else ""

    @property
    def tokenizer_name(self) -> str:
        """It marks lm-eval's cache of finished prompts."""
        return f"{self.config.model.source}@{self.config.model.revision}".replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """For lm-eval's result file: every setting, and what decoding cost."""
        settings = {key: value for key, value in record(self.config).items() if key not in OF_EVAL[:4]}
        cost = {"tokens": self.tally.tokens, "forwards": self.tally.forwards, "seconds": self.tally.seconds}
        return {"s2d2": {"version": __version__, "settings": settings, **cost}}


def configuration(model: str, batch_size: int | str | None, device: str | None, settings: dict[str, Any]) -> RunConfig:
    if not model:
        raise ConfigError("--model_args must name a model, as in model=tiny; got none")
    for key in settings:
        if key.partition(".")[0] in OF_EVAL:
            raise ConfigError(f"{key} is a setting of s2d2 eval; lm-eval has its own words for it, see lm_eval --help")
    if batch_size is not None and not str(batch_size).isdecimal():
        raise ConfigError(f"--batch_size must be a whole number for the model s2d2, got {batch_size!r}")
    chosen, texts = model_choice(model)
    if device == THEIR_DEVICE and not torch.cuda.is_available():
        device = None
    own = {LENGTH: NEW_TOKENS, **settings, "batch_size": batch_size, "device": device}
    overrides = [f"{key}={plain(value)}" for key, value in own.items() if value is not None]
    return compose([*chosen, *overrides], texts)


def plain(value: Any) -> str:
    """A value as one writes it on the command line; lm-eval has read numbers, lists and truth values already."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # lm-eval reads -1 as -1.0
    return value if isinstance(value, str) else json.dumps(value)


def no_likelihood(requests: list[Any]) -> ConfigError:
    return ConfigError(
        f"task {requests[0].task_name} asks how likely given texts are, and a block-diffusion decoder only generates; "
        f"choose a task with output_type generate_until, such as gsm8k, ifeval or mmlu_generative"
    )
