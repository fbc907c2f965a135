"""A lean transformer for training and monitoring: Qwen3, Qwen2 or LLaDA2's mixture of experts, as its shape says.

Parameter names are those of `Qwen3ForCausalLM` and `Qwen2ForCausalLM`; tiny_layouts.py turns them into LLaDA2's.

Axes: B rows, Q query tokens, K keys, T cache slots, V vocabulary, H hidden, N key/value heads, G queries per key
head, D head size, E experts, I inner columns of an MLP.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    vocab_size: int = 1024
    hidden_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 384
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    qkv_bias: bool = False
    qk_norm: bool = True
    rotary_dim: int = 32  # how much of a head the positions turn
    num_experts: int = 0  # of every layer but the first; 0: all layers are dense
    experts_per_token: int = 0
    expert_size: int = 0
    expert_scale: float = 2.5
    shifted: bool = False  # logits of a row score the token after it, not the token at it


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.kv_heads, self.head_dim = shape.num_key_value_heads, shape.head_dim
        q_size, kv_size = shape.num_attention_heads * shape.head_dim, self.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, q_size, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(shape.hidden_size, kv_size, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(shape.hidden_size, kv_size, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(q_size, shape.hidden_size, bias=False)
        norms = (RMSNorm(shape.head_dim, shape.rms_norm_eps) if shape.qk_norm else nn.Identity() for _ in range(2))
        self.q_norm, self.k_norm = norms

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(self, x_BQH: Tensor, rope: tuple[Tensor, Tensor], bias_B1QK: Tensor, cache: "LayerCache | None"):
        q = rotate(self.q_norm(self.heads(self.q_proj(x_BQH))), rope)
        k = rotate(self.k_norm(self.heads(self.k_proj(x_BQH))), rope)
        v = self.heads(self.v_proj(x_BQH))
        if cache is not None:
            k, v = cache.write(k, v)
        q_BNGQD = q.unflatten(1, (self.kv_heads, -1))
        # Plain matmuls: on CPU they train faster than masked scaled_dot_product_attention, most of all in bfloat16.
        scores_BNGQK = q_BNGQD * self.head_dim**-0.5 @ k[:, :, None].transpose(-1, -2) + bias_B1QK[:, None]
        out = (scores_BNGQK.softmax(-1) @ v[:, :, None]).flatten(1, 2)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, inner_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, inner_size, bias=False)
        self.down_proj = nn.Linear(inner_size, hidden_size, bias=False)

    def forward(self, x: Tensor, weights_BQI: Tensor | float = 1.0) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x) * weights_BQI)


class Router(nn.Module):
    """Which experts a token asks, and what their answers weigh. The bias only evens out how often each is asked."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.top, self.scale = shape.experts_per_token, shape.expert_scale
        self.weight = nn.Parameter(torch.empty(shape.num_experts, shape.hidden_size))
        self.register_buffer("expert_bias", torch.zeros(shape.num_experts))
        self.register_buffer("load_E", torch.zeros(shape.num_experts), persistent=False)

    @torch.autocast("cpu", enabled=False)
    def forward(self, x_BQH: Tensor) -> Tensor:
        scores_BQE = F.linear(x_BQH.float(), self.weight).sigmoid()
        top_BQT = (scores_BQE + self.expert_bias).topk(self.top).indices
        chosen_BQE = torch.zeros_like(scores_BQE).scatter_(-1, top_BQT, 1.0)
        if self.training:
            self.load_E += chosen_BQE.sum((0, 1))
        weights_BQE = scores_BQE * chosen_BQE
        return self.scale * weights_BQE / weights_BQE.sum(-1, keepdim=True)

    def balance(self, rate: float = 1e-3) -> None:
        """After a training step: ask the experts that had less than their share more often."""
        self.expert_bias += rate * (self.load_E.mean() - self.load_E).sign()
        self.load_E.zero_()


