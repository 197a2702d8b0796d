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


def launch_chain(nodes: Sequence[ir.Node], work: Sequence[NodeWork], costs: Costs) -> Chain:
    """nodes: in topological order."""
    to_matrix, to_vector = costs.matrix.launch, costs.vector.launch
    on_vector: dict[ir.Value, float] = {}  # the chain if a vector operator comes next
    elsewhere: dict[ir.Value, float] = {}  # the chain if another one comes next
    upto = []
    for node, cost in zip(nodes, work, strict=True):
        values = [value for value in node.inputs if value is not None]
        before_vector = max((on_vector.get(value, to_vector) for value in values), default=to_vector)
        before = max((elsewhere.get(value, 0.0) for value in values), default=0.0)
        if cost.engine == "vector":
            chain = after_vector = before_vector
        elif cost.engine:
            inside = to_matrix + to_vector + to_matrix if cost.engine == "both" else to_matrix
            chain = before + inside
            after_vector = chain + to_vector
        else:
            chain, after_vector = before, before_vector
        upto.append(chain)
        for value in node.outputs:
            on_vector[value], elsewhere[value] = after_vector, chain
    return Chain(tuple(upto), max(upto, default=0.0))
