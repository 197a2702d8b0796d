"""One-layer decoders whose cache is written in every form that files have; weights and answers are alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCAB, HIDDEN, HEADS, GROUPS, SIZE = 37, 16, 4, 2, 16
CACHE_FORMS = ("concat", "attention", "multi_head", "tensor_scatter", "tensor_scatter_circular", "gqa", "gqa_shared")
SLOTS = 24
INT, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


class GraphMaker:
    """Nodes in order, constants by content; every value gets a name of its own."""

    def __init__(self, seed: int = 5) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def const(self, array: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(array, dtype), name))
        return name

    def weight(self, *shape: int, scale: float = 0.5) -> str:
        return self.const(self._random.normal(scale=scale, size=shape), np.float32)

    def op(
        self, kind: str, *inputs: str, out: str | Sequence[str] | None = None, domain: str = "", **attributes: Any
    ) -> str:
        """The first output's name."""
        outs = [out] if isinstance(out, str) else list(out or [f"v{len(self.nodes)}"])
        self.nodes.append(
            helper.make_node(kind, list(inputs), outs, name=f"n{len(self.nodes)}_{kind}", domain=domain, **attributes)
        )
        return outs[0]

    def write(
        self, path: Path, inputs: Sequence[tuple[str, int, list[Any]]], outputs: Sequence[tuple[str, int, list[Any]]],
        opset: int,
    ) -> Path:  # fmt: skip
        graph = helper.make_graph(
            self.nodes, "decoder", [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(*value) for value in outputs], self.constants,
        )  # fmt: skip
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
        return path


def decoder(path: Path, form: str, slots: int = SLOTS) -> Path:
    """Writes a decoder without positions whose cache has one of CACHE_FORMS. slots: of the fixed ones."""
    g = GraphMaker()
    x = g.op("Gather", g.weight(VOCAB, HIDDEN), "input_ids")
    q, k, v = (g.op("MatMul", x, g.weight(HIDDEN, n * SIZE)) for n in (HEADS, GROUPS, GROUPS))
    fixed = form in ("tensor_scatter", "tensor_scatter_circular", "gqa_shared")
    made, inputs = _ATTENTION[form](g, q, k, v)
    flat = g.op("Add", x, g.op("MatMul", made, g.weight(HEADS * SIZE, HIDDEN)))
    g.op("MatMul", flat, g.weight(HIDDEN, VOCAB, scale=1.0), out="logits")
    groups = HEADS if form == "multi_head" else GROUPS
    cache = [1, groups, slots if fixed else "past", SIZE]
    after = [1, groups, slots if fixed else "total", SIZE]
    return g.write(
        path,
        [("input_ids", INT, [1, "rows"]), *inputs, ("past_k", FLOAT, cache), ("past_v", FLOAT, cache)],
        [("logits", FLOAT, [1, "rows", VOCAB]), ("new_k", FLOAT, after), ("new_v", FLOAT, after)],
        24,
    )


Made = tuple[str, list[tuple[str, int, list[Any]]]]


def _heads(g: GraphMaker, x: str, count: int) -> str:
    return g.op("Transpose", g.op("Reshape", x, g.const([0, 0, count, SIZE])), perm=[0, 2, 1, 3])


def _concat(g: GraphMaker, q: str, k: str, v: str) -> Made:
    """Concat and a float mask from position_ids, the product written out."""
    q, k, v = _heads(g, q, HEADS), _heads(g, k, GROUPS), _heads(g, v, GROUPS)
    k = g.op("Concat", "past_k", k, out="new_k", axis=2)
    v = g.op("Concat", "past_v", v, out="new_v", axis=2)
    total = g.op("Squeeze", g.op("Shape", k, start=2, end=3))
    slots = g.op("Range", g.const(0), total, g.const(1))
    seen = g.op("LessOrEqual", slots, g.op("Unsqueeze", "position_ids", g.const([1, 3])))
    k, v = (g.op("Tile", g.op("Unsqueeze", y, g.const([2])), g.const([1, 1, HEADS // GROUPS, 1, 1])) for y in (k, v))
    k, v = (g.op("Reshape", y, g.const([0, HEADS, -1, SIZE])) for y in (k, v))
    scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.const(SIZE**-0.5, np.float32))
    weights = g.op("Softmax", g.op("Where", seen, scores, g.const(-1e30, np.float32)), axis=-1)
    mixed = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    return g.op("Reshape", mixed, g.const([0, 0, -1])), [("position_ids", INT, [1, "rows"])]


def _attention(g: GraphMaker, q: str, k: str, v: str) -> Made:
    """The operator of the standard with the past as inputs, in its causal order."""
    made = g.op(
        "Attention", q, k, v, "", "past_k", "past_v", out=["mixed", "new_k", "new_v"], is_causal=1, q_num_heads=HEADS,
        kv_num_heads=GROUPS,
    )  # fmt: skip
    return made, []


def _multi_head(g: GraphMaker, q: str, k: str, v: str) -> Made:
    """MultiHeadAttention of onnxruntime, in whose cache every query head has a key head of its own."""
    wide = []
    for x in (k, v):
        twice = g.op(
            "Tile", g.op("Reshape", x, g.const([0, 0, GROUPS, 1, SIZE])), g.const([1, 1, 1, HEADS // GROUPS, 1])
        )
        wide.append(g.op("Reshape", twice, g.const([0, 0, HEADS * SIZE])))
    made = g.op(
        "MultiHeadAttention", q, *wide, "", "", "", "past_k", "past_v", out=["mixed", "new_k", "new_v"],
        domain="com.microsoft", num_heads=HEADS, unidirectional=1,
    )  # fmt: skip
    return made, []


def _tensor_scatter(g: GraphMaker, q: str, k: str, v: str, mode: str = "linear") -> Made:
    """Fixed caches that TensorScatter writes; nonpad_kv_seqlen says how many slots are filled."""
    q, k, v = _heads(g, q, HEADS), _heads(g, k, GROUPS), _heads(g, v, GROUPS)
    k = g.op("TensorScatter", "past_k", k, "write_at", out="new_k", mode=mode)
    v = g.op("TensorScatter", "past_v", v, "write_at", out="new_v", mode=mode, axis=2)
    mixed = g.op("Transpose", g.op("Attention", q, k, v, "", "", "", "filled", is_causal=1), perm=[0, 2, 1, 3])
    return g.op("Reshape", mixed, g.const([0, 0, -1])), [("write_at", INT, [1]), ("filled", INT, [1])]


def _gqa(g: GraphMaker, q: str, k: str, v: str) -> Made:
    """GroupQueryAttention of onnxruntime, whose lengths are inputs."""
    made = g.op(
        "GroupQueryAttention", q, k, v, "past_k", "past_v", "seqlens_k", "all", out=["mixed", "new_k", "new_v"],
        domain="com.microsoft", num_heads=HEADS, kv_num_heads=GROUPS,
    )  # fmt: skip
    return made, [("seqlens_k", TensorProto.INT32, [1]), ("all", TensorProto.INT32, [])]


_ATTENTION = {
    "concat": _concat,
    "attention": _attention,
    "multi_head": _multi_head,
    "tensor_scatter": _tensor_scatter,
    "tensor_scatter_circular": lambda g, q, k, v: _tensor_scatter(g, q, k, v, "circular"),
    "gqa": _gqa,
    "gqa_shared": _gqa,
}
