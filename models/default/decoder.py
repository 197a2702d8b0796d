"""The decoder as ONNX operators, with its KV cache in one of two forms.

`stateful`: each cache is a variable; ReadValue gives its rows before the run, Assign keeps them with the new rows.
`pairs`: each cache is an input `past_key_values.N.key` and an output `present.N.key` (and `.value`).

All of both forms: input_ids, position_ids [1, sequence] and attention_mask [1, total], int64; logits
[1, sequence, vocab], f32. `total` counts the rows of the cache and the new ones; a mask of 0 hides a row.
Weights are f16 initializers, each with one Cast to f32: half the file, and the graph computes in f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from .graph import STATE_DOMAIN, Builder
from .shape import Shape

Form = Literal["stateful", "pairs"]


class Decoder:
    """Builds the graph of one shape; `build_decoder` is the way in."""

    def __init__(self, shape: Shape, weights: Mapping[str, NDArray[np.float16]], form: Form) -> None:
        self.shape, self.form, self.g = shape, form, Builder()
        self.f32: dict[str, str] = {}
        for name, expected in shape.weight_shapes().items():
            if weights[name].shape != expected or weights[name].dtype != np.float16:
                raise ValueError(f"weight {name} is {weights[name].dtype}{weights[name].shape}, not float16{expected}")
            stored = self.g.initializer(f"{name}.weight", weights[name])
            self.f32[name] = self.g.op("Cast", stored, out=f"{name}.f32", to=TensorProto.FLOAT)

    def build(self) -> ModelProto:
        """The whole model."""
        g, s = self.g, self.shape
        ids = g.input("input_ids", TensorProto.INT64, [1, "sequence"])
        mask = g.input("attention_mask", TensorProto.INT64, [1, "total"])
        positions = g.input("position_ids", TensorProto.INT64, [1, "sequence"])
        bias = self.bias(ids, mask)
        rotation = self.rotation(positions)
        g.scope = "embed"
        x = g.op("Gather", self.f32["embed"], ids, axis=0)
        for i in range(s.layers):
            g.scope = f"layers.{i}/attn"
            x = g.op("Add", x, self.attention(self.norm(x, f"layers.{i}.attn_norm"), i, bias, rotation))
            g.scope = f"layers.{i}/mlp"
            x = g.op("Add", x, self.mlp(self.norm(x, f"layers.{i}.mlp_norm"), i))
        g.scope = "head"
        x = self.norm(x, "norm")
        g.op("MatMul", x, g.op("Transpose", self.f32["embed"], perm=[1, 0]), out="logits")
        g.output("logits", TensorProto.FLOAT, [1, "sequence", s.vocab])
        return g.model("default_model")

    def bias(self, ids: str, mask: str) -> str:
        """[1, 1, sequence, total]: 0 where a row may look, the lowest f32 elsewhere (later rows, padding)."""
        g = self.g
        g.scope = "mask"
        new = g.op("Gather", g.op("Shape", ids), g.whole(1), axis=0)
        total = g.op("Gather", g.op("Shape", mask), g.whole(1), axis=0)
        columns = g.op("Range", g.whole(0), total, g.whole(1))
        rows = g.op("Range", g.op("Sub", total, new), total, g.whole(1))
        causal = g.op("LessOrEqual", columns, g.op("Unsqueeze", rows, g.ints(1)))
        kept = g.op("Cast", g.op("Unsqueeze", mask, g.ints(1, 2)), to=TensorProto.BOOL)
        lowest = float(np.finfo(np.float32).min)
        return g.op("Where", g.op("And", causal, kept), g.real(0.0), g.real(lowest))

    def rotation(self, positions: str) -> tuple[str, str]:
        """cos and sin, each [1, 1, sequence, head_dim], the two halves alike."""
        g, half = self.g, self.shape.head_dim // 2
        g.scope = "rotary"
        frequency = (self.shape.rope_theta ** (-np.arange(half) / half)).astype(np.float32)
        place = g.op("Unsqueeze", g.op("Cast", positions, to=TensorProto.FLOAT), g.ints(1, 3))
        angle = g.op("Mul", place, g.initializer("rotary.inv_freq", frequency))
        angle = g.op("Concat", angle, angle, axis=-1)
        return g.op("Cos", angle), g.op("Sin", angle)

    def norm(self, x: str, name: str) -> str:
        """RMSNorm over the last axis."""
        g = self.g
        mean = g.op("ReduceMean", g.op("Pow", x, g.real(2.0)), axes=[-1], keepdims=1)
        scale = g.op("Div", g.real(1.0), g.op("Sqrt", g.op("Add", mean, g.real(self.shape.norm_eps))))
        return g.op("Mul", self.f32[name], g.op("Mul", x, scale))

    def rotate(self, x: str, rotation: tuple[str, str]) -> str:
        """Half-split rotary embedding of x [1, heads, sequence, head_dim]."""
        g, half = self.g, self.shape.head_dim // 2
        a = g.op("Slice", x, g.ints(0), g.ints(half), g.ints(3))
        b = g.op("Slice", x, g.ints(half), g.ints(2 * half), g.ints(3))
        turned = g.op("Concat", g.op("Neg", b), a, axis=-1)
        return g.op("Add", g.op("Mul", x, rotation[0]), g.op("Mul", turned, rotation[1]))

    def attention(self, h: str, i: int, bias: str, rotation: tuple[str, str]) -> str:
        """Grouped-query attention of layer i; h is [1, sequence, hidden]."""
        g, s = self.g, self.shape

        def heads(name: str, count: int) -> str:
            flat = g.op("MatMul", h, self.f32[f"layers.{i}.{name}"])
            return g.op("Transpose", g.op("Reshape", flat, g.ints(1, -1, count, s.head_dim)), perm=[0, 2, 1, 3])

        query = self.rotate(heads("q", s.heads), rotation)
        key = self.cached(i, "key", self.rotate(heads("k", s.kv_heads), rotation))
        value = self.cached(i, "value", heads("v", s.kv_heads))
        key, value = self.repeated(key), self.repeated(value)
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.real(s.head_dim**-0.5)), bias)
        mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
        rows = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.ints(1, -1, s.heads * s.head_dim))
        return g.op("MatMul", rows, self.f32[f"layers.{i}.o"])

    def cached(self, i: int, part: str, new: str) -> str:
        """All rows [1, kv_heads, total, head_dim]: those of the cache, then the new ones, which the cache keeps."""
        g, s = self.g, self.shape
        if self.form == "stateful":
            state: dict[str, Any] = {
                "domain": STATE_DOMAIN,
                "variable_id": f"layers.{i}.{part}",
                "shape": [1, s.kv_heads, -1, s.head_dim],
                "dtype": int(TensorProto.FLOAT),
            }
            full = g.op("Concat", g.op("ReadValue", **state), new, axis=2)
            g.op("Assign", full, **state)
            return full
        past = g.input(f"past_key_values.{i}.{part}", TensorProto.FLOAT, [1, s.kv_heads, "past", s.head_dim])
        full = g.op("Concat", past, new, out=f"present.{i}.{part}", axis=2)
        g.output(full, TensorProto.FLOAT, [1, s.kv_heads, "total", s.head_dim])
        return full

    def repeated(self, x: str) -> str:
        """Each key or value head as often as query heads share it: [1, heads, total, head_dim]."""
        g, s = self.g, self.shape
        wide = g.op("Expand", g.op("Unsqueeze", x, g.ints(2)), g.ints(1, 1, s.heads // s.kv_heads, 1, 1))
        return g.op("Reshape", wide, g.ints(1, s.heads, -1, s.head_dim))

    def mlp(self, h: str, i: int) -> str:
        """SwiGLU of layer i."""
        g, w = self.g, {name: self.f32[f"layers.{i}.{name}"] for name in ("gate", "up", "down")}
        gate = g.op("MatMul", h, w["gate"])
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        return g.op("MatMul", g.op("Mul", gate, g.op("MatMul", h, w["up"])), w["down"])


def build_decoder(shape: Shape, weights: Mapping[str, NDArray[np.float16]], form: Form = "stateful") -> ModelProto:
    """The ONNX model of `shape` with f16 `weights` (named and laid out as `Shape.weight_shapes` says)."""
    return Decoder(shape, weights, form).build()
