"""A model of one node that reads a quantised weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.graph.functions import add_functions
from npuc.graph.quantised.packed import ROWS, WEIGHT
from tests.oracle.graph.stages import session

ORT = "com.microsoft"


@dataclass
class OneNode:
    """A model of one node. feeds: its inputs at run time; held: its constants; by the place of the operand."""

    op_type: str
    feeds: dict[int, np.ndarray]
    held: dict[int, np.ndarray]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ORT

    def model(self, copies: int = 1) -> ir.Model:
        """copies: of the node, each with an output."""
        inputs: list[ir.Value | None] = [None] * (max(*self.feeds, *self.held, -1) + 1)
        for place, array in (*self.feeds.items(), *self.held.items()):
            kind = ir.DataType.from_numpy(array.dtype)
            value = ir.Value(name=f"i{place}", shape=ir.Shape(array.shape), type=ir.TensorType(kind))
            if place in self.held:
                value.const_value = ir.Tensor(array, kind, name=value.name)
            inputs[place] = value
        nodes = [
            ir.Node(self.domain, self.op_type, inputs, ir.convenience.convert_attributes(self.attrs), name=f"n{i}")
            for i in range(copies)
        ]
        results = [node.outputs[0] for node in nodes]
        for i, value in enumerate(results):
            value.name, value.type = f"o{i}", ir.TensorType(ir.DataType.from_numpy(self.result_type))
        given = [value for place, value in enumerate(inputs) if place in self.feeds and value is not None]
        constants = [value for place, value in enumerate(inputs) if place in self.held and value is not None]
        graph = ir.Graph(given, results, nodes=nodes, initializers=constants, opset_imports={"": 21, ORT: 1}, name="g")
        return ir.Model(graph, ir_version=10)

    @property
    def result_type(self) -> np.dtype:
        scale = {"MatMulNBits": 2, "GatherBlockQuantized": 2}.get(self.op_type, 1)
        return self.held[scale].dtype

    def run(self, model: ir.Model) -> np.ndarray:
        feeds = {f"i{place}": array for place, array in self.feeds.items()}
        return run(model, feeds)


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The first output in onnxruntime, with the bodies of npuc's operators."""
    copy = model.clone()
    add_functions(copy)
    return np.asarray(session(ir.to_proto(copy).SerializeToString()).run(None, feeds)[0])


def weight_of(model: ir.Model, shape: tuple[int, ...]) -> np.ndarray:
    """The one float weight that the graph reads: a dense constant, or a packed one.

    A packed one's operator gives the same numbers in onnxruntime as the constant that it stands for.
    """
    dense = [v for v in model.graph.initializers.values() if "~dequantised" in (v.name or "")]
    packed = [node for node in model.graph if node.op_type in (ROWS, WEIGHT)]
    found = [*dense, *(node.outputs[0] for node in packed)]
    assert len(found) == 1 and found[0].const_value is not None
    array = found[0].const_value.numpy()
    assert array.shape == shape == found[0].shape.numpy() and found[0].dtype == ir.DataType.from_numpy(array.dtype)
    for node in packed:
        np.testing.assert_array_equal(body_of(model, node), array)
    return array


def body_of(model: ir.Model, node: ir.Node) -> np.ndarray:
    """What onnxruntime makes of a packed weight's operands."""
    copy = model.clone()
    (same,) = (other for other in copy.graph if other.name == node.name)
    copy.graph.outputs[:] = [same.outputs[0]]
    copy.graph.inputs.clear()
    for other in reversed([other for other in copy.graph if other is not same]):
        copy.graph.remove(other, safe=True)
    read = {value.name for value in same.inputs if value is not None}
    for name in [name for name in copy.graph.initializers if name not in read]:
        del copy.graph.initializers[name]
    return run(copy, {})
