"""DequantizeLinear of constants as constants of floats: against float64 and onnxruntime, which must agree exactly."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from npuc.graph.infer import Inference
from npuc.graph.quantised.table import dequantise
from tests.oracle.graph.one_node import OneNode, run, weight_of

RANDOM = np.random.default_rng(22)

LINEAR = [
    (kind, spread, zeros, scale)
    for kind in ("int8", "uint8", "int4", "uint4", "int32", "int16")
    for spread in ("tensor", "axis 0", "axis -1", "block 0", "block 1")
    for zeros in (False, True)
    for scale in (np.float32, np.float16)
    if not (kind == "int32" and zeros)  # the standard wants none
]


@pytest.mark.parametrize(("kind", "spread", "zeros", "scale"), LINEAR)
def test_dequantize_linear(kind: str, spread: str, zeros: bool, scale: Any) -> None:
    shape, dtype = (6, 4, 5), np.dtype(getattr(ml_dtypes, kind, None) or kind)
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}.get(kind, (-30000, 30000))
    word, _, number = spread.partition(" ")
    axis = int(number or 0)
    groups: tuple[int, ...] = {"tensor": (), "axis": (shape[axis],)}.get(word, (2, 4, 5) if axis == 0 else (6, 2, 5))
    held = {0: RANDOM.integers(low, high, shape), 1: RANDOM.uniform(0.1, 1, groups)}
    if zeros:
        held[2] = RANDOM.integers(low, high, groups)
    attrs = {"tensor": {}, "axis": {"axis": axis}, "block": {"axis": axis, "block_size": 3 - axis}}[word]
    block = {0: 3, 1: 2}.get(axis, 1)
    types = {0: dtype, 1: np.dtype(scale), 2: dtype}
    stored = {place: np.asarray(array).astype(types[place]) for place, array in held.items()}
    one = OneNode("DequantizeLinear", {}, stored, attrs, domain="")
    before = one.run(one.model())
    model = one.model()
    assert len(dequantise(model, Inference())) == 1
    found = weight_at_output(model)

    def spread_out(parameter: np.ndarray) -> np.ndarray:
        wide = np.asarray(parameter, np.float64)
        if word == "axis":
            return wide.reshape([-1 if i == axis % 3 else 1 for i in range(3)])
        return wide if word == "tensor" else np.take(wide, np.arange(shape[axis]) // block, axis)

    want = (held[0] - spread_out(held.get(2, np.zeros(groups)))) * spread_out(stored[1])
    np.testing.assert_array_equal(found, want.astype(np.float32).astype(scale))
    np.testing.assert_array_equal(found, before)


def weight_at_output(model: ir.Model) -> np.ndarray:
    """The constant that an Identity hands to the graph's output."""
    (node,) = model.graph
    assert node.op_type == "Identity" and node.inputs[0] is not None and node.inputs[0].const_value is not None
    return node.inputs[0].const_value.numpy()


def test_rows_of_codes_are_gathered_as_numbers() -> None:
    """Gather of codes, then DequantizeLinear with one scale: the table is dequantised, not the rows."""
    table = RANDOM.integers(0, 256, (9, 4)).astype(np.uint8)
    rows = OneNode(
        "DequantizeLinear", {1: np.array([[8, 0, -1]])}, {0: table, 2: np.float32(0.5), 3: np.uint8(7)}, domain=""
    )
    model = gathered(rows)
    before = rows.run(model)
    dequantise(model, Inference())
    assert [node.op_type for node in model.graph] == ["DequantizedRows", "Gather"]
    np.testing.assert_array_equal(weight_of(model, (9, 4)), (table.astype(np.float32) - 7) * np.float32(0.5))
    np.testing.assert_array_equal(rows.run(model), before)


def gathered(one: OneNode) -> ir.Model:
    """Operands 0 and 1 go into a Gather, its rows with operands 2 and 3 into the node."""
    held = {f"i{p}": ir.Tensor(np.asarray(a), name=f"i{p}") for p, a in one.held.items()}
    values = {
        name: ir.Value(name=name, shape=ir.Shape(t.shape.numpy()), type=ir.TensorType(t.dtype), const_value=t)
        for name, t in held.items()
    }
    ids = ir.Value(name="i1", shape=ir.Shape(one.feeds[1].shape), type=ir.TensorType(ir.DataType.INT64))
    rows = ir.node("Gather", [values["i0"], ids], {"axis": 0}, name="rows")
    node = ir.node(one.op_type, [rows.outputs[0], values["i2"], values["i3"]], name="numbers")
    rows.outputs[0].name, node.outputs[0].name = "codes", "o"
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [ids], node.outputs, nodes=[rows, node], initializers=list(values.values()), opset_imports={"": 21}, name="g"
    )
    return ir.Model(graph, ir_version=10)


