"""The order in which the nodes of a graph can run."""

from __future__ import annotations

from collections import deque

import onnx_ir as ir


def reads(node: ir.Node) -> list[ir.Value]:
    """The values that a node needs, those that its subgraphs capture included."""
    values = [v for v in node.inputs if v is not None]
    for attribute in node.attributes.values():
        for graph in subgraphs(attribute):
            for inner in graph:
                values.extend(v for v in reads(inner) if v.graph is not graph)
            values.extend(v for v in graph.outputs if v is not None and v.graph is not graph)
    return values


def subgraphs(attribute: ir.Attr) -> list[ir.Graph]:
    """The graphs of an attribute, none for most."""
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    if attribute.type == ir.AttributeType.GRAPHS:
        return list(attribute.as_graphs())
    return []


def ordered(graph: ir.Graph) -> tuple[list[ir.Node], list[ir.Node]]:
    """(nodes in an order that runs, nodes that cannot run because they are on a cycle or behind one).

    The file's own order where it runs; otherwise each node as early as its inputs allow, ties in file order.
    """
    position = {node: i for i, node in enumerate(graph)}
    needs: dict[ir.Node, set[ir.Node]] = {}
    in_order = True
    for node, place in position.items():
        makers = {m for m in (v.producer() for v in reads(node)) if m is not None and m in position}
        needs[node] = makers
        in_order &= all(position[m] < place for m in makers)
    if in_order:
        return list(position), []
    users: dict[ir.Node, list[ir.Node]] = {}
    for node, makers in needs.items():
        for maker in makers:
            users.setdefault(maker, []).append(node)
    missing = {node: len(makers) for node, makers in needs.items()}
    ready = deque(node for node, count in missing.items() if count == 0)
    done: list[ir.Node] = []
    while ready:
        node = ready.popleft()
        done.append(node)
        for user in sorted(users.get(node, ()), key=position.__getitem__):
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    return done, [node for node, count in missing.items() if count]


def cycle(stuck: list[ir.Node]) -> list[ir.Node]:
    """One cycle among nodes that cannot run, in the direction of the data."""
    inside = set(stuck)
    path: list[ir.Node] = []
    node = stuck[0]
    while node not in path:
        path.append(node)
        node = next(m for m in (v.producer() for v in reads(node)) if m is not None and m in inside)
    return path[path.index(node) :][::-1]
