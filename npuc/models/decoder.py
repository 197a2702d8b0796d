"""A decoder as plain ONNX operators, with its KV cache as pairs of inputs and outputs.

Inputs: input_ids [batch, sequence], attention_mask [batch, total], position_ids [batch, sequence], int64, and for each
layer past_key_values.N.key and .value [batch, kv_heads, past, head_dim], f32. `total` is past + sequence; a mask of 0
hides a row. Outputs: logits [batch, sequence, vocab], then present.N.key and .value [batch, kv_heads, total, head_dim].
The operators are those that exporters write for such a model; a tied embedding table is stored once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, TensorProto

from npuc.models.builder import Builder
from npuc.models.feed_forward import gated, mixture
from npuc.models.shape import EMBEDDING, HEAD, NORM, DecoderShape

BATCH, SEQUENCE, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"
Rotation = tuple[str, str]


class Decoder:
    """Builds the graph of one shape; `build_decoder` is the way in."""

    def __init__(self, shape: DecoderShape, data: str) -> None:
        self.shape, self.g = shape, Builder(data)

    def build(self) -> ModelProto:
        """The whole model; every weight has been declared."""
        g, s = self.g, self.shape
        g.scope = "/model"
        ids = g.input("input_ids", TensorProto.INT64, [BATCH, SEQUENCE])
        mask = g.input("attention_mask", TensorProto.INT64, [BATCH, TOTAL])
        positions = g.input("position_ids", TensorProto.INT64, [BATCH, SEQUENCE])
        pasts = [(self.past(i, "key"), self.past(i, "value")) for i in range(s.layers)]
        g.output("logits", TensorProto.FLOAT, [BATCH, SEQUENCE, s.vocab])
        views = self.views(ids, mask, positions)
        g.scope = "/model/embed_tokens"
        x = g.op("Gather", EMBEDDING, ids, axis=0)
        if s.scaled_embedding:
            x = g.op("Mul", x, g.real(s.hidden**0.5))
        for i, past in enumerate(pasts):
            x = self.layer(x, i, *views[s.windowed(i)], past)
        x = self.norm(x, NORM)
        g.scope = "/lm_head"
        g.op("MatMul", x, g.op("Transpose", EMBEDDING, perm=[1, 0]) if s.tied else HEAD, out="logits")
        return g.model("decoder")

    def past(self, i: int, part: str) -> str:
        """Declares the cached rows of a layer."""
        dims: list[int | str] = [BATCH, self.shape.kv_heads, PAST, self.shape.head_dim]
        return self.g.input(f"past_key_values.{i}.{part}", TensorProto.FLOAT, dims)

    def views(self, ids: str, mask: str, positions: str) -> dict[bool, tuple[str, Rotation]]:
        """What a row may see and the angles, for layers that see everything (False) and a window (True)."""
        s = self.shape
        seen, bias = self.bias(ids, mask)
        found = {False: (bias, self.rotation(positions, s.theta, s.stretch, "rotary_emb"))}
        if s.windows is not None:
            found[True] = (self.hidden_rows(seen), self.rotation(positions, s.windows.theta, 1.0, "rotary_emb_local"))
        return found

    def bias(self, ids: str, mask: str) -> tuple[tuple[str, str, str], str]:
        """[batch, 1, sequence, total]: 0 where a row may look, the lowest f32 elsewhere (later rows, padding); and the
        columns, rows and visible places that it is made of."""
        g = self.g
        new = g.op("Gather", g.op("Shape", ids), g.whole(1), axis=0)
        total = g.op("Gather", g.op("Shape", mask), g.whole(1), axis=0)
        columns = g.op("Range", g.whole(0), total, g.whole(1))
        rows = g.op("Range", g.op("Sub", total, new), total, g.whole(1))
        each = g.op("Unsqueeze", rows, g.ints(1))
        causal = g.op("LessOrEqual", columns, each)
        kept = g.op("Cast", g.op("Unsqueeze", mask, g.ints(1, 2)), to=TensorProto.BOOL)
        visible = g.op("And", causal, kept)
        return (columns, each, visible), self.lowest_unless(visible)

    def hidden_rows(self, seen: tuple[str, str, str]) -> str:
        """As `bias`, with the columns before the window hidden, too."""
        g, windows = self.g, self.shape.windows
        assert windows is not None
        columns, rows, visible = seen
        near = g.op("Greater", columns, g.op("Sub", rows, g.whole(windows.size)))
        return self.lowest_unless(g.op("And", visible, near))

    def lowest_unless(self, visible: str) -> str:
        g = self.g
        return g.op("Where", visible, g.real(0.0), g.real(float(np.finfo(np.float32).min)))

    def rotation(self, positions: str, theta: float, stretch: float, scope: str) -> Rotation:
        """cos and sin of position / stretch * theta^(-2j/d), each [batch, 1, sequence, head_dim], the halves alike."""
        g, d = self.g, self.shape.head_dim
        g.scope = f"/model/{scope}"
        frequency = (theta ** (-np.arange(0, d, 2) / d) / stretch).astype(np.float32)
        place = g.op("Unsqueeze", g.op("Cast", positions, to=TensorProto.FLOAT), g.ints(1, 3))
        angle = g.op("Mul", place, g.constant(frequency, f"model.{scope}.inv_freq"))
        angle = g.op("Concat", angle, angle, axis=-1)
        return g.op("Cos", angle), g.op("Sin", angle)

    def layer(self, x: str, i: int, bias: str, rotation: Rotation, past: tuple[str, str]) -> str:
        """Attention and feed-forward part of layer i with their norms and sums."""
        post, name = self.shape.post_norms, f"model.layers.{i}"
        h = self.attention(self.norm(x, f"{name}.input_layernorm.weight"), i, bias, rotation, past)
        x = self.add(x, self.norm(h, f"{name}.post_attention_layernorm.weight") if post else h, i)
        before = "pre_feedforward_layernorm" if post else "post_attention_layernorm"
        h = self.feed_forward(self.norm(x, f"{name}.{before}.weight"), i)
        return self.add(x, self.norm(h, f"{name}.post_feedforward_layernorm.weight") if post else h, i)

    def add(self, x: str, y: str, i: int) -> str:
        self.g.scope = f"/model/layers.{i}"
        return self.g.op("Add", x, y)

    def norm(self, x: str, weight: str) -> str:
        """RMSNorm over the last axis."""
        g = self.g
        g.scope = "/" + weight.removesuffix(".weight").replace(".", "/").replace("layers/", "layers.")
        mean = g.op("ReduceMean", g.op("Pow", x, g.real(2.0)), g.ints(-1), keepdims=1)
        scale = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, g.real(self.shape.epsilon))))
        return g.op("Mul", weight, g.op("Mul", x, scale))

    def rotate(self, x: str, rotation: Rotation) -> str:
        """Rotary embedding in halves, of x [batch, heads, sequence, head_dim]."""
        g, half = self.g, self.shape.head_dim // 2
        a = g.op("Slice", x, g.ints(0), g.ints(half), g.ints(3))
        b = g.op("Slice", x, g.ints(half), g.ints(2 * half), g.ints(3))
        turned = g.op("Concat", g.op("Neg", b), a, axis=-1)
        return g.op("Add", g.op("Mul", x, rotation[0]), g.op("Mul", turned, rotation[1]))

    def attention(self, h: str, i: int, bias: str, rotation: Rotation, past: tuple[str, str]) -> str:
        """Grouped-query attention of layer i; h is [batch, sequence, hidden]."""
        g, s = self.g, self.shape
        scope = g.scope = f"/model/layers.{i}/self_attn"

        def heads(name: str, count: int, norm: str = "") -> str:
            flat = g.linear(h, f"model.layers.{i}.self_attn.{name}")
            split = g.op("Transpose", g.op("Reshape", flat, g.ints(0, -1, count, s.head_dim)), perm=[0, 2, 1, 3])
            if norm and s.head_norms:
                split = self.norm(split, f"model.layers.{i}.self_attn.{norm}.weight")
                g.scope = scope
            return split

        query = self.rotate(heads("q_proj", s.heads, "q_norm"), rotation)
        key = self.cached(past[0], f"present.{i}.key", self.rotate(heads("k_proj", s.kv_heads, "k_norm"), rotation))
        value = self.cached(past[1], f"present.{i}.value", heads("v_proj", s.kv_heads))
        scores = g.op("MatMul", query, g.op("Transpose", self.repeated(key), perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.real(s.head_dim**-0.5)), bias)
        mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), self.repeated(value))
        rows = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.ints(0, -1, s.query_width))
        return g.linear(rows, f"model.layers.{i}.self_attn.o_proj")

    def cached(self, past: str, present: str, new: str) -> str:
        """All rows [batch, kv_heads, total, head_dim]: the cached ones, then the new."""
        dims: list[int | str] = [BATCH, self.shape.kv_heads, TOTAL, self.shape.head_dim]
        full = self.g.op("Concat", past, new, out=present, axis=2)
        self.g.output(full, TensorProto.FLOAT, dims)
        return full

    def repeated(self, x: str) -> str:
        """Each key or value head as often as query heads share it: [batch, heads, total, head_dim]."""
        g, s = self.g, self.shape
        wide = g.op("Expand", g.op("Unsqueeze", x, g.ints(2)), g.ints(1, 1, s.heads // s.kv_heads, 1, 1))
        return g.op("Reshape", wide, g.ints(0, s.heads, -1, s.head_dim))

    def feed_forward(self, h: str, i: int) -> str:
        self.g.scope = f"/model/layers.{i}/mlp"
        part = gated if self.shape.experts is None else mixture
        return part(self.g, self.shape, h, f"model.layers.{i}.mlp")


def build_decoder(
    shape: DecoderShape, weights: Mapping[str, tuple[int, ...]], data: str
) -> tuple[ModelProto, dict[str, int]]:
    """The model, and the offset of each weight in its data file, which is named `data` and lies beside it.

    weights: name and shape in the order of the file, as `DecoderShape.weights` gives them.
    """
    decoder = Decoder(shape, data)
    offsets = {}
    for name, extents in weights.items():
        decoder.g.weight(name, extents)
        offsets[name] = decoder.g.data_bytes - 4 * int(np.prod(extents))
    return decoder.build(), offsets
