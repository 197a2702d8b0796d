"""Fused operators written out in standard ones, against onnxruntime's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from npuc.frontend import ModelRefused
from npuc.graph.expand.table import expand
from npuc.graph.functions import add_functions
from tests.oracle.graph.stages import session

RANDOM = np.random.default_rng(11)
ORT = "com.microsoft"


def values(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def one_node(
    op_type: str,
    inputs: list[np.ndarray | None],
    attrs: dict[str, Any],
    outputs: int,
    domain: str = ORT,
    opset: int = 21,
) -> tuple[ir.Model, dict[str, np.ndarray]]:
    """A model of one node and its feeds. An output past the first has no type: the operator gives it."""
    given = [
        None
        if a is None
        else ir.Value(name=f"i{i}", shape=ir.Shape(a.shape), type=ir.TensorType(ir.DataType.from_numpy(a.dtype)))
        for i, a in enumerate(inputs)
    ]
    results = [ir.Value(name=f"o{i}", type=ir.TensorType(ir.DataType.FLOAT)) for i in range(outputs)]
    node = ir.Node(domain, op_type, given, ir.convenience.convert_attributes(attrs), outputs=results, name="fused")
    present = [value for value in given if value is not None]
    imports = {"": opset, ORT: 1}
    graph = ir.Graph(present, results, nodes=[node], opset_imports=imports, name="g")
    feeds = {f"i{i}": a for i, a in enumerate(inputs) if a is not None}
    return ir.Model(graph, ir_version=10), feeds


def agree(model: ir.Model, feeds: dict[str, np.ndarray], outputs: list[int]) -> None:
    """The model before and after `expand` gives the same outputs."""
    before = session(ir.to_proto(model).SerializeToString()).run(None, feeds)
    keep = [model.graph.outputs[i] for i in outputs]
    model.graph.outputs.clear()
    model.graph.outputs.extend(keep)
    assert expand(model) == 1
    add_functions(model)
    after = session(ir.to_proto(model).SerializeToString()).run(None, feeds)
    for index, found in zip(outputs, after, strict=True):
        np.testing.assert_allclose(found, before[index], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"local_window_size": 3},
        {"softcap": 1.5},
        {"scale": 0.7},
        {"do_rotary": 1},
        {"do_rotary": 1, "rotary_interleaved": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("past", [0, 4])
def test_group_query_attention(packed: bool, extra: dict[str, Any], past: int) -> None:
    heads, groups, size, rows = 4, 2, 16, 3
    q, k, v = values(1, rows, heads * size), values(1, rows, groups * size), values(1, rows, groups * size)
    if packed:
        q, k, v = np.concatenate([q, k, v], -1), None, None
    cos = values(12, size // 2) if extra.get("do_rotary") else None
    sin = values(12, size // 2) if extra.get("do_rotary") else None
    seqlens, total = np.array([past + rows - 1], np.int32), np.array(past + rows, np.int32)
    caches = [values(1, groups, past, size) for _ in range(2)]
    model, feeds = one_node(
        "GroupQueryAttention",
        [q, k, v, *caches, seqlens, total, cos, sin],
        {"num_heads": heads, "kv_num_heads": groups, **extra},
        outputs=3,
    )
    agree(model, feeds, [0, 1, 2])


@pytest.mark.parametrize("extra", [{}, {"local_window_size": 3}, {"softcap": 1.5}, {"smooth_softmax": 1}], ids=str)
@pytest.mark.parametrize("past", [0, 4])
def test_sinks_of_group_query_attention(extra: dict[str, Any], past: int) -> None:
    heads, groups, size, rows = 4, 2, 16, 3
    q, k, v = values(1, rows, heads * size), values(1, rows, groups * size), values(1, rows, groups * size)
    seqlens, total = np.array([past + rows - 1], np.int32), np.array(past + rows, np.int32)
    caches = [values(1, groups, past, size) for _ in range(2)]
    sinks = None if extra.get("smooth_softmax") else np.array([-3, 0.5, 2, 9], np.float32)
    operands = [q, k, v, *caches, seqlens, total, None, None, None, None, sinks]
    attrs = {"num_heads": heads, "kv_num_heads": groups, **extra}
    model, feeds = one_node("GroupQueryAttention", operands, attrs, outputs=3)
    agree(model, feeds, [0, 1, 2])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("flat", [True, False])
def test_rotary_of_onnxruntime(interleaved: int, flat: bool) -> None:
    x = values(1, 3, 4 * 8) if flat else values(1, 4, 3, 8)
    inputs = [x, np.array([[2, 0, 5]]), values(6, 4), values(6, 4)]
    model, feeds = one_node("RotaryEmbedding", list(inputs), {"interleaved": interleaved}, outputs=1)
    agree(model, feeds, [0])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [True, False])
def test_rotary_of_the_standard(interleaved: int, positions: bool) -> None:
    tables = [values(6, 2), values(6, 2), np.array([[2, 0, 5]])] if positions else [values(1, 3, 2), values(1, 3, 2)]
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": 4}
    model, feeds = one_node("RotaryEmbedding", [values(1, 4, 3, 8), *tables], attrs, 1, domain="", opset=23)
    agree(model, feeds, [0])


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("mask", ["bool", "float", None])
def test_attention_of_the_standard(groups: int, mask: str | None) -> None:
    seen = np.tril(np.ones((3, 5), bool), 2)[None, None]
    bias = {"bool": seen, "float": np.where(seen, 0, -1e9).astype(np.float32), None: None}[mask]
    inputs = [values(1, 4, 3, 8), values(1, groups, 5, 8), values(1, groups, 5, 6), bias]
    model, feeds = one_node("Attention", inputs if bias is not None else inputs[:3], {}, 1, domain="", opset=23)
    agree(model, feeds, [0])


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("flat", [False, True])
def test_causal_attention_of_the_standard(flat: bool, past: int, softcap: float) -> None:
    q, k, v = (values(1, 3, n * 8) if flat else values(1, n, 3, 8) for n in (4, 2, 2))
    heads = {"q_num_heads": 4, "kv_num_heads": 2} if flat else {}
    cache = [None, values(1, 2, past, 8), values(1, 2, past, 8)] if past else []
    attrs = {"is_causal": 1, "softcap": softcap, **heads}
    model, feeds = one_node("Attention", [q, k, v, *cache], attrs, 3 if past else 1, domain="", opset=23)
    agree(model, feeds, [0, 1, 2] if past else [0])


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [False, True])
def test_filled_slots_of_attention(mask: bool, causal: int) -> None:
    """Two batches with other numbers of filled slots: a row's own slot follows from them."""
    seen = RANDOM.random((2, 1, 3, 7)) > 0.3
    seen[..., :2] = True
    inputs = [values(2, 4, 3, 8), values(2, 2, 7, 8), values(2, 2, 7, 8), seen if mask else None, None, None]
    model, feeds = one_node("Attention", [*inputs, np.array([4, 6])], {"is_causal": causal}, 1, domain="", opset=24)
    agree(model, feeds, [0])


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize(("bias", "order"), [(False, 1), (True, 1), (True, 0)])
def test_multi_head_attention(bias: bool, order: int, past: int, padding: bool) -> None:
    q, k, v = (values(1, 3, 32) for _ in range(3))
    cache = [values(1, 4, past, 8), values(1, 4, past, 8)] if past else []
    mask = np.array([[1] * (past + 2) + [0]], np.int32) if padding else None
    inputs = [q, k, v, values(96) if bias else None, mask, None, *cache]
    attrs = {"num_heads": 4, "unidirectional": order}
    model, feeds = one_node("MultiHeadAttention", inputs, attrs, 3 if past else 1)
    agree(model, feeds, [0, 1, 2] if past else [0])


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize(("bias", "past"), [(False, True), (True, True), (True, False)])
def test_convolution_with_a_state(bias: bool, past: bool, activation: str) -> None:
    inputs = [values(1, 6, 5), values(6, 1, 3), values(6) if bias else None, values(1, 6, 2) if past else None]
    attrs = {"ndim": 1, "activation": activation}
    model, feeds = one_node("CausalConvWithState", inputs if past else inputs[:3], attrs, 2)
    agree(model, feeds, [0, 1])