class Mixture(nn.Module):
    """All experts are one wide MLP, the columns of those not asked weighing zero: on a CPU faster than choosing."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate, self.expert_size = Router(shape), shape.expert_size
        self.experts = MLP(shape.hidden_size, shape.num_experts * shape.expert_size)
        self.shared_experts = MLP(shape.hidden_size, shape.expert_size)

    def forward(self, x_BQH: Tensor) -> Tensor:
        weights_BQI = self.gate(x_BQH).to(x_BQH.dtype).repeat_interleave(self.expert_size, -1)
        return self.experts(x_BQH, weights_BQI) + self.shared_experts(x_BQH)


class Layer(nn.Module):
    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        mixed = number > 0 and shape.num_experts > 0
        self.mlp = Mixture(shape) if mixed else MLP(shape.hidden_size, shape.intermediate_size)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x_BQH: Tensor, rope: tuple[Tensor, Tensor], bias_B1QK: Tensor, cache: "LayerCache | None"):
        x_BQH = x_BQH + self.self_attn(self.input_layernorm(x_BQH), rope, bias_B1QK, cache)
        return x_BQH + self.mlp(self.post_attention_layernorm(x_BQH))


class Body(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, number) for number in range(shape.num_hidden_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class TinyModel(nn.Module):
    """Logits of a row score the token at its position, or the next one where the shape is `shifted`.

    What a query may see comes in as a mask.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.model = shape, Body(shape)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def hidden(self, tokens_BQ: Tensor, positions_BQ: Tensor, visible_BQK: Tensor, cache: "Cache | None" = None):
        x_BQH = self.model.embed_tokens(tokens_BQ)
        rope = rope_tables(positions_BQ, self.shape)
        bias_B1QK = torch.zeros(visible_BQK.shape).masked_fill_(~visible_BQK, -1e9)[:, None]
        if torch.is_autocast_enabled("cpu"):
            rope, bias_B1QK = (rope[0].bfloat16(), rope[1].bfloat16()), bias_B1QK.bfloat16()
        for index, layer in enumerate(self.model.layers):
            x_BQH = layer(x_BQH, rope, bias_B1QK, cache and cache.layers[index])
        return self.model.norm(x_BQH)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.embed_tokens.weight)

    def forward(self, tokens_BQ: Tensor, positions_BQ: Tensor, visible_BQK: Tensor, cache: "Cache | None" = None):
        return self.logits(self.hidden(tokens_BQ, positions_BQ, visible_BQK, cache))


class LayerCache:
    def __init__(self, rows: int, slots: int, shape: Shape) -> None:
        self.k, self.v = torch.zeros(2, rows, slots, shape.num_key_value_heads, shape.head_dim)
        self.index: tuple[Tensor, Tensor]

    def write(self, k_BNQD: Tensor, v_BNQD: Tensor) -> tuple[Tensor, Tensor]:
        self.k[self.index], self.v[self.index] = k_BNQD.transpose(1, 2), v_BNQD.transpose(1, 2)
        return self.k.transpose(1, 2), self.v.transpose(1, 2)


class Cache:
    """Keys and values by slot. A forward always writes; what later forwards see is decided by their mask."""

    def __init__(self, rows: int, slots: int, shape: Shape) -> None:
        self.slots = slots
        self.layers = [LayerCache(rows, slots, shape) for _ in range(shape.num_hidden_layers)]

    def aim(self, slots_BQ: Tensor) -> None:
        """Set where the next forward writes."""
        rows_B1 = torch.arange(len(slots_BQ))[:, None]
        for layer in self.layers:
            layer.index = (rows_B1, slots_BQ)


def rope_tables(positions_BQ: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    half = torch.arange(0, shape.rotary_dim, 2).float() / shape.rotary_dim
    angles = positions_BQ[..., None].float() * shape.rope_theta**-half
    angles = torch.cat([angles, angles], -1)[:, None]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    size = rope[0].shape[-1]
    turned, still = x[..., :size], x[..., size:]
    left, right = turned.chunk(2, -1)
    return torch.cat([turned * rope[0] + torch.cat([-right, left], -1) * rope[1], still], -1)
