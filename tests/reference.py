"""The slow, obvious decoders that the fast ones must equal: one row, no cache, the whole sequence every time.

They use transformers' network directly (`network(input_ids, attention_mask=additive)`), not our adapter or plans.
In each of them the logits at a position score the token there, also for networks that score the next one.
"""

from __future__ import annotations

import torch

from s2d2cli.decode.unmask import EditTokens
from s2d2cli.models.adapter import ModelAdapter


def logits_of(model: ModelAdapter, tokens: list[int], visible_QT: torch.Tensor) -> torch.Tensor:
    """(Q, V) logits of the token at each position, of one uncached forward; the mask token is never on offer."""
    bias = torch.zeros(visible_QT.shape).masked_fill(~visible_QT, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        out = model.network(torch.tensor([tokens]), attention_mask=bias[None, None], use_cache=False)
    logits = out.logits[0].roll(model.shift, 0)  # the first row of a shifted network means nothing, nobody reads it
    logits[:, model.mask_id] = -torch.inf
    return logits


def origin(model: ModelAdapter, prompt_length: int) -> int:
    """Where the first block begins."""
    return prompt_length if model.from_prompt else 0


def block_causal(length: int, block_length: int, first: int = 0) -> torch.Tensor:
    """Blocks are counted from `first`; what is left of it attends to itself fully."""
    block = (torch.arange(length) - first).div(block_length, rounding_mode="floor").clamp(min=-1)
    return block[:, None] >= block[None, :]


def next_token_logits(model: ModelAdapter, prefix: list[int], prompt_length: int = 0) -> torch.Tensor:
    """(V,) logits of block length one: a mask behind the prefix, everything causal but a prompt that attends to itself
    fully. Plain autoregressive decoding where the network scores the next token: the mask is then seen by nobody."""
    tokens = [*prefix, model.mask_id]
    return logits_of(model, tokens, block_causal(len(tokens), 1, origin(model, prompt_length)))[-1]


def autoregressive(model: ModelAdapter, prompt: list[int], max_new_tokens: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(max_new_tokens):
        tokens.append(int(next_token_logits(model, tokens, len(prompt)).argmax()))
        if tokens[-1] in model.stop_ids:
            break
    return tokens[len(prompt) :]


def diffuse(
    model: ModelAdapter, prompt: list[int], max_new_tokens: int, block_length: int, steps: int, threshold: float | None
) -> tuple[list[int], int]:
    """Greedy block diffusion as trained: static with `threshold=None`, else dynamic. (new ids, denoising steps)."""
    mask, first = model.mask_id, origin(model, len(prompt))
    tokens, end, made = list(prompt), len(prompt) + max_new_tokens, 0
    while len(tokens) < end and not any(t in model.stop_ids for t in tokens[len(prompt) :]):
        start = first + (len(tokens) - first) // block_length * block_length
        tokens += [mask] * (start + block_length - len(tokens))
        step = 0
        while not finished(tokens, len(prompt), end, model):
            logits = logits_of(model, tokens, block_causal(len(tokens), block_length, first))
            reveal(tokens, start, logits, block_length // steps + (step < block_length % steps), threshold, mask)
            step, made = step + 1, made + 1
            if mask not in tokens:
                break
    new = tokens[len(prompt) : end]
    stop = next((i for i, token in enumerate(new) if token in model.stop_ids), len(new) - 1)
    return new[: stop + 1], made


def diffuse_fully(
    model: ModelAdapter,
    prompt: list[int],
    max_new_tokens: int,
    block_length: int,
    steps: int,
    threshold: float | None,
    policy: str,
) -> tuple[list[int], int]:
    """The same with full attention, blocks counted from the prompt's end, under `decode.cache=policy`."""
    mask, end, made = model.mask_id, len(prompt) + max_new_tokens, 0
    tokens = [*prompt, *[mask] * max_new_tokens]
    for start in range(len(prompt), end, block_length):
        block_end, kept, step = min(start + block_length, end), Kept(), 0
        while mask in tokens[start:block_end] and not finished(tokens, len(prompt), end, model):
            first = 0 if policy == "none" or step == 0 else start - model.shift
            last = block_end if policy == "dual" and step > 0 else end
            logits = (
                kept.logits(model, tokens, first, last) if policy != "none" else Kept().logits(model, tokens, 0, end)
            )
            quota = block_length // steps + (step < block_length % steps)
            window = tokens[:block_end]
            reveal(window, start, logits, quota, threshold, mask)
            tokens[:block_end] = window
            step, made = step + 1, made + 1
    new = tokens[len(prompt) :]
    stop = next((i for i, token in enumerate(new) if token in model.stop_ids), len(new) - 1)
    return new[: stop + 1], made


class Kept:
    """Keys and values by position, of when each was last computed; transformers' attention calls `update`."""

    def __init__(self) -> None:
        self.layers: dict[int, list[torch.Tensor]] = {}
        self.first = self.last = 0

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_, **__) -> tuple[torch.Tensor, ...]:
        stored = self.layers.setdefault(layer, [keys.clone(), values.clone()])
        for old, new in zip(stored, (keys, values), strict=True):
            old[:, :, self.first : self.last] = new
        return tuple(stored)

    def logits(self, model: ModelAdapter, tokens: list[int], first: int, last: int) -> torch.Tensor:
        """(T, V) logits by position, computed from first..last-1 alone while all positions are seen."""
        self.first, self.last = first, last
        everything = torch.ones(1, 1, last - first, len(tokens), dtype=torch.bool)
        with torch.inference_mode():
            out = model.network(
                torch.tensor([tokens[first:last]]),
                position_ids=torch.arange(first, last)[None],
                attention_mask=everything,
                use_cache=True,
                **{model._cache_argument: self},
            )
        logits = torch.full((len(tokens), out.logits.shape[-1]), torch.nan)
        logits[first + model.shift : last] = out.logits[0, : last - first - model.shift]
        logits[:, model.mask_id] = -torch.inf
        return logits


def finished(tokens: list[int], low: int, end: int, model: ModelAdapter) -> bool:
    """Everything up to the length, or up to a stop token, is decided."""
    for token in tokens[low:end]:
        if token == model.mask_id:
            return False
        if token in model.stop_ids:
            return True
    return True


def reveal(tokens: list[int], start: int, logits: torch.Tensor, quota: int, threshold: float | None, mask: int) -> None:
    masked = [position for position in range(start, len(tokens)) if tokens[position] == mask]
    confidence = {position: float(logits[position].softmax(-1).max()) for position in masked}
    ranked = sorted(masked, key=lambda position: (-confidence[position], position))
    chosen = ranked[: min(quota, len(masked))]
    if threshold is not None:
        high = [position for position in masked if confidence[position] > threshold]
        chosen = high if len(high) >= len(chosen) else chosen
    for position in chosen:
        tokens[position] = int(logits[position].argmax())


def edit_tokens(
    model: ModelAdapter, prompt: list[int], max_new_tokens: int, block_length: int, rule: EditTokens
) -> tuple[list[int], int, int]:
    """Greedy block diffusion that edits decided tokens: (new ids, denoising steps, edits). Stop tokens do not occur."""
    mask, tokens, end, made, edited = model.mask_id, list(prompt), len(prompt) + max_new_tokens, 0, []
    while len(tokens) < end:
        start, post_steps, quiet = len(tokens) // block_length * block_length, 0, False
        tokens += [mask] * (start + block_length - len(tokens))
        while mask in tokens or (post_steps < rule.max_post_steps and not quiet):
            post_steps += mask not in tokens
            logits = logits_of(model, tokens, block_causal(len(tokens), block_length))
            probs, best = (values.tolist() for values in logits.softmax(-1).max(-1))
            decided = [p for p in range(max(start, len(prompt)), len(tokens)) if tokens[p] != mask]
            changed = [p for p in decided if probs[p] > rule.edit_threshold and best[p] != tokens[p]]
            quiet = mask not in tokens and not changed
            if mask in tokens:
                reveal(tokens, start, logits, rule.num_to_transfer, rule.threshold, mask)
            for position in changed:
                tokens[position] = best[position]
            edited += changed
            made += 1
    return tokens[len(prompt) : end], made, sum(position < end for position in edited)


def entropy_bounded(
    model: ModelAdapter, prompt: list[int], max_new_tokens: int, block_length: int, gamma: float, whole_sum: bool
) -> tuple[list[int], list[set[int]]]:
    """Greedy, at least one token a step: (new ids, the positions that each step revealed)."""
    tokens, end, steps = list(prompt), len(prompt) + max_new_tokens, []
    while len(tokens) < end:
        start = len(tokens) // block_length * block_length
        tokens += [model.mask_id] * (start + block_length - len(tokens))
        while model.mask_id in tokens:
            logits = logits_of(model, tokens, block_causal(len(tokens), block_length))
            chosen = bounded(tokens, logits, gamma, whole_sum, model.mask_id)
            steps.append(chosen)
            for position in chosen:
                tokens[position] = int(logits[position].argmax())
    steps = [{position for position in step if position < end} for step in steps]
    return tokens[len(prompt) : end], [step for step in steps if step]


def bounded(tokens: list[int], logits: torch.Tensor, gamma: float, whole_sum: bool, mask: int) -> set[int]:
    masked = [position for position, token in enumerate(tokens) if token == mask]
    probs = {position: logits[position].double().softmax(-1) for position in masked}
    entropy = {position: float(torch.special.entr(prob).sum()) for position, prob in probs.items()}
    ranked = sorted(masked, key=lambda position: (entropy[position], position))
    chosen, total = {ranked[0]}, 0.0
    for position in ranked:
        if total + (entropy[position] if whole_sum else 0.0) > gamma:
            break
        chosen.add(position)
        total += entropy[position]
    return chosen
