"""Which axis of each value counts the rows of the run, one for each new token."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from npuc.graph.nodes import DOMAIN, attributes, dims, is_op, label, producer
from npuc.graph.plain.arithmetic import ELEMENTWISE
from npuc.graph.plain.facts import Lost
from npuc.graph.plain.moves import MOVES, after_reduction, aligned, axis_after, of_product, reduced_axes

Rows = int | Lost
Operands = list[tuple[int, Rows]]
"""(input index, axis of the rows) of the inputs that have rows."""

_ALONG_AN_AXIS = ("Softmax", "LogSoftmax", "LayerNormalization", "CumSum", "ArgMax", "ArgMin")
_PRODUCTS = ("MatMul", "Gemm", "MatMulInteger")


def row_axes(graph: ir.Graph, ids: str, rows: int) -> dict[ir.Value, Rows]:
    """The axis of the rows of each value that has one, in a static graph whose input `ids` is [1, rows].

    Values without rows, such as weights and caches, are left out. Lost: the rows are mixed, or in no axis of their own.
    A single row is always filled and mixes with no other: nothing is found for it.
    """
    if rows == 1:
        return {}
    found: dict[ir.Value, Rows] = {value: 1 for value in graph.inputs if value.name == ids}
    for node in graph:
        if is_op(node, "StepRows", domain=DOMAIN):
            found[node.outputs[0]] = 0
        elif is_op(node, "StepMask", "StepBias", domain=DOMAIN):
            found[node.outputs[0]] = 2
        operands = [(i, found[v]) for i, v in enumerate(node.inputs) if v is not None and v in found]
        if operands:
            axis = _lost(operands) or _after(node, operands)
            for output in node.outputs if axis is not None else ():
                found[output] = axis  # type: ignore[assignment]
            if is_op(node, "DynamicQuantizeLinear"):  # scale and zero point are one for all rows
                for output in node.outputs[1:]:
                    del found[output]
    return found


def _lost(operands: Operands) -> Lost | None:
    return next((rows for _, rows in operands if isinstance(rows, Lost)), None)


def _after(node: ir.Node, operands: Operands) -> Rows | None:
    """The rows of a node's outputs; None where they have none."""
    axes = [(index, axis) for index, axis in operands if isinstance(axis, int)]
    for op_types, domain, rule in _RULES:
        if node.op_type in op_types and node.domain == domain:
            answer = rule(node, axes)
            return Lost(answer) if isinstance(answer, str) else answer
    return Lost(f"{label(node)} is not followed")


def _moved(node: ir.Node, axes: list[tuple[int, int]]) -> int | str:
    return axis_after(node, axes[0][1]) if axes[0][0] == 0 else f"{label(node)} reads rows as a shape"


def _computed(node: ir.Node, axes: list[tuple[int, int]]) -> int | str:
    places = {aligned(node.inputs[index], axis, node.outputs[0]) for index, axis in axes}  # type: ignore[arg-type]
    return places.pop() if len(places) == 1 else f"{label(node)} combines different axes of rows"


def _along(node: ir.Node, axes: list[tuple[int, int]]) -> int | str:
    source = node.inputs[0]
    assert source is not None
    axis = attributes(node).get("axis", -1) % len(dims(source))
    return f"{label(node)} goes along the rows" if axes != [(0, axes[0][1])] or axis == axes[0][1] else axes[0][1]


def _last(node: ir.Node, axes: list[tuple[int, int]]) -> int | str:
    """Operators of npuc over the last axis, or with rows in the same axis of the first operand."""
    return axes[0][1] if axes[0][0] == 0 else f"{label(node)} reads rows beside its data"


def _reduced(node: ir.Node, axes: list[tuple[int, int]]) -> int | str:
    if axes[0][1] in reduced_axes(node):
        return f"{label(node)} goes over the rows"
    return after_reduction(node, axes[0][1])


def _joined(node: ir.Node, axes: list[tuple[int, int]]) -> int | str | None:
    """Joined with a cache the rows become its slots."""
    result = node.outputs[0]
    places = {axis for _, axis in axes}
    if places != {attributes(node)["axis"] % len(dims(result))}:
        return places.pop() if len(places) == 1 else f"{label(node)} joins different axes of rows"
    first = node.inputs[0]
    cache = first is not None and (first.is_graph_input() or producer(first, "PastRows", domain=DOMAIN) is not None)
    return None if cache and axes[0][0] == 1 else f"{label(node)} joins rows with others"


def _multiplied(node: ir.Node, axes: list[tuple[int, int]]) -> int | str:
    places = {of_product(node, index, axis) for index, axis in axes if index < 2}
    place = places.pop() if len(places) == 1 else None
    return f"{label(node)} sums over the rows, or has them twice" if place is None else place


def _gathered(node: ir.Node, axes: list[tuple[int, int]]) -> int | str:
    axis, (index, rows) = int(attributes(node).get("axis", 0)), axes[0]
    data, chosen = node.inputs[0], node.inputs[1]
    assert data is not None and chosen is not None
    axis %= len(dims(data))
    if index == 1:
        return axis + rows
    return f"{label(node)} takes some of the rows" if axis == rows else rows + (axis < rows) * (len(dims(chosen)) - 1)


_RULES: tuple[tuple[tuple[str, ...], str, Callable[[ir.Node, list[tuple[int, int]]], int | str | None]], ...] = (
    (tuple(sorted(ELEMENTWISE)), "", _computed),
    (MOVES, "", _moved),
    (_PRODUCTS, "", _multiplied),
    (_ALONG_AN_AXIS, "", _along),
    (tuple(f"Reduce{k}" for k in ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2")), "", _reduced),
    (("Concat",), "", _joined),
    (("Gather",), "", _gathered),
    (("DynamicQuantizeLinear",), "", _last),
    (("StepRows", "StepMask", "StepBias"), DOMAIN, lambda node, axes: axes[0][1]),
    (("RMSNorm", "Rotary", "Attention", "ValidRows", "IntegerLinear"), DOMAIN, _last),
)
