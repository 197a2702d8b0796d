"""What must hold of an entry's graph after each step; a violation is a fault of npuc, not of the model."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.nodes import SHAPE_OPERANDS, is_op, label


class BrokenGraph(AssertionError):
    """A step left a graph that breaks the rules of the graph level. The message names the step and the place."""


def verify_structure(graph: ir.Graph, step: str) -> None:
    """Every value is made before it is read and every name is used once."""
    given = [*graph.inputs, *graph.initializers.values()]
    made: set[ir.Value] = set(given)
    names: dict[str, str] = {}
    for held in given:
        _claim(names, held, "an input or initializer", step)
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in made:
                raise BrokenGraph(f"after {step}: {label(node)} reads {value.name!r} before it is made")
        for output in node.outputs:
            made.add(output)
            if output.name:
                _claim(names, output, label(node), step)
    for output in graph.outputs:
        if output not in made:
            raise BrokenGraph(f"after {step}: graph output {output.name!r} is never made")


def verify_static(graph: ir.Graph, step: str) -> None:
    """Every value has a type and a static shape, and every shape operand is a constant."""
    for node in graph:
        for output in node.outputs:
            if output.name and (output.dtype is None or output.shape is None or not output.shape.is_static()):
                raise BrokenGraph(f"after {step}: {label(node)} makes {output.name!r} without a static shape and type")
        for index in SHAPE_OPERANDS.get(node.op_type, ()) if node.domain == "" else ():
            value = node.inputs[index] if index < len(node.inputs) else None
            if value is not None and value.const_value is None:
                raise BrokenGraph(f"after {step}: input {index} of {label(node)} is not a constant")


def verify_folded(graph: ir.Graph, step: str) -> None:
    """No node asks for a shape, and none computes integers of constants alone; one may be an output."""
    for node in graph:
        reads_constants = all(value is None or value.const_value is not None for value in node.inputs)
        integers = any(output.dtype == ir.DataType.INT64 for output in node.outputs)
        names_an_output = is_op(node, "Identity") and node.outputs[0].is_graph_output()
        if is_op(node, "Shape", "Size") or (reads_constants and integers and not names_an_output):
            raise BrokenGraph(f"after {step}: {label(node)} still computes what follows from shapes")


def _claim(names: dict[str, str], value: ir.Value, owner: str, step: str) -> None:
    name = value.name or ""
    if not name:
        raise BrokenGraph(f"after {step}: a value of {owner} has no name")
    if name in names:
        raise BrokenGraph(f"after {step}: the name {name!r} is used by {names[name]} and by {owner}")
    names[name] = owner