KINDS = ("int8", "uint8", "int4", "uint4")
LAYOUTS = [
    (reader, kind, spread, zeros)
    for reader in ("MatMul", "Transpose", "Gemm", "GemmT", "Gather")
    for kind in KINDS
    for spread in ("tensor", "channel", "block")
    for zeros in (False, True)
    if (reader in ("MatMul", "Gather")) or (kind in ("int8", "int4") and zeros)
]


@pytest.mark.parametrize(("reader", "kind", "spread", "zeros"), LAYOUTS)
def test_matrices_stay_codes_whichever_way_they_lie(reader: str, kind: str, spread: str, zeros: bool) -> None:
    """Output channels are the last axis of MatMul and Gemm, the first of all others."""
    n, k, block = 6, 16, 8
    last = reader in ("MatMul", "Gemm")
    shape, axis = ((k, n), 1) if last else ((n, k), 0)
    groups = {"tensor": (), "channel": (n,), "block": (k // block, n) if last else (n, k // block)}[spread]
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}[kind]
    dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    codes = RANDOM.integers(low, high, shape)
    scales = RANDOM.uniform(0.1, 1, groups).astype(np.float32)
    points = RANDOM.integers(low, high, groups) if zeros else np.zeros(groups, np.int64)
    held = {"c": codes.astype(dtype), "s": scales} | ({"z": points.astype(dtype)} if zeros else {})
    attrs = {"tensor": {}, "channel": {"axis": axis}, "block": {"axis": 1 - axis, "block_size": block}}[spread]
    model = reading(reader, held, attrs)
    before = run(model, feeds_of(reader))
    report = dequantise(model, Inference())
    assert len(report) == 1 and report[0].startswith("1 weight kept as codes: ")

    def spread_out(parameter: np.ndarray) -> np.ndarray:
        if spread == "channel":
            return parameter.reshape((1, n) if last else (n, 1))
        return parameter if spread == "tensor" else np.repeat(parameter, block, 1 - axis)

    want = (codes - spread_out(points)) * spread_out(scales.astype(np.float64))
    turned = reader == "Transpose"
    found = weight_of(model, (k, n) if turned else shape)
    np.testing.assert_array_equal(found.T if turned else found, want.astype(np.float32))
    np.testing.assert_allclose(run(model, feeds_of(reader)), before, rtol=1e-5, atol=1e-5)


def feeds_of(reader: str) -> dict[str, np.ndarray]:
    if reader == "Gather":
        return {"x": np.array([[5, 0, -1]])}
    return {"x": np.random.default_rng(3).normal(size=(3, 16)).astype(np.float32)}


def reading(reader: str, held: dict[str, np.ndarray], attrs: dict[str, Any]) -> ir.Model:
    """A weight of DequantizeLinear and the one node that reads it, for Transpose with a product behind it."""
    feed = feeds_of(reader)["x"]
    x = ir.Value(name="x", shape=ir.Shape(feed.shape), type=ir.TensorType(ir.DataType.from_numpy(feed.dtype)))
    constants = []
    for name, array in held.items():
        kind = ir.DataType.from_numpy(array.dtype)
        tensor = ir.Tensor(array, kind, name=name)
        constants.append(ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(kind), const_value=tensor))
    numbers = ir.node("DequantizeLinear", constants, attrs, name="numbers")
    weight = numbers.outputs[0]
    nodes = [numbers]
    if reader == "Transpose":
        nodes.append(ir.node("Transpose", [weight], {"perm": [1, 0]}, name="turn"))
        weight = nodes[-1].outputs[0]
    if reader == "Gather":
        nodes.append(ir.node("Gather", [weight, x], {"axis": 0}, name="read"))
    elif reader.startswith("Gemm"):
        nodes.append(ir.node("Gemm", [x, weight], {"transB": int(reader == "GemmT")}, name="read"))
    else:
        nodes.append(ir.node("MatMul", [x, weight], name="read"))
    for number, node in enumerate(nodes):
        node.outputs[0].name, node.outputs[0].type = f"o{number}", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([x], nodes[-1].outputs, nodes=nodes, initializers=constants, opset_imports={"": 21}, name="g")
    return ir.Model(graph, ir_version=10)
