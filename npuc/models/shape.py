"""The sizes of a decoder, and which weights it has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True)
class Windows:
    """Layers that see a sliding window. size: tokens, the row's own included. period: each layer whose number is a
    multiple of it, counted from 1, sees everything. theta: base of the rotary angles of the others."""

    size: int
    period: int
    theta: float


@dataclass(frozen=True)
class Experts:
    """Feed-forward parts of which a router chooses some for each token. count: of a layer; chosen: for a token."""

    count: int
    chosen: int


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder with RMS norms, rotary positions, grouped-query attention and gated feed-forward parts.

    heads, kv_heads: query heads, and heads of keys and values. inner: width of the feed-forward part, of one expert
    where there are experts. positions: the longest sequence. theta: base of the rotary angles; stretch: what positions
    are divided by. epsilon: of RMSNorm. tied: the embedding table is the head, too. head_norms: queries and keys pass a
    norm over each head. post_norms: attention and feed-forward part are followed by a norm of their own. activation: of
    the gate. scaled_embedding: rows of the table are multiplied by the root of `hidden`.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int
    theta: float
    epsilon: float
    tied: bool = True
    stretch: float = 1.0
    head_norms: bool = False
    post_norms: bool = False
    activation: Literal["silu", "gelu"] = "silu"
    scaled_embedding: bool = False
    windows: Windows | None = None
    experts: Experts | None = None

    @property
    def query_width(self) -> int:
        """Width of the queries of all heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of the keys of all heads."""
        return self.kv_heads * self.head_dim

    def windowed(self, layer: int) -> bool:
        """Whether a layer, counted from 0, sees a window alone."""
        return self.windows is not None and (layer + 1) % self.windows.period != 0

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each weight in the order of use. Linear layers are [in, out], as MatMul takes
        them; those of experts [experts, out, in], as MoE does."""
        found: dict[str, tuple[int, ...]] = {EMBEDDING: (self.vocab, self.hidden)}
        for i in range(self.layers):
            found |= {f"model.layers.{i}.{name}.weight": shape for name, shape in self._layer().items()}
        found[NORM] = (self.hidden,)
        return found if self.tied else {**found, HEAD: (self.hidden, self.vocab)}

    @property
    def parameters(self) -> int:
        """Numbers of all weights."""
        return sum(math.prod(shape) for shape in self.weights().values())

    def _layer(self) -> dict[str, tuple[int, ...]]:
        h, inner = self.hidden, self.inner
        found: dict[str, tuple[int, ...]] = {
            "input_layernorm": (h,),
            "self_attn.q_proj": (h, self.query_width),
            "self_attn.k_proj": (h, self.kv_width),
            "self_attn.v_proj": (h, self.kv_width),
        }
        if self.head_norms:
            found |= {"self_attn.q_norm": (self.head_dim,), "self_attn.k_norm": (self.head_dim,)}
        found["self_attn.o_proj"] = (self.query_width, h)
        if self.post_norms:
            found |= {"post_attention_layernorm": (h,), "pre_feedforward_layernorm": (h,)}
        else:
            found["post_attention_layernorm"] = (h,)
        if self.experts is None:
            found |= {"mlp.gate_proj": (h, inner), "mlp.up_proj": (h, inner), "mlp.down_proj": (inner, h)}
        else:
            n = self.experts.count
            found |= {
                "mlp.router": (h, n),
                "mlp.experts.gate_up_proj": (n, 2 * inner, h),
                "mlp.experts.down_proj": (n, h, inner),
            }
        return found | ({"post_feedforward_layernorm": (h,)} if self.post_norms else {})
