"""Small edits of an onnx-ir graph that keep the names of inputs, outputs and exporter's nodes."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from npuc.frontend.order import ordered


class Names:
    """Gives out value and node names that the graph does not have yet, the same ones for the same graph."""

    def __init__(self, graph: ir.Graph) -> None:
        self.values: set[str] = set()
        self.nodes: set[str] = set()
        for held in (graph, *graph.subgraphs()):
            self.values.update(v.name for v in (*held.inputs, *held.initializers.values()) if v.name)
        for node in graph.all_nodes():
            self.values.update(v.name for v in node.outputs if v.name)
            if node.name:
                self.nodes.add(node.name)

    def value(self, stem: str) -> str:
        return _fresh(stem, self.values)

    def node(self, stem: str) -> str:
        return _fresh(stem, self.nodes)


def _fresh(stem: str, taken: set[str]) -> str:
    name, count = stem, 0
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    taken.add(name)
    return name


def identity(source: ir.Value, name: str, node_name: str) -> ir.Node:
    """A new Identity node that makes a value of the given name; its type and shape are those of the source."""
    node = ir.node("Identity", [source], name=node_name)
    out = node.outputs[0]
    out.name, out.type, out.shape = name, source.type, source.shape
    return node


def is_free(value: ir.Value) -> bool:
    """Whether a value may take the name of a graph output: made by a node, and no output under a name of its own."""
    return value.producer() is not None and not value.is_graph_output()


def redirect(graph: ir.Graph, old: ir.Value, new: ir.Value, names: Names) -> None:
    """Lets everything that reads `old` read `new`. Where `old` is a graph output, its name and type stay the
    output's.
    """
    places = [i for i, value in enumerate(graph.outputs) if value is old]
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if not places:
        return
    name, kind, shape = old.name or "", old.type, old.shape
    old.name = names.value(f"{name}_before")
    if places == [i for i, value in enumerate(graph.outputs) if value is new] and len(places) == 1 and new.producer():
        new.name, new.type, new.shape = name, kind or new.type, new.shape if shape is None else shape
        return
    node = identity(new, name, names.node(name))
    out = node.outputs[0]
    out.type, out.shape = kind or out.type, out.shape if shape is None else shape
    graph.append(node)
    for place in places:
        graph.outputs[place] = out


def describe_as(new: ir.Value, old: ir.Value) -> None:
    """Gives a value the type and the shape of the one whose place it takes, where it has none. (A scalar has one.)"""
    new.type = new.type or old.type
    new.shape = old.shape if new.shape is None else new.shape


def expose(graph: ir.Graph, value: ir.Value, name: str, names: Names) -> ir.Value:
    """Makes a value a further graph output of the given name, renaming it where that takes no other output's name."""
    if is_free(value):
        value.name = name
        names.values.add(name)
        out = value
    else:
        node = identity(value, name, names.node(name))
        graph.append(node)
        out = node.outputs[0]
    graph.outputs.append(out)
    return out


def remove(graph: ir.Graph, nodes: Iterable[ir.Node]) -> None:
    """Takes out nodes whose outputs nobody reads any more."""
    graph.remove(list(nodes), safe=True)


def source_of(value: ir.Value | None) -> ir.Value | None:
    """The value behind any number of nodes that only pass it on: Identity, and Concat of one operand."""
    while value is not None:
        node = value.producer()
        if node is None or node.domain != "" or not (node.op_type == "Identity" or _lone_concat(node)):
            return value
        value = node.inputs[0]
    return None


def _lone_concat(node: ir.Node) -> bool:
    return node.op_type == "Concat" and len(node.inputs) == 1


def cloned(model: ir.Model) -> ir.Model:
    """A copy that shares the weights. The nodes of the given model may be put into an order that runs."""
    if ordered(model.graph)[0] != list(model.graph):
        model.graph.sort()
    return model.clone()
