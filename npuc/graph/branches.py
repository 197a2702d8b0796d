"""Functions and branches, taken into the main graph: what is left inside a subgraph depends on the run.

A branch whose condition is a constant is settled at once (`flatten`). Any other If becomes both branches and
npuc.Choose between their results (`join_branches`), which folds where the condition follows from shapes.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from npuc.frontend.errors import ModelRefused, Problems
from npuc.graph.constants import constant_value
from npuc.graph.edit import Names, redirect
from npuc.graph.nodes import DOMAIN, label


def flatten(model: ir.Model, kept: frozenset[tuple[str, str]] = frozenset()) -> None:
    """Inlines the model's own functions (npuc's excepted) and every If whose condition is a constant, in place.

    kept: (domain, operator) of functions that stay. Raises ModelRefused for functions that call each other in a circle.
    """

    def goes(function: ir.Function) -> bool:
        return function.domain != "npuc" and (function.domain, function.name) not in kept

    if any(map(goes, model.functions.values())):
        try:
            InlinePass(goes)(model)
        except Exception as error:  # calls in a circle, operator sets that do not go together: whatever the pass finds
            raise ModelRefused([f"the model's functions cannot be inlined: {str(error).splitlines()[0]}"]) from error
    names = Names(model.graph)
    pending = [node for node in model.graph if node.op_type == "If" and node.domain == ""]
    while pending:
        node = pending.pop()
        condition = constant_value(node.inputs[0], model.opset_imports) if node.inputs[0] is not None else None
        if condition is None or condition.size != 1:
            continue
        branch = node.attributes["then_branch" if bool(condition.reshape(())) else "else_branch"].as_graph()
        moved = inline_branch(model.graph, node, branch, names)
        pending.extend(n for n in moved if n.op_type == "If" and n.domain == "")


def join_branches(model: ir.Model) -> None:
    """Replaces every If of the main graph by its branches and npuc.Choose(condition, then, else), in place."""
    names = Names(model.graph)
    pending = [node for node in model.graph if node.op_type == "If" and node.domain == ""]
    while pending:
        node = pending.pop()
        moved: list[ir.Node] = []
        results: list[list[ir.Value]] = []
        for which in ("then_branch", "else_branch"):
            branch = node.attributes[which].as_graph()
            outputs = list(branch.outputs)
            nodes = take_nodes(model.graph, node, branch, names)
            moved += nodes
            results.append(outputs)
        for old, *sources in zip(node.outputs, *results, strict=True):
            value = ir.Value(name=names.value(f"{node.name}.chosen"), type=old.type, shape=old.shape)
            inputs, name = [node.inputs[0], *sources], names.node(f"{node.name}~Choose")
            model.graph.insert_before(node, ir.Node(DOMAIN, "Choose", inputs, outputs=[value], name=name))
            redirect(model.graph, old, value, names)
        model.graph.remove(node, safe=True)
        pending.extend(n for n in moved if n.op_type == "If" and n.domain == "")


def refuse_loops(model: ir.Model) -> None:
    """Raises ModelRefused naming each operator whose body runs an open number of times."""
    problems = Problems()
    for node in model.graph:
        if node.domain == "" and node.op_type in _LOOPS:
            problems.add(
                f"{label(node)}: a body that runs in a loop has no static program; export the model with the loop "
                "unrolled"
            )
    problems.refuse()


_LOOPS = ("Loop", "Scan", "SequenceMap")


def inline_branch(graph: ir.Graph, node: ir.Node, branch: ir.Graph, names: Names) -> list[ir.Node]:
    """Replaces an If of the main graph by one of its branches, in place. Returns the nodes that moved.

    names: of the main graph; values and nodes of the branch that would clash get new names.
    """
    outputs = list(branch.outputs)
    moved = take_nodes(graph, node, branch, names)
    for old, new in zip(node.outputs, outputs, strict=True):
        redirect(graph, old, new, names)
    graph.remove(node, safe=True)
    return moved


def take_nodes(graph: ir.Graph, node: ir.Node, branch: ir.Graph, names: Names) -> list[ir.Node]:
    """Moves the nodes and initializers of another graph in front of a node, in place. Returns the nodes that moved.

    names: of `graph`; values and nodes that would clash get new names.
    """
    for value in list(branch.initializers.values()):
        branch.initializers.pop(value.name or "")
        value.name = names.value(f"{node.name}.{value.name}")
        graph.register_initializer(value)
    branch.outputs.clear()
    moved = list(branch)
    branch.remove(moved)
    graph.insert_before(node, moved)
    for inner in moved:
        inner.name = names.node(f"{node.name}.{inner.name or inner.op_type}")
        for value in inner.outputs:
            if value.name:
                value.name = names.value(f"{node.name}.{value.name}")
    return moved
