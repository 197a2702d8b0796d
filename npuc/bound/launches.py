"""The chain of launches: a value that passes from one engine to the other pays the start of the next task.

Vector operators that follow each other may be one kernel, so a chain pays once for each change to the vector engine;
each product pays the matrix engine's own start, which may be zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from npuc.bound.work import Costs, NodeWork


@dataclass(frozen=True)
class Chain:
    """Seconds of launches up to and with each node, and of the longest chain."""

    upto: tuple[float, ...]
    total: float


def edges_of(nodes: Sequence[ir.Node]) -> tuple[tuple[int, ...], ...]:
    """Of each node, in topological order, the places of the nodes whose results it reads."""
    place = {value: at for at, node in enumerate(nodes) for value in node.outputs}
    return tuple(
        tuple(sorted({place[value] for value in node.inputs if value is not None and value in place})) for node in nodes
    )


def launch_chain(nodes: Sequence[ir.Node], work: Sequence[NodeWork], costs: Costs) -> Chain:
    """nodes: in topological order."""
    return chain_of(edges_of(nodes), work, costs)


def chain_of(edges: Sequence[Sequence[int]], work: Sequence[NodeWork], costs: Costs) -> Chain:
    """edges: from `edges_of`."""
    to_matrix, to_vector = costs.matrix.launch, costs.vector.launch
    on_vector: list[float] = []  # the chain behind a node if a vector operator comes next
    upto: list[float] = []  # the chain if another one comes next
    for producers, cost in zip(edges, work, strict=True):
        before_vector = max((on_vector[at] for at in producers), default=to_vector)
        before = max((upto[at] for at in producers), default=0.0)
        if cost.engine == "vector":
            chain = after_vector = before_vector
        elif cost.engine:
            inside = to_matrix + to_vector + to_matrix if cost.engine == "both" else to_matrix
            chain = before + inside
            after_vector = chain + to_vector
        else:
            chain, after_vector = before, before_vector
        upto.append(chain)
        on_vector.append(after_vector)
    return Chain(tuple(upto), max(upto, default=0.0))
