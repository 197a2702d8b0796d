"""The yardstick: a Llama-like decoder as one would write it in NumPy, whole matrices and a preallocated cache.

It reads the synthetic decoder of the tests (weights called q0, k0, ... in an ONNX file) and has the same operations in
the same order as the model. Matrices are kept [n, k], the layout in which one-row products are fastest here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

Array = np.ndarray


@dataclass
class Layer:
    """Weights [n, k] and gains of one layer."""

    q: Array
    k: Array
    v: Array
    o: Array
    gate: Array
    up: Array
    down: Array
    attention_norm: Array
    mlp_norm: Array


class PlainDecoder:
    """Weights and cache. capacity: rows of the cache."""

    def __init__(self, path: Path, heads: int, groups: int, capacity: int, eps: float = 1e-5) -> None:
        import onnx
        from onnx import numpy_helper

        model = onnx.load(path)
        found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

        def turned(name: str) -> Array:
            return np.ascontiguousarray(found[name].T)

        count = sum(name.startswith("na") for name in found)
        self.layers = [
            Layer(
                *(turned(f"{name}{i}") for name in ("q", "k", "v", "o", "g", "u", "d")),
                found[f"na{i}"],
                found[f"nm{i}"],
            )
            for i in range(count)
        ]
        self.embedding, self.norm = np.ascontiguousarray(found["e"]), found["nf"]
        tables = [name for name in found if name.startswith("const_") and found[name].ndim == 2][:2]
        self.cos, self.sin = (found[name] for name in tables)
        self.heads, self.groups, self.eps = heads, groups, np.float32(eps)
        self.dim = self.layers[0].k.shape[0] // groups
        self.scale = np.float32(self.dim**-0.5)
        self.keys = np.zeros((count, groups, capacity, self.dim), np.float32)
        self.values = np.zeros_like(self.keys)

    def hidden(self, ids: Array, past: int) -> Array:
        """Hidden rows [n, width] of n new tokens after `past` old ones; their keys and values go into the cache."""
        rows, total = len(ids), past + len(ids)
        cos, sin = self.cos[past:total], self.sin[past:total]
        hidden = None
        if rows > 1:
            hidden = np.arange(total)[None, :] > np.arange(past, total)[:, None]
        x = self.embedding[ids]
        for number, layer in enumerate(self.layers):
            normed = self._rms(x, layer.attention_norm)
            q = self._rotated(normed @ layer.q.T, self.heads, cos, sin)
            keys, values = self.keys[number], self.values[number]
            keys[:, past:total] = self._rotated(normed @ layer.k.T, self.groups, cos, sin)
            values[:, past:total] = (normed @ layer.v.T).reshape(rows, self.groups, self.dim).transpose(1, 0, 2)
            x = x + self._attention(q, keys[:, :total], values[:, :total], hidden) @ layer.o.T
            normed = self._rms(x, layer.mlp_norm)
            gate = normed @ layer.gate.T
            x = x + (gate / (1 + np.exp(-gate)) * (normed @ layer.up.T)) @ layer.down.T
        return self._rms(x, self.norm)

    def logits(self, hidden: Array) -> Array:
        """Logits [n, vocab] of hidden rows."""
        return hidden @ self.embedding.T

    def _rms(self, x: Array, gain: Array) -> Array:
        mean = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1])
        return x / np.sqrt(mean + self.eps) * gain

    def _rotated(self, x: Array, heads: int, cos: Array, sin: Array) -> Array:
        """[rows, heads * dim] as [heads, rows, dim], turned by position."""
        x = x.reshape(len(x), heads, self.dim).transpose(1, 0, 2)
        half = self.dim // 2
        a, b = x[..., :half], x[..., half:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)

    def _attention(self, q: Array, keys: Array, values: Array, hidden: Array | None) -> Array:
        """[heads, rows, dim] over [groups, total, dim] -> [rows, heads * dim]."""
        rows, share = q.shape[1], self.heads // self.groups
        q = q.reshape(self.groups, share * rows, self.dim)
        scores = (q * self.scale) @ keys.transpose(0, 2, 1)
        if hidden is not None:
            scores.reshape(self.groups, share, rows, -1)[:, :, hidden] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ values).reshape(self.heads, rows, self.dim)
        return mixed.transpose(1, 0, 2).reshape(rows, self.heads * self.dim)
