"""The network in torch, for training only. Weight names and layouts are those of `Shape.weight_shapes`."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from .shape import Shape


class Net(nn.Module):
    """Token ids [rows, length] -> logits [rows, length, vocab]; every row starts at position 0."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed)
        depth = (2 * shape.layers) ** -0.5
        self.weights = nn.ParameterDict()
        for name, size in shape.weight_shapes().items():
            if len(size) == 1:
                value = torch.ones(size)
            else:
                scale = 0.02 if name == "embed" else size[0] ** -0.5
                scale *= depth if name.endswith((".o", ".down")) else 1.0  # the residual stream starts at unit scale
                value = torch.randn(size, generator=generator) * scale
            self.weights[name.replace(".", "_")] = nn.Parameter(value)
        cos, sin = rotary_tables(shape)
        self.cos, self.sin = torch.from_numpy(cos), torch.from_numpy(sin)

    def weight(self, name: str) -> Tensor:
        """One weight by its name in `Shape.weight_shapes`."""
        weight: Tensor = self.weights[name.replace(".", "_")]
        return weight

    def rotate(self, x: Tensor) -> Tensor:
        """Half-split rotary embedding; x is [rows, heads, length, head_dim]."""
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (self.shape.hidden,), self.weight(name), self.shape.norm_eps)

    def layer(self, x: Tensor, i: int) -> Tensor:
        """One decoder layer on [rows, length, hidden]."""
        s, p = self.shape, f"layers.{i}."
        rows, length, _ = x.shape
        h = self.norm(x, p + "attn_norm")

        def heads(name: str, count: int) -> Tensor:
            return (h @ self.weight(p + name)).view(rows, length, count, s.head_dim).transpose(1, 2)

        q, k, v = self.rotate(heads("q", s.heads)), self.rotate(heads("k", s.kv_heads)), heads("v", s.kv_heads)
        group = s.heads // s.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + a.transpose(1, 2).reshape(rows, length, -1) @ self.weight(p + "o")
        h = self.norm(x, p + "mlp_norm")
        return x + (F.silu(h @ self.weight(p + "gate")) * (h @ self.weight(p + "up"))) @ self.weight(p + "down")

    def forward(self, tokens: Tensor) -> Tensor:
        embed = self.weight("embed")
        x = F.embedding(tokens, embed)
        for i in range(self.shape.layers):
            x = self.layer(x, i)
        return self.norm(x, "norm") @ embed.t()


def rotary_tables(shape: Shape) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin of position x frequency, each [positions, head_dim / 2]."""
    half = shape.head_dim // 2
    frequency = shape.rope_theta ** (-np.arange(half) / half)
    angle = np.arange(shape.positions)[:, None] * frequency
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def half_weights(net: Net) -> dict[str, NDArray[np.float16]]:
    """The weights rounded to f16: what is stored, and what every figure is measured with."""
    return {name: net.weight(name).detach().numpy().astype(np.float16) for name in net.shape.weight_shapes()}


def load_half(net: Net, weights: dict[str, NDArray[np.float16]]) -> None:
    """Puts stored f16 weights into the network."""
    with torch.no_grad():
        for name, value in weights.items():
            net.weight(name).copy_(torch.from_numpy(value.astype(np.float32)))
