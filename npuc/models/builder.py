"""A small builder of ONNX graphs whose weights lie in a file of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, IR = 21, 10
ALIGN = 4096
"""Weights begin at pages, so that each can be mapped alone."""


class Builder:
    """Collects the nodes and initializers of one graph. Names come from `scope`, so they tell where a node belongs.

    data: name of the file for the weights, beside the model. `data_bytes` is how long that file has to be.
    """

    def __init__(self, data: str) -> None:
        self.data, self.data_bytes, self.scope = data, 0, ""
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._names: dict[str, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def input(self, name: str, kind: int, dims: Sequence[int | str]) -> str:
        """Declares a graph input of element type `kind`."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def output(self, name: str, kind: int, dims: Sequence[int | str]) -> None:
        """Declares an existing value as a graph output."""
        self._outputs.append(helper.make_tensor_value_info(name, kind, dims))

    def weight(self, name: str, shape: Sequence[int]) -> str:
        """Declares an f32 weight at the next free page of the data file."""
        start, length = -(-self.data_bytes // ALIGN) * ALIGN, 4 * int(np.prod(shape))
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self.data), ("offset", start), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self._initializers.append(tensor)
        self.data_bytes = start + length
        return name

    def constant(self, value: NDArray[Any], name: str = "") -> str:
        """A small constant in the model itself; equal ones are stored once."""
        key = value.dtype.str, value.shape, value.tobytes()
        if key not in self._constants:
            self._constants[key] = name or f"constant_{len(self._constants)}"
            self._initializers.append(numpy_helper.from_array(value, self._constants[key]))
        return self._constants[key]

    def ints(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.constant(np.array(values, np.int64))

    def whole(self, value: int) -> str:
        """A constant int64 scalar, of shape []."""
        return self.constant(np.array(value, np.int64))

    def real(self, value: float) -> str:
        """A constant f32 scalar, of shape []."""
        return self.constant(np.array(value, np.float32))

    def op(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Adds a node with one output, named `out` or after the node, which is named after `scope` and its kind."""
        name = self._name(kind)
        out = out or f"{name}_output_0"
        self._nodes.append(helper.make_node(kind, inputs, [out], name=name, **attributes))
        return out

    def linear(self, x: str, name: str) -> str:
        """x [.., in] times the weight `name`.weight [.., in, out], in a scope of its own."""
        outer = self.scope
        self.scope = f"{outer}/{name.split('.')[-1]}"
        out = self.op("MatMul", x, f"{name}.weight")
        self.scope = outer
        return out

    def _name(self, kind: str) -> str:
        full = f"{self.scope}/{kind}"
        count = self._names.get(full, 0)
        self._names[full] = count + 1
        return f"{full}_{count}" if count else full

    def model(self, name: str) -> ModelProto:
        """The finished model; its weights are not in it."""
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._initializers)
        domains = sorted({node.domain for node in self._nodes} - {""})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="npuc")
