"""Which values the step alone decides: they follow from input shapes, attention mask, positions and constants, never
from token ids or cache contents. Where such values meet the rest of the graph lies the frontier."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import onnx_ir as ir

from npuc.graph.nodes import SHAPE_OPERANDS

_STEP_OPERANDS = {"WriteRows": (2,)}
"""Inputs of npuc's operators that are n_past, which is proven where they are made."""


@dataclass(frozen=True)
class Frontier:
    """A step-only value that others read as data. uses: (node, input index) of these readers, in graph order."""

    value: ir.Value
    uses: tuple[tuple[ir.Node, int], ...]


def step_frontier(graph: ir.Graph, step_inputs: Set[str]) -> list[Frontier]:
    """The frontier of a topologically sorted graph, in graph order.

    step_inputs: names of the inputs whose contents the step decides (attention mask, positions). Readers that take
    the value as a shape, an axis or a bound (SHAPE_OPERANDS) do not count: constant folding serves them.
    """
    varying: dict[ir.Value, bool] = {v: True for v in graph.inputs if v.name in step_inputs}
    uses: dict[ir.Value, list[tuple[ir.Node, int]]] = {}
    for node in graph:
        kind = _kind(node, varying)
        if kind is not None:
            varying.update((output, kind) for output in node.outputs)
            continue
        operands = SHAPE_OPERANDS.get(node.op_type, ()) if node.domain == "" else _STEP_OPERANDS.get(node.op_type, ())
        for index, value in enumerate(node.inputs):
            if value is not None and varying.get(value, False) and index not in operands:
                uses.setdefault(value, []).append((node, index))
    return [Frontier(value, tuple(readers)) for value, readers in uses.items()]


def _kind(node: ir.Node, varying: dict[ir.Value, bool]) -> bool | None:
    """None: not step-only. False: constant. True: decided by the step."""
    if node.domain == "" and node.op_type in ("Shape", "Size"):
        return True
    result = False
    for value in node.inputs:
        if value is None or value.is_initializer():
            continue
        if value not in varying:
            return None
        result = result or varying[value]
    return result
