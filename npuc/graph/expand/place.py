"""The place of a node that is being written out: makes standard nodes in front of it and lets them take its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.edit import Names, describe_as, redirect
from npuc.graph.nodes import SOURCE, attributes, label, sources

ENDLESS = np.iinfo(np.int64).max


class Place:
    """One node on a dynamic graph, whose shapes need not be known."""

    def __init__(self, graph: ir.Graph, node: ir.Node, names: Names) -> None:
        self.graph = graph
        self.node = node
        self.attrs: Mapping[str, Any] = attributes(node)
        self.names = self._names = names

    def input(self, index: int) -> ir.Value | None:
        """An input, None where it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def required(self, index: int) -> ir.Value:
        """An input that must be there."""
        value = self.input(index)
        if value is None:
            self.refuse(f"input {index} is missing")
        return value

    def refuse(self, reason: str) -> NoReturn:
        """Raises ModelRefused naming the node."""
        raise ModelRefused([f"{label(self.node)}: {reason}"])

    def op(self, op_type: str, *inputs: ir.Value | None, domain: str = "", outputs: int = 1, **attrs: Any) -> ir.Value:
        """Adds a node and gives its first output."""
        return self.ops(op_type, *inputs, domain=domain, outputs=outputs, **attrs)[0]

    def ops(
        self, op_type: str, *inputs: ir.Value | None, domain: str = "", outputs: int = 1, **attrs: Any
    ) -> Sequence[ir.Value]:
        """Adds a node and gives its outputs."""
        name = self._names.node(f"{self.node.name}~{op_type}")
        values = [ir.Value(name=self._names.value(f"{name}_out{i}")) for i in range(outputs)]
        self.graph.insert_before(
            self.node,
            ir.Node(
                domain,
                op_type,
                inputs,
                ir.convenience.convert_attributes(attrs),
                outputs=values,
                name=name,
                metadata_props={SOURCE: sources([self.node])},
            ),
        )
        return values

    def ints(self, *numbers: int) -> ir.Value:
        """A constant int64 vector."""
        return self._constant(np.array(numbers, np.int64))

    def whole(self, number: int) -> ir.Value:
        """A constant int64 scalar."""
        return self._constant(np.array(number, np.int64))

    def number_like(self, number: float, like: ir.Value) -> ir.Value:
        """A constant of the float type of another value."""
        return self.numbers_like(number, like)

    def numbers_like(self, numbers: float | Sequence[float], like: ir.Value) -> ir.Value:
        """A constant number or vector of the float type of another value."""
        dtype = (like.dtype or ir.DataType.FLOAT).numpy()
        return self._constant(np.array(numbers).astype(dtype))

    def _constant(self, array: np.ndarray) -> ir.Value:
        return self.initializer(ir.Tensor(array), f"{self.node.name}~constant")

    def initializer(self, tensor: ir.TensorProtocol, stem: str) -> ir.Value:
        """A constant of the graph under a name of this stem."""
        tensor.name = name = self._names.value(stem)
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def extent(self, value: ir.Value, axis: int) -> ir.Value:
        """The extent of an axis as an int64 vector of one element."""
        if axis == -1:
            return self.op("Shape", value, start=-1)
        return self.op("Shape", value, start=axis, end=axis + 1)

    def cut(self, value: ir.Value, start: ir.Value, end: ir.Value, step: int = 1) -> ir.Value:
        """A piece of the last axis."""
        return self.op("Slice", value, start, end, self.ints(-1), self.ints(step))

    def heads(self, value: ir.Value, count: int) -> ir.Value:
        """[B, S, count * D] as [B, count, S, D]."""
        return self.op("Transpose", self.op("Reshape", value, self.ints(0, 0, count, -1)), perm=[0, 2, 1, 3])

    def merged(self, value: ir.Value) -> ir.Value:
        """[B, H, S, D] as [B, S, H * D]."""
        return self.op("Reshape", self.op("Transpose", value, perm=[0, 2, 1, 3]), self.ints(0, 0, -1))

    def take_over(self, old: ir.Value, new: ir.Value) -> None:
        """Lets a value that this place makes be read instead of another, which may be made behind the place."""
        describe_as(new, old)
        redirect(self.graph, old, new, self._names)

    def replace(self, *values: ir.Value | None) -> None:
        """Lets these values take the place of the node's outputs, and takes the node out."""
        for old, new in zip(self.node.outputs, values, strict=False):
            if new is not None and (old.uses() or old.is_graph_output()):
                describe_as(new, old)
                redirect(self.graph, old, new, self._names)
        unread = [o.name for o in self.node.outputs if o.uses() or o.is_graph_output()]
        if unread:
            self.refuse(f"its output {unread[0]!r} is read; npuc does not make it")
        self.graph.remove(self.node, safe=True)
