"""The Python interface: load a model, build a decoder, generate.

from s2d2cli import build_decoder, generate, load_model

model = load_model("tiny")
decoder = build_decoder("decoder=s2d2", "decode.block_length=8", "decode.max_new_tokens=128")
for answer in generate(model, decoder, ["Mia has 3 apples and buys 4 more. How many apples has she now?"]):
    print(answer.text, answer.tokens_per_forward)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from s2d2cli import models
from s2d2cli.choose import model_choice
from s2d2cli.config import compose
from s2d2cli.decode import Decoder, Generation
from s2d2cli.decode import build_decoder as build_from_config
from s2d2cli.errors import PromptError
from s2d2cli.models import ModelAdapter
from s2d2cli.runs.prompts import Style

Prompt = str | list[dict[str, str]]  # one user turn, or a conversation


@dataclass(frozen=True)
class Answer:
    """A generation and its text."""

    text: str
    generation: Generation

    @property
    def tokens_per_forward(self) -> float:
        """New tokens, the stop token included, per forward that this answer took part in."""
        return len(self.generation.token_ids) / sum(self.generation.forwards.values())


def load_model(name: str, *overrides: str) -> ModelAdapter:
    """Load `name` (a model of conf/model, a folder, or a hub id); overrides are as on the command line, e.g.
    "device=cuda", or "draft_model=tiny" for a second model beside it. Raises CheckpointError or ConfigError."""
    chosen, texts = model_choice(name)
    given = {word.partition("=")[0] for word in overrides}
    # which decoder will use it is not settled here; these suit every model
    suits = "decoder=draft_target" if "draft_model" in given else "decoder=dynamic"
    decoder = [] if "decoder" in given else [suits]
    return models.load_model(compose([*decoder, *chosen, *overrides], texts))


def build_decoder(*overrides: str) -> Decoder:
    """A decoder from overrides as on the command line, e.g. "decoder=s2d2", "decode.block_length=8",
    "router.tau_span=4", "seed=1". Without any it is S2D2 at the block length of `tiny`. Raises ConfigError."""
    return build_from_config(compose(list(overrides)))


def generate(model: ModelAdapter, decoder: Decoder, prompts: Sequence[Prompt]) -> list[Answer]:
    """Answer all prompts in one batch: a str is one user turn, a list holds the messages of a conversation.

    Sampling draws from one stream per (seed, place in `prompts`). Raises PromptError for empty or too long prompts.
    """
    if isinstance(prompts, str):
        raise PromptError("prompts must be a list; for one prompt write [prompt]")
    style, requests = Style(), []
    for number, prompt in enumerate(prompts):
        name = f"prompt {number}"
        conversation = style.of_text(name, prompt) if isinstance(prompt, str) else style.of_turns(name, prompt)
        requests.append(replace(conversation.request(model), sample_id=str(number)))
    result = decoder.generate(model, requests)
    return [Answer(model.text(generation.token_ids), generation) for generation in result.generations]