@pytest.mark.parametrize("op_type", ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization"])
@pytest.mark.parametrize("bias", [True, False])
def test_skip_norms(op_type: str, bias: bool) -> None:
    inputs: list[np.ndarray | None] = [values(1, 3, 8), values(1, 3, 8), values(8)]
    if op_type == "SkipLayerNormalization":
        inputs.append(values(8))
    if bias:
        inputs.append(values(8))
    model, feeds = one_node(op_type, inputs, {"epsilon": 1e-3}, outputs=4)
    model.graph.outputs[:] = [model.graph.outputs[0], model.graph.outputs[3]]
    for unused in (1, 2):
        model.graph[0].outputs[unused].name = ""
    agree(model, feeds, [0, 1])


@pytest.mark.parametrize(
    ("op_type", "count", "attrs"),
    [("FastGelu", 2, {}), ("FastGelu", 1, {}), ("Gelu", 1, {}), ("BiasGelu", 2, {}), ("QuickGelu", 1, {"alpha": 1.5})],
)
def test_gelus(op_type: str, count: int, attrs: dict[str, Any]) -> None:
    model, feeds = one_node(op_type, [values(2, 3, 8), values(8)][:count], attrs, outputs=1)
    agree(model, feeds, [0])


@pytest.mark.parametrize("attrs", [{"transB": 1, "alpha": 0.5}, {"transA": 1}, {}], ids=str)
def test_fused_matmul(attrs: dict[str, Any]) -> None:
    a = values(2, 4, 3) if attrs.get("transA") else values(2, 3, 4)
    b = values(2, 5, 4) if attrs.get("transB") else values(2, 4, 5)
    model, feeds = one_node("FusedMatMul", [a, b], attrs, outputs=1)
    agree(model, feeds, [0])


def test_form_that_is_not_known_is_refused_by_name() -> None:
    inputs = [values(1, 3, 4), values(1, 4), values(4, 4)]
    model, _ = one_node("FusedMatMul", list(inputs), {"transBatchA": 1}, 1)
    with pytest.raises(ModelRefused) as refused:
        expand(model)
    assert str(refused.value) == (
        "node 'fused' (com.microsoft::FusedMatMul): transBatchA and transBatchB are not supported"
    )
