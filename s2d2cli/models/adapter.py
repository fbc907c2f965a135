"""A loaded checkpoint behind one call: `forward(plan, cache)`. The only file that touches transformers' internals.

Axes: B rows, Q query tokens, R wanted rows, T cache slots, V vocabulary.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor

from s2d2cli.errors import PromptError
from s2d2cli.models.cache import KVCache
from s2d2cli.models.plan import ForwardPlan


@dataclass(frozen=True)
class Vocabulary:
    """Special ids of a checkpoint, checked against its vocabulary."""

    size: int
    mask_id: int
    stop_ids: tuple[int, ...]


class ModelAdapter:
    """Weights, tokenizer and special ids of one checkpoint.

    Contract: `forward(plan, cache)[b, r]` scores the token AT `positions[b, read[b, r]]`.

    With `shift` 1 the network scores a token from the row left of it, which must be the one before it in the plan: so
    each plan begins at least one row left of what it reads, and may read the position behind its last row as well.
    """

    commits_last = True  # the family's published code encodes an answer's last block too (decode.commit=separate)
    draft_model: ModelAdapter | None = None  # a second model of the same vocabulary that was loaded to draft for it
    attends_fully = False  # decode.context=full is what it was trained for, and nothing else
    whole_prompt = False  # the prompt attends to itself fully, the answer by block; see decode/whole_prompt.py

    def __init__(self, name: str, network: Any, vocabulary: Vocabulary, tokenizer: Any | None, shift: int = 0) -> None:
        self.name, self.shift = name, shift
        self.network = network.eval()
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.mask_id = vocabulary.mask_id
        self.stop_ids = vocabulary.stop_ids
        # a model that predicts its own mask token would leave holes in the output
        self.never_offered = [vocabulary.mask_id]
        self.context: int = network.config.max_position_embeddings
        self.device: torch.device = network.lm_head.weight.device
        self.dtype: torch.dtype = network.lm_head.weight.dtype
        # transformers renamed the argument between 5.20 and 5.24; ask the signature
        names = inspect.signature(type(network.model).forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"

    def new_cache(self, rows: int, positions: int, scratch: int) -> KVCache:
        """An empty cache for `rows` sequences of at most `positions` tokens and `scratch` passing rows each."""
        config = self.network.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape_BTHD = (rows, scratch + positions, config.num_key_value_heads, head_dim)
        return KVCache.empty(config.num_hidden_layers, shape_BTHD, scratch, self.network.lm_head.weight)

    @property
    def from_prompt(self) -> bool:
        """Whether blocks are counted from the prompt's end."""
        return self.attends_fully or self.whole_prompt

    @torch.inference_mode()
    def forward(self, plan: ForwardPlan, cache: KVCache) -> Tensor:
        """Run one pass. Returns logits_BRV in the model's dtype, -inf for tokens that are never offered."""
        return self.logits(self.hidden(plan, cache), plan.read_BR)

    @torch.inference_mode()
    def hidden(self, plan: ForwardPlan, cache: KVCache) -> Tensor:
        """Run one pass as far as its last hidden states, (B, Q, H), so that it is known later which logits are due."""
        cache.aim(plan.slots_BQ, plan.visible_BQT.shape[-1])
        hidden_BQH: Tensor = self.network.model(
            input_ids=plan.tokens_BQ,
            position_ids=plan.positions_BQ,
            # four axes go past transformers' own mask building; a bool mask means "may attend"
            attention_mask=plan.visible_BQT[:, None],
            use_cache=True,
            **{self._cache_argument: cache},
        ).last_hidden_state
        return hidden_BQH

    @torch.inference_mode()
    def logits(self, hidden_BQH: Tensor, read_BR: Tensor) -> Tensor:
        """Logits of the tokens at some of the rows, (B, R, V)."""
        row_BR = (read_BR - self.shift).clamp(min=0)  # nothing is left of position 0, and nobody asks: it is prompt
        index_BR1 = row_BR[..., None].expand(-1, -1, hidden_BQH.shape[-1])
        logits_BRV: Tensor = self.network.lm_head(hidden_BQH.gather(1, index_BR1))
        logits_BRV[..., self.never_offered] = -torch.inf
        return logits_BRV

    def chat_prompt(self, messages: list[dict[str, str]]) -> str:
        """The conversation rendered with the checkpoint's chat template, ready for the assistant's turn."""
        tokenizer = self._need_tokenizer()
        if not tokenizer.chat_template:
            raise PromptError(f"model {self.name} has no chat template; give the finished text with --raw")
        try:
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise PromptError(
                f"the chat template of model {self.name} cannot render this conversation: {error}"
            ) from error

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; no special tokens are added."""
        return list(self._need_tokenizer().encode(text, add_special_tokens=False))

    def text(self, token_ids: list[int]) -> str:
        """The text of `token_ids` without stop and other special tokens."""
        return str(
            self._need_tokenizer().decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    def _need_tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise PromptError(f"model {self.name} comes without tokenizer files, so it only takes token ids")
        return self.tokenizer
