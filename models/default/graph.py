"""A small builder of ONNX graphs: each call adds one node and gives back the name of its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

STATE_DOMAIN = "npuc"
"""Domain of ReadValue and Assign."""

OPSET, IR = 17, 9


class Builder:
    """Collects the nodes and initializers of one graph. Names come from `scope`, so they tell where a node belongs."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.scope = ""
        self._names: dict[str, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def name(self, stem: str) -> str:
        """A name that no other value has: `scope/stem`, from the second on with a number."""
        full = f"{self.scope}/{stem}" if self.scope else stem
        count = self._names.get(full, 0)
        self._names[full] = count + 1
        return f"{full}_{count}" if count else full

    def input(self, name: str, kind: int, dims: Sequence[int | str]) -> str:
        """Declares a graph input of element type `kind`."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def output(self, name: str, kind: int, dims: Sequence[int | str]) -> None:
        """Declares an existing value as a graph output."""
        self.outputs.append(helper.make_tensor_value_info(name, kind, dims))

    def initializer(self, name: str, array: NDArray[Any]) -> str:
        """Stores an array under a given name."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        """A small constant; equal ones are stored once."""
        key = value.dtype.str, value.shape, value.tobytes()
        if key not in self._constants:
            self._constants[key] = self.initializer(f"constant_{len(self._constants)}", value)
        return self._constants[key]

    def ints(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.constant(np.array(values, np.int64))

    def whole(self, value: int) -> str:
        """A constant int64 scalar."""
        return self.constant(np.array(value, np.int64))

    def real(self, value: float) -> str:
        """A constant f32 scalar."""
        return self.constant(np.array(value, np.float32))

    def op(self, kind: str, *inputs: str, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output, named `out` or after the node's kind."""
        name = self.name(kind)
        out = out or f"{name}_out"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=name, domain=domain, **attributes))
        return out

    def model(self, name: str) -> ModelProto:
        """The finished model."""
        domains = {n.domain for n in self.nodes} - {""}
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.initializers)
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="npuc-models")
