"""Small helpers on onnx_ir graphs that every step of the graph level uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

DOMAIN = "npuc"
"""Domain of npuc's own operators."""

SOURCE = "npuc.source"
"""Metadata key of a node: the names of the model's nodes that it stands for."""

WIDE = "npuc.wide"
"""Metadata key of a constant that stays float32, whatever the precision: a scale of codes."""

SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Unsqueeze": (1,),
    "Squeeze": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Pad": (1, 3),
    "Trilu": (1,),
    "CumSum": (1,),
    "Resize": (1, 2, 3),
    "TopK": (1,),
    "OneHot": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    **{
        f"Reduce{kind}": (1,)
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp")
    },
}
"""Inputs that say how an operator of the default domain works, not what it works on. They must become constants."""


def attributes(node: ir.Node) -> dict[str, Any]:
    """Attribute values as Python values; tensors as arrays."""
    result: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        result[name] = value.numpy() if attribute.type == ir.AttributeType.TENSOR else value
    return result


def is_op(node: ir.Node | None, *op_types: str, domain: str = "") -> bool:
    """Whether the node is one of these operators."""
    return node is not None and node.domain == domain and node.op_type in op_types


def producer(value: ir.Value | None, *op_types: str, domain: str = "") -> ir.Node | None:
    """The node that makes a value, if it is one of these operators."""
    node = value.producer() if value is not None else None
    return node if is_op(node, *op_types, domain=domain) else None


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The array of an initializer, None for any other value."""
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()


def scalar(value: ir.Value | None) -> float | None:
    """The number of an initializer with one element."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    return float(value.const_value.numpy().reshape(()))


def dims(value: ir.Value) -> tuple[int, ...]:
    """The static shape of a value. ValueError names the value if a dim is not known."""
    try:
        if value.shape is not None:
            return value.shape.numpy()
    except ValueError:
        pass
    raise ValueError(f"value {value.name!r} has the shape {value.shape}, which is not static")


def label(node: ir.Node) -> str:
    """How messages name a node: its own name and its operator."""
    name = node.name or (node.outputs[0].name if node.outputs else "")
    return f"node {name!r} ({node.domain + '::' if node.domain else ''}{node.op_type})"


def sources(nodes: Iterable[ir.Node]) -> str:
    """Names of the model's nodes behind these nodes, in order, for SOURCE metadata."""
    names: dict[str, None] = {}
    for node in nodes:
        for name in node.metadata_props.get(SOURCE, node.name or "").split(";"):
            if name:
                names.setdefault(name)
    return ";".join(names)


class Builder:
    """Makes nodes in front of a node of a graph, with unique names, types, shapes and provenance."""

    def __init__(self, graph: ir.Graph, before: ir.Node, origin: Sequence[ir.Node], stem: str = "") -> None:
        self._graph = graph
        self._before = before
        self._origin = sources(origin)
        self._stem = stem or self._origin.split(";")[0] or before.outputs[0].name or "node"

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        shape: Sequence[int],
        dtype: ir.DataType,
        attrs: Mapping[str, Any] | None = None,
        domain: str = "",
    ) -> ir.Value:
        """Adds a node with one output and gives that output."""
        name = fresh_name(self._graph, f"{self._stem}~{op_type}")
        output = ir.Value(name=f"{name}_out", shape=ir.Shape(shape), type=ir.TensorType(dtype))
        node = ir.Node(
            domain,
            op_type,
            inputs,
            ir.convenience.convert_attributes(dict(attrs or {})),
            outputs=[output],
            name=name,
            metadata_props={SOURCE: self._origin} if self._origin else None,
        )
        self._graph.insert_before(self._before, node)
        return output

    def constant(self, array: np.ndarray, stem: str) -> ir.Value:
        """Registers an initializer; an equal small one of the same stem is used again."""
        return initializer(self._graph, array, stem)

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """A Reshape to a static shape, or the value itself if it has that shape."""
        if dims(value) == tuple(shape):
            return value
        assert value.dtype is not None
        target = self.constant(np.array(shape, np.int64), "npuc.shape." + "x".join(map(str, shape)))
        return self.op("Reshape", [value, target], shape, value.dtype, {"allowzero": 1})

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        """A Transpose, or the value itself for the identity permutation."""
        if list(perm) == list(range(len(perm))):
            return value
        assert value.dtype is not None
        shape = dims(value)
        return self.op("Transpose", [value], [shape[p] for p in perm], value.dtype, {"perm": list(perm)})


def fresh_name(graph: ir.Graph, stem: str) -> str:
    """A name of this stem that this function has not given out before in this graph."""
    counts: dict[str, int] = graph.meta.setdefault("npuc.names", {})
    number = counts.get(stem, 0)
    counts[stem] = number + 1
    return f"{stem}_{number}" if number else stem


def initializer(graph: ir.Graph, array: np.ndarray, name: str) -> ir.Value:
    """The initializer of this name and content; a number is added where the name is taken by another content."""
    candidate, number = name, 0
    while candidate in graph.initializers:
        held = graph.initializers[candidate].const_value
        assert held is not None
        if held.dtype == ir.DataType.from_numpy(array.dtype) and tuple(held.shape.numpy()) == array.shape:
            content = held.numpy()
            if content is array or np.array_equal(content, array, equal_nan=array.dtype.kind == "f"):
                return graph.initializers[candidate]
        number += 1
        candidate = f"{name}.{number}"
    tensor = ir.Tensor(array, name=candidate)
    value = ir.Value(name=candidate, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Makes every reader of `old`, graph outputs included, read `new`; what nobody reads then goes. The outputs get
    their names back at the end."""
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    remove_unread(old.producer())


def remove_unread(node: ir.Node | None) -> None:
    """Removes a node that nobody reads, and what only it has read."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current is None or current.graph is None or any(o.uses() or o.is_graph_output() for o in current.outputs):
            continue
        before = [value.producer() for value in current.inputs if value is not None]
        assert isinstance(current.graph, ir.Graph)
        current.graph.remove(current, safe=True)
        stack.extend(before)
