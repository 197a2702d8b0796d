"""A decoder of the llama kind as plain ONNX operators, with its KV cache as pairs of inputs and outputs.

Inputs: input_ids [batch, sequence], attention_mask [batch, total], position_ids [batch, sequence], int64, and for each
layer past_key_values.N.key and .value [batch, kv_heads, past, head_dim], f32. `total` is past + sequence; a mask of 0
hides a row. Outputs: logits [batch, sequence, vocab], then present.N.key and .value [batch, kv_heads, total, head_dim].
The operators are those that exporters write for such a model; the embedding table is the head, too, and stored once.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto

from npuc.models.builder import Builder
from npuc.models.llama import LlamaShape
from npuc.models.weights import EMBEDDING, NORM, Weight

BATCH, SEQUENCE, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"


class Decoder:
    """Builds the graph of one shape; `build_decoder` is the way in."""

    def __init__(self, shape: LlamaShape, data: str) -> None:
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
        bias, rotation = self.bias(ids, mask), self.rotation(positions)
        g.scope = "/model/embed_tokens"
        x = g.op("Gather", EMBEDDING, ids, axis=0)
        for i, past in enumerate(pasts):
            layer = f"model.layers.{i}"
            h = self.norm(x, f"{layer}.input_layernorm.weight")
            x = self.add(x, self.attention(h, i, bias, rotation, past), f"/model/layers.{i}")
            h = self.norm(x, f"{layer}.post_attention_layernorm.weight")
            x = self.add(x, self.mlp(h, i), f"/model/layers.{i}")
        x = self.norm(x, NORM)
        g.scope = "/lm_head"
        g.op("MatMul", x, g.op("Transpose", EMBEDDING, perm=[1, 0]), out="logits")
        return g.model("decoder")

    def past(self, i: int, part: str) -> str:
        """Declares the cached rows of a layer."""
        dims: list[int | str] = [BATCH, self.shape.kv_heads, PAST, self.shape.head_dim]
        return self.g.input(f"past_key_values.{i}.{part}", TensorProto.FLOAT, dims)

    def add(self, x: str, y: str, scope: str) -> str:
        self.g.scope = scope
        return self.g.op("Add", x, y)

    def bias(self, ids: str, mask: str) -> str:
        """[batch, 1, sequence, total]: 0 where a row may look, the lowest f32 elsewhere (later rows, padding)."""
        g = self.g
        new = g.op("Gather", g.op("Shape", ids), g.whole(1), axis=0)
        total = g.op("Gather", g.op("Shape", mask), g.whole(1), axis=0)
        columns = g.op("Range", g.whole(0), total, g.whole(1))
        rows = g.op("Range", g.op("Sub", total, new), total, g.whole(1))
        causal = g.op("LessOrEqual", columns, g.op("Unsqueeze", rows, g.ints(1)))
        kept = g.op("Cast", g.op("Unsqueeze", mask, g.ints(1, 2)), to=TensorProto.BOOL)
        lowest = float(np.finfo(np.float32).min)
        return g.op("Where", g.op("And", causal, kept), g.real(0.0), g.real(lowest))

    def rotation(self, positions: str) -> tuple[str, str]:
        """cos and sin of position * theta^(-2j/d), each [batch, 1, sequence, head_dim], the two halves alike."""
        g, d = self.g, self.shape.head_dim
        g.scope = "/model/rotary_emb"
        frequency = (self.shape.theta ** (-np.arange(0, d, 2) / d)).astype(np.float32)
        place = g.op("Unsqueeze", g.op("Cast", positions, to=TensorProto.FLOAT), g.ints(1, 3))
        angle = g.op("Mul", place, g.constant(frequency, "model.rotary_emb.inv_freq"))
        angle = g.op("Concat", angle, angle, axis=-1)
        return g.op("Cos", angle), g.op("Sin", angle)

    def norm(self, x: str, weight: str) -> str:
        """RMSNorm over the last axis."""
        g = self.g
        g.scope = "/" + weight.removesuffix(".weight").replace(".", "/").replace("layers/", "layers.")
        mean = g.op("ReduceMean", g.op("Pow", x, g.real(2.0)), g.ints(-1), keepdims=1)
        scale = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, g.real(self.shape.epsilon))))
        return g.op("Mul", weight, g.op("Mul", x, scale))

    def linear(self, h: str, name: str) -> str:
        """h [batch, sequence, in] times the weight [in, out] of that name."""
        outer = self.g.scope
        self.g.scope = f"{outer}/{name.split('.')[-1]}"
        out = self.g.op("MatMul", h, f"model.{name}.weight")
        self.g.scope = outer
        return out

    def rotate(self, x: str, rotation: tuple[str, str]) -> str:
        """Rotary embedding in halves, of x [batch, heads, sequence, head_dim]."""
        g, half = self.g, self.shape.head_dim // 2
        a = g.op("Slice", x, g.ints(0), g.ints(half), g.ints(3))
        b = g.op("Slice", x, g.ints(half), g.ints(2 * half), g.ints(3))
        turned = g.op("Concat", g.op("Neg", b), a, axis=-1)
        return g.op("Add", g.op("Mul", x, rotation[0]), g.op("Mul", turned, rotation[1]))

    def attention(self, h: str, i: int, bias: str, rotation: tuple[str, str], past: tuple[str, str]) -> str:
        """Grouped-query attention of layer i; h is [batch, sequence, hidden]."""
        g, s = self.g, self.shape
        g.scope = f"/model/layers.{i}/self_attn"

        def heads(name: str, count: int) -> str:
            flat = self.linear(h, f"layers.{i}.self_attn.{name}")
            return g.op("Transpose", g.op("Reshape", flat, g.ints(0, -1, count, s.head_dim)), perm=[0, 2, 1, 3])

        query = self.rotate(heads("q_proj", s.heads), rotation)
        key = self.cached(past[0], f"present.{i}.key", self.rotate(heads("k_proj", s.kv_heads), rotation))
        value = self.cached(past[1], f"present.{i}.value", heads("v_proj", s.kv_heads))
        scores = g.op("MatMul", query, g.op("Transpose", self.repeated(key), perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.real(s.head_dim**-0.5)), bias)
        mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), self.repeated(value))
        rows = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.ints(0, -1, s.hidden))
        return self.linear(rows, f"layers.{i}.self_attn.o_proj")

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

    def mlp(self, h: str, i: int) -> str:
        """SwiGLU of layer i."""
        g = self.g
        g.scope = f"/model/layers.{i}/mlp"
        gate = self.linear(h, f"layers.{i}.mlp.gate_proj")
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        return self.linear(g.op("Mul", gate, self.linear(h, f"layers.{i}.mlp.up_proj")), f"layers.{i}.mlp.down_proj")


def build_decoder(shape: LlamaShape, weights: list[Weight], data: str) -> tuple[ModelProto, dict[str, int]]:
    """The model, and the offset of each weight in its data file, which is named `data` and lies beside it."""
    decoder = Decoder(shape, data)
    offsets = {}
    for weight in weights:
        decoder.g.weight(weight.name, weight.shape)
        offsets[weight.name] = decoder.g.data_bytes - 4 * int(np.prod(weight.shape))
    return decoder.build(), offsets
