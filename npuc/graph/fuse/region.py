"""A piece of a graph between a few source values and one result, which can be run on arrays: the tool of all proofs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import evaluate
from npuc.graph.nodes import attributes, constant, is_op

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class Region:
    """Nodes in topological order from sources to a result. Everything else they read is constant."""

    nodes: tuple[ir.Node, ...]
    sources: tuple[ir.Value, ...]
    result: ir.Value

    def run(self, feeds: Sequence[np.ndarray]) -> np.ndarray:
        """The result for these arrays in the place of the sources.

        With float64 feeds float constants are float64 too, and float casts do nothing: the result is the formula's.
        Integer feeds follow elements through moves.
        """
        values: dict[ir.Value, np.ndarray] = dict(zip(self.sources, feeds, strict=True))
        real = any(feed.dtype == np.float64 for feed in feeds)
        for node in self.nodes:
            inputs = [None if v is None else _content(v, values, real) for v in node.inputs]
            if is_float_cast(node):
                outputs: tuple[np.ndarray | None, ...] = (inputs[0],)
            else:
                outputs = evaluate(node.domain, node.op_type, inputs, attributes(node))
            for value, array in zip(node.outputs, outputs, strict=True):
                assert array is not None
                values[value] = array
        return values[self.result]

    def constants(self) -> list[ir.Value]:
        """Initializers that the nodes read, in order of first use."""
        found: dict[ir.Value, None] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value is not None and value.const_value is not None:
                    found.setdefault(value)
        return list(found)

    def signature(self) -> tuple[object, ...]:
        """Equal for regions that compute the same function of sources of equal shapes and types."""
        index: dict[ir.Value, int] = {value: i for i, value in enumerate(self.sources)}
        parts: list[object] = [(str(v.dtype), str(v.shape)) for v in self.sources]
        for node in self.nodes:
            operands: list[object] = []
            for value in node.inputs:
                array = constant(value)
                known = None if value is None else index.get(value)
                operands.append(known if array is None else (array.shape, array.tobytes()))
            attrs = tuple(sorted((name, str(a.value)) for name, a in node.attributes.items()))
            parts.append((node.op_type, tuple(operands), attrs))
            for output in node.outputs:
                index[output] = len(index)
        return (*parts, index[self.result])


def _content(value: ir.Value, values: Mapping[ir.Value, np.ndarray], real: bool) -> np.ndarray:
    if value in values:
        return values[value]
    array = constant(value)
    if array is None:
        raise KeyError(f"region reads {value.name!r}, which is neither a source nor constant")
    return array.astype(np.float64) if real and value.dtype in FLOATS else array


def is_float_cast(node: ir.Node) -> bool:
    """A Cast between float types."""
    return (
        is_op(node, "Cast")
        and node.outputs[0].dtype in FLOATS
        and (node.inputs[0] is not None and node.inputs[0].dtype in FLOATS)
    )


def graph_order(graph: ir.Graph) -> dict[ir.Node, int]:
    """Position of every node."""
    return {node: index for index, node in enumerate(graph)}


def region_between(result: ir.Value, sources: Iterable[ir.Value], order: Mapping[ir.Node, int]) -> Region | str:
    """The region from given sources to a result, or the reason why there is none."""
    wanted = tuple(sources)
    nodes: set[ir.Node] = set()
    stack = [result]
    while stack:
        value = stack.pop()
        if value in wanted or value.const_value is not None:
            continue
        node = value.producer()
        if node is None:
            return f"{result.name!r} also depends on the graph input {value.name!r}"
        if node not in nodes:
            nodes.add(node)
            stack.extend(v for v in node.inputs if v is not None)
    return Region(tuple(sorted(nodes, key=lambda n: order.get(n, -1))), wanted, result)


def nearest_source(
    result: ir.Value,
    through: Callable[[ir.Node], bool],
    enough: Callable[[set[ir.Node]], bool],
    order: Mapping[ir.Node, int],
    leaf: Callable[[ir.Value], bool] = lambda _: False,
    behind: Callable[[ir.Value], bool] = lambda _: False,
) -> Region | str:
    """The smallest region that computes `result` from one value and leaves.

    through: nodes that may belong to it. leaf: values that end it beside the one source; those that lie `behind` a
    leaf are opened up to it. enough: whether the nodes found so far are what is looked for. The sources of the region
    are that value, then the leaves in order of discovery.
    """
    open_values: dict[ir.Value, tuple[bool, int]] = {result: (False, 0)}
    leaves: dict[ir.Value, None] = {}
    nodes: set[ir.Node] = set()
    while True:
        if len(open_values) == 1 and nodes and enough(nodes):
            source = next(iter(open_values))
            ordered = tuple(sorted(nodes, key=lambda n: order.get(n, -1)))
            return Region(ordered, (source, *leaves), result)
        if not open_values:
            return f"{result.name!r} depends on constants alone"
        value = max(open_values, key=open_values.__getitem__)
        node = value.producer()
        if node is None:
            return f"{result.name!r} depends on the graph input {value.name!r} and on more"
        if not through(node) or node not in order:
            return f"{result.name!r} depends on {value.name!r}, made by {node.op_type}, and on more"
        nodes.add(node)
        for output in node.outputs:
            open_values.pop(output, None)
        for operand in node.inputs:
            if operand is None or operand.const_value is not None:
                continue
            if leaf(operand):
                leaves.setdefault(operand)
            elif operand not in open_values:
                open_values[operand] = (behind(operand), _position(operand, order))


def _position(value: ir.Value, order: Mapping[ir.Node, int]) -> int:
    node = value.producer()
    return -1 if node is None else order.get(node, -1)


def forward_candidates(start: ir.Value, through: Callable[[ir.Node], bool], limit: int = 12) -> list[ir.Value]:
    """Values that follow from `start` through accepted nodes, nearest first, at most `limit`."""
    found: dict[ir.Value, None] = {start: None}
    queue = [start]
    while queue and len(found) < limit:
        value = queue.pop(0)
        for use in value.uses():
            if through(use.node):
                for output in use.node.outputs:
                    if output not in found:
                        found[output] = None
                        queue.append(output)
    return list(found)
