"""ReadValue and Assign to arguments: every variable an input, every assigned value an output."""

from __future__ import annotations

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.edit import Names, expose, redirect, remove
from npuc.graph.state_declare import Variable
from npuc.graph.state_pairs import NEXT_PREFIX, READ_PREFIX


def claim(graph: ir.Graph, name: str, owner: str, names: Names, problems: Problems) -> None:
    """Frees a name that the pure graph needs. Inner values step aside; an input or output in the way is a problem."""
    for value in (*graph.inputs, *graph.outputs):
        if value.name == name:
            problems.add(
                f"state {owner!r} becomes the value {name!r}, which is the name of an input or output: rename that"
            )
            return
    if name not in names.values:
        names.values.add(name)
        return
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.name == name:
                value.name = names.value(f"{name}.inner")
    if name in graph.initializers:
        value = graph.initializers.pop(name)
        value.name = names.value(f"{name}.inner")
        graph.register_initializer(value)


def replace_variable(graph: ir.Graph, variable: Variable, names: Names) -> tuple[str | None, str | None]:
    """Takes the nodes of one variable out, in place. Returns the names of its new graph input and output.

    A ReadValue gives what was there before the run, wherever it stands among the nodes: its readers read the input. The
    output of an Assign is the assigned value.
    """
    before, after = None, None
    if variable.reads:
        before = f"{READ_PREFIX}{variable.id}"
        dims = [f"{variable.id}.rows" if d < 0 else d for d in variable.shape]
        value = ir.Value(name=before, type=ir.TensorType(ir.DataType(variable.dtype)), shape=ir.Shape(dims))
        graph.inputs.append(value)
        for node in variable.reads:
            redirect(graph, node.outputs[0], value, names)
            remove(graph, [node])
    if variable.assign is not None:
        after = f"{NEXT_PREFIX}{variable.id}"
        assigned = variable.assign.inputs[0]
        assert assigned is not None
        if variable.assign.outputs:
            redirect(graph, variable.assign.outputs[0], assigned, names)
        remove(graph, [variable.assign])
        out = expose(graph, assigned, after, names)
        out.type = ir.TensorType(ir.DataType(variable.dtype))
        if out.shape is None:
            out.shape = ir.Shape([f"{variable.id}.next_rows" if d < 0 else d for d in variable.shape])
    return before, after
