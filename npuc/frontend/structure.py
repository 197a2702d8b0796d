"""Checks of the graph's structure: operators exist, every value has a maker, nothing waits for itself."""

from __future__ import annotations

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.known import NEWEST_OPSET, OLDEST_OPSET, is_known, means_the_same, unknown_text
from npuc.frontend.order import cycle, ordered, subgraphs
from npuc.frontend.text import node_text


def check_structure(model: ir.Model, problems: Problems) -> None:
    """Adds a problem for each structural fault of the model, its subgraphs and its functions."""
    _check_opset(model, problems)
    _check_graph(model, model.graph, (), problems)
    for function in model.functions.values():
        _check_graph(model, function.graph, (), problems)
    if not model.graph.outputs:
        problems.add("the graph has no outputs")
    names = [value.name for value in model.graph.outputs if value is not None]
    for name in sorted({name or "" for name in names if names.count(name) > 1}):
        problems.add(f"graph output {name!r} is listed more than once")
    for value in model.graph.inputs:
        for axis, extent in enumerate(value.shape or ()):
            if isinstance(extent, int) and extent < 0:
                problems.add(f"input {value.name!r} has {extent} as its extent {axis}; an open dimension has a name")


def _check_opset(model: ir.Model, problems: Problems) -> None:
    version = model.opset_imports.get("")
    if version is None:
        return  # a model of other domains alone; a node of ai.onnx will say that its domain is not imported
    if 0 < version < OLDEST_OPSET and all(means_the_same(node, version) for node in model.graph.all_nodes()):
        return
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        problems.add(
            f"operator set {version} of ai.onnx; npuc reads {OLDEST_OPSET} to {NEWEST_OPSET}: "
            f"export again with opset_version={min(max(version, OLDEST_OPSET), NEWEST_OPSET)}"
        )


Scope = tuple[ir.Graph, ...]


def _check_graph(model: ir.Model, graph: ir.Graph, outer: Scope, problems: Problems) -> None:
    scope = (*outer, graph)
    for node in graph:
        if not is_known(node, model):
            problems.add(unknown_text(node, model), node_text(node))
        for value in node.inputs:
            if value is not None and not _is_made(value, scope):
                problems.add(f"reads {value.name!r}, a value that nothing makes", node_text(node))
        for attribute in node.attributes.values():
            for inner in subgraphs(attribute):
                _check_graph(model, inner, scope, problems)
    for value in graph.outputs:
        if value is None or not _is_made(value, scope):
            problems.add(f"graph output {value.name if value else ''!r} is a value that nothing makes")
    stuck = ordered(graph)[1]
    if stuck:
        names = [node_text(n) for n in cycle(stuck)]
        problems.add(f"a cycle: {' -> '.join([*names, names[0]])}")


def _is_made(value: ir.Value, scope: Scope) -> bool:
    producer = value.producer()
    if producer is not None:
        return producer.graph in scope
    return value.is_graph_input() or value.is_initializer()
