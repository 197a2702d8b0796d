"""Takes out what changes nothing: dead nodes, moves to the same place, neutral arithmetic, equal computations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.graph.nodes import Builder, attributes, constant, dims, is_op, producer, replace_value, scalar

_MOVES = ("Reshape", "Expand", "Cast", "CastLike", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Tile")
"""Operators that hand on their input where type and shape stay the same."""


def clean(graph: ir.Graph) -> None:
    """Cleans a static, typed, sorted graph in place until nothing changes."""
    while _sweep(graph) or _merge_equal(graph):
        pass
    remove_dead(graph)


def remove_dead(graph: ir.Graph) -> None:
    """Takes out nodes whose outputs nobody reads, and initializers without a reader."""
    kept = set(graph.outputs)
    dead: list[ir.Node] = []
    doomed: set[ir.Node] = set()
    for node in reversed(graph):
        needed = any(output in kept or any(use.node not in doomed for use in output.uses()) for output in node.outputs)
        if not needed:
            doomed.add(node)
            dead.append(node)
    graph.remove(dead, safe=True)
    for name in [name for name, value in graph.initializers.items() if not value.uses() and value not in kept]:
        del graph.initializers[name]


def _sweep(graph: ir.Graph) -> bool:
    changed = False
    for node in graph:
        output = node.outputs[0]
        if len(node.outputs) != 1 or not (output.uses() or output.is_graph_output()):
            continue
        new = _same_value(node) or _simpler(graph, node)
        if new is not None:
            replace_value(output, new)
            changed = True
    return changed


def _same_value(node: ir.Node) -> ir.Value | None:
    """An input that the node hands on as it is."""
    if node.domain != "" or not node.inputs or node.inputs[0] is None:
        return None
    source, output, op_type = node.inputs[0], node.outputs[0], node.op_type
    if op_type == "Identity" or (op_type == "Concat" and len(node.inputs) == 1):
        return source
    if op_type in _MOVES:
        same = source.dtype == output.dtype and dims(source) == dims(output)
        return source if same and (op_type != "Slice" or _all_steps_forward(node)) else None
    if op_type == "Transpose":
        return source if list(attributes(node).get("perm", ())) == list(range(len(dims(source)))) else None
    if op_type == "Where":
        return _chosen(node)
    return _neutral(node)


def _all_steps_forward(node: ir.Node) -> bool:
    steps = constant(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else np.ones(1)
    return steps is not None and bool((steps > 0).all())


def _chosen(node: ir.Node) -> ir.Value | None:
    """The branch of a Where with a constant condition, if it has the result's shape."""
    condition = constant(node.inputs[0])
    if condition is None or condition.size == 0 or bool(condition.all()) != bool(condition.any()):
        return None
    value = node.inputs[1 if condition.all() else 2]
    return value if value is not None and dims(value) == dims(node.outputs[0]) else None


_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0, "Pow": 1.0}
_EITHER_SIDE = ("Add", "Mul")


def _neutral(node: ir.Node) -> ir.Value | None:
    neutral = _NEUTRAL.get(node.op_type)
    if neutral is None or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    for value, other in ((a, b), (b, a)) if node.op_type in _EITHER_SIDE else ((a, b),):
        if value is not None and scalar(other) == neutral and dims(value) == dims(node.outputs[0]):
            return value
    return None


def _simpler(graph: ir.Graph, node: ir.Node) -> ir.Value | None:
    """One move instead of two; a Reshape for every move that keeps the order of the elements."""
    if node.domain != "" or not node.inputs or node.inputs[0] is None:
        return None
    source, output = node.inputs[0], node.outputs[0]
    builder = Builder(graph, node, [node])
    if is_op(node, "Concat"):
        return _without_empty(builder, node)
    if is_op(node, "Squeeze", "Unsqueeze", "Flatten"):
        return builder.reshape(source, dims(output))
    if is_op(node, "Reshape"):
        before = producer(source, "Reshape")
        if before is not None and before.inputs[0] is not None:
            return Builder(graph, node, [before, node]).reshape(before.inputs[0], dims(output))
    if is_op(node, "Transpose"):
        perm, shape = _permutation(node), dims(source)
        before = producer(source, "Transpose")
        if before is not None and before.inputs[0] is not None:
            first = _permutation(before)
            return Builder(graph, node, [before, node]).transpose(before.inputs[0], [first[p] for p in perm])
        moved = [p for p in perm if shape[p] != 1]
        if moved == sorted(moved):
            return builder.reshape(source, dims(output))
    return None


def _without_empty(builder: Builder, node: ir.Node) -> ir.Value | None:
    """A Concat without its constant operands that have no elements."""
    kept = [v for v in node.inputs if v is not None and (v.const_value is None or v.const_value.size)]
    output = node.outputs[0]
    if not kept or len(kept) == len(node.inputs) or output.dtype is None:
        return None
    if len(kept) == 1:
        return kept[0]
    return builder.op("Concat", kept, dims(output), output.dtype, attributes(node))


def _merge_equal(graph: ir.Graph) -> bool:
    """Common subexpressions: equal operators on equal inputs with equal attributes. No operator here has effects."""
    seen: dict[Any, ir.Node] = {}
    changed = False
    for node in graph:
        key = (
            node.domain,
            node.op_type,
            tuple(node.inputs),
            len(node.outputs),
            tuple(sorted((name, _hashable(a)) for name, a in node.attributes.items())),
        )
        first = seen.setdefault(key, node)
        if first is not node:
            for old, new in zip(node.outputs, first.outputs, strict=True):
                if old.uses() or old.is_graph_output():
                    replace_value(old, new)
                    changed = True
    return changed


def _hashable(attribute: ir.Attr) -> object:
    value = attribute.value
    if attribute.type != ir.AttributeType.TENSOR:
        return str(value)
    return value.dtype, str(value.numpy().tolist()) if value.dtype == ir.DataType.STRING else value.tobytes()


def _permutation(node: ir.Node) -> list[int]:
    """A Transpose's permutation; without the attribute the axes are reversed."""
    source = node.inputs[0]
    assert source is not None
    return list(attributes(node).get("perm", reversed(range(len(dims(source))))))
