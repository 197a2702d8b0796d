"""What every later step may take for granted: constants are initializers, nodes have names, no node only passes a
value on.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.frontend.facts import Types
from npuc.graph.edit import Names, is_free, redirect


def name_nodes(model: ir.Model) -> None:
    """Gives every node a unique name, in place. Names in the file stay; of equal ones the later get a number."""
    taken: set[str] = set()
    for node in model.graph.all_nodes():
        stem = node.name or next((v.name for v in node.outputs if v.name), None) or node.op_type
        name, count = stem, 0
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        taken.add(name)
        node.name = name


def lift_constants(model: ir.Model, names: Names) -> None:
    """Turns Constant nodes into initializers of the main graph, in place."""
    for node in list(model.graph.all_nodes()):
        if node.op_type != "Constant" or node.domain != "" or not isinstance(node.graph, ir.Graph):
            continue
        tensor = _tensor(node)
        if tensor is None:
            continue  # texts and sparse tensors: whoever reads them says no
        old = node.outputs[0]
        stem = old.name or node.name or "constant"
        name = stem if not old.is_graph_output() else names.value(f"{stem}.constant")
        tensor = ir.Tensor(tensor.numpy(), name=name) if tensor.name != name else tensor
        shape = ir.Shape(tensor.shape.numpy())
        new = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
        if old.is_graph_output():
            node.graph.insert_before(
                node, passing := ir.node("Identity", [new], name=names.node(f"{node.name}.Identity"))
            )
            new_output = passing.outputs[0]
            new_output.type, new_output.shape = new.type, new.shape
            _take_place(node.graph, old, new_output)
        else:
            old.replace_all_uses_with(new)
            old.name = names.value(f"{stem}_before")
        node.graph.remove(node, safe=True)
        model.graph.register_initializer(new)


def _take_place(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name, old.name = old.name, None


def _tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The value of a Constant node in whichever attribute it stands."""
    for name, attribute in node.attributes.items():
        if name == "value":
            return attribute.as_tensor()
        if name in ("value_int", "value_ints"):
            return ir.Tensor(np.array(attribute.value, np.int64))
        if name in ("value_float", "value_floats"):
            return ir.Tensor(np.array(attribute.value, np.float32))
    return None


def drop_passing_nodes(model: ir.Model, types: Types, names: Names) -> None:
    """Removes Identity, Casts to the type a value has, and Concats of one operand, in place.

    One stays where a graph output has no other node that could make it under its name.
    """
    for node in list(model.graph.all_nodes()):
        if not _passes(node, types) or not isinstance(node.graph, ir.Graph):
            continue
        source, result = node.inputs[0], node.outputs[0]
        if source is None:
            continue
        if result.is_graph_output() and not (is_free(source) and source.graph is node.graph):
            continue
        redirect(node.graph, result, source, names)
        node.graph.remove(node, safe=True)


def _passes(node: ir.Node, types: Types) -> bool:
    if node.domain != "" or len(node.inputs) != 1:
        return False
    if node.op_type in ("Identity", "Concat"):
        return True
    source = node.inputs[0]
    if node.op_type != "Cast" or source is None:
        return False
    return types.dtype(source) == node.attributes["to"].as_int()
