"""DequantizeLinear of constants as constants of floats: against float64 and onnxruntime, which must agree exactly."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from npuc.graph.infer import Inference
from npuc.graph.quantised.table import dequantise
from tests.oracle.graph.one_node import OneNode, weight_of

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
    assert [node.op_type for node in model.graph] == ["Gather"]
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
