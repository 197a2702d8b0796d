"""What a decoder of a given shape computes, as float64 formulas: no operator of the exported graph is used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from npuc.models import DecoderShape

Arrays = Mapping[str, np.ndarray]


def random_weights(shape: DecoderShape) -> dict[str, np.ndarray]:
    """float32, of a size that keeps sums near 1."""
    random = np.random.default_rng(7)
    found = {}
    for name, extents in shape.weights().items():
        values = (
            random.uniform(0.5, 1.5, extents)
            if len(extents) == 1
            else random.normal(0, extents[-1 if len(extents) == 3 else -2] ** -0.5, extents)
        )
        found[name] = values.astype(np.float32)
    return found


def logits(shape: DecoderShape, weights: Arrays, ids: Sequence[int]) -> np.ndarray:
    """[len(ids), vocab] of a whole sequence."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = w["model.embed_tokens.weight"][list(ids)]
    if shape.scaled_embedding:
        x = x * math.sqrt(shape.hidden)
    for i in range(shape.layers):
        layer = {name.removeprefix(f"model.layers.{i}."): v for name, v in w.items() if f"layers.{i}." in name}
        h = attention(shape, layer, norm(shape, x, layer["input_layernorm.weight"]), shape.windowed(i))
        if shape.post_norms:
            h = norm(shape, h, layer["post_attention_layernorm.weight"])
        x = x + h
        gain = "pre_feedforward_layernorm" if shape.post_norms else "post_attention_layernorm"
        h = norm(shape, x, layer[f"{gain}.weight"])
        h = (
            mixture(shape, layer, h)
            if shape.experts
            else gated(shape, h, *(layer[f"mlp.{p}_proj.weight"] for p in PARTS))
        )
        x = x + (norm(shape, h, layer["post_feedforward_layernorm.weight"]) if shape.post_norms else h)
    x = norm(shape, x, w["model.norm.weight"])
    return x @ (w["model.embed_tokens.weight"].T if shape.tied else w["lm_head.weight"])


PARTS = ("gate", "up", "down")


def norm(shape: DecoderShape, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.epsilon) * gain


def attention(shape: DecoderShape, w: Arrays, h: np.ndarray, windowed: bool) -> np.ndarray:
    count, d = len(h), shape.head_dim
    theta, stretch = (shape.windows.theta, 1.0) if windowed and shape.windows else (shape.theta, shape.stretch)
    out = np.zeros((count, shape.heads, d))
    for head in range(shape.heads):
        group = head * shape.kv_heads // shape.heads
        q = h @ w["self_attn.q_proj.weight"][:, head * d : (head + 1) * d]
        k, v = (h @ w[f"self_attn.{part}_proj.weight"][:, group * d : (group + 1) * d] for part in "kv")
        if shape.head_norms:
            q, k = norm(shape, q, w["self_attn.q_norm.weight"]), norm(shape, k, w["self_attn.k_norm.weight"])
        q, k = (turned(part, theta, stretch) for part in (q, k))
        for row in range(count):
            first = max(0, row + 1 - shape.windows.size) if windowed and shape.windows else 0
            scores = q[row] @ k[first : row + 1].T / math.sqrt(d)
            shares = np.exp(scores - scores.max())
            out[row, head] = shares / shares.sum() @ v[first : row + 1]
    return out.reshape(count, -1) @ w["self_attn.o_proj.weight"]


def turned(x: np.ndarray, theta: float, stretch: float) -> np.ndarray:
    """Pairs (j, j + d / 2) as complex numbers, turned by position / stretch * theta^(-2j / d)."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] / stretch * theta ** (-np.arange(half) / half)
    pairs = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
    return np.concatenate([pairs.real, pairs.imag], 1)


def gated(shape: DecoderShape, h: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    z = h @ gate
    if shape.activation == "gelu":
        z = z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    else:
        z = z / (1 + np.exp(-z))
    return (z * (h @ up)) @ down


def mixture(shape: DecoderShape, w: Arrays, h: np.ndarray) -> np.ndarray:
    """Each row through its chosen experts alone."""
    assert shape.experts is not None
    out = np.zeros_like(h)
    for row, x in enumerate(h):
        scores = np.exp(x @ w["mlp.router.weight"])
        best = np.argsort(-scores)[: shape.experts.chosen]
        for expert in best:
            both, down = (w[f"mlp.experts.{part}_proj.weight"][expert].T for part in ("gate_up", "down"))
            out[row] += (
                scores[expert] / scores[best].sum() * gated(shape, x[None], both[:, ::2], both[:, 1::2], down)[0]
            )
    return out
