"""Where an axis of a value is after an operator that moves elements or computes them one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from npuc.graph.nodes import attributes, constant, dims, is_op, label

SHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that keep the order of the elements."""

MOVES = (*SHAPES, "Transpose", "Expand", "Slice", "Split", "Identity", "Tile", "Pad")
"""Operators with one data input that compute nothing."""


def axis_after(node: ir.Node, axis: int) -> int | str:
    """The axis of the first output that an axis of the first input becomes, whole; or why there is none."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    before, after = dims(source), dims(result)
    if is_op(node, *SHAPES):
        return _reshaped(node, before, after, axis)
    if is_op(node, "Transpose"):
        perm = attributes(node).get("perm", list(reversed(range(len(before)))))
        return int(list(perm).index(axis))
    if is_op(node, "Expand"):
        moved = axis + len(after) - len(before)
        return moved if after[moved] == before[axis] else f"{label(node)} repeats its rows"
    if after[axis] == before[axis]:
        return axis
    return f"{label(node)} takes some of its rows"


def _reshaped(node: ir.Node, before: Sequence[int], after: Sequence[int], axis: int) -> int | str:
    """An axis stays one if equally many elements lie between its neighbours."""
    extent, step = before[axis], math.prod(before[axis + 1 :])
    for place, found in enumerate(after):
        if found == extent and math.prod(after[place + 1 :]) == step:
            return place
    return f"{label(node)} from {list(before)} to {list(after)} joins its rows with another axis"


def aligned(value: ir.Value, axis: int, result: ir.Value) -> int:
    """The axis of an elementwise result that an axis of an operand broadcasts to."""
    return axis + len(dims(result)) - len(dims(value))


def of_product(node: ir.Node, operand: int, axis: int) -> int | None:
    """The axis of a matrix product that an axis of an operand becomes; None for the one that it sums over."""
    value = node.inputs[operand]
    assert value is not None
    rank, result = len(dims(value)), len(dims(node.outputs[0]))
    flags = attributes(node)
    turned = bool(flags.get("transB" if operand else "transA", 0))
    summed = rank - 1 if (operand == 0) != turned else rank - 2
    if axis == summed or rank == 1:
        return None
    if axis < rank - 2:
        return axis + result - rank
    return result - (1 if operand else 2)


def reduced_axes(node: ir.Node) -> tuple[int, ...]:
    """Axes that a Reduce operator of opset 18 or later goes over."""
    source = node.inputs[0]
    assert source is not None
    given = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    rank = len(dims(source))
    if given is None or not given.size:
        return () if attributes(node).get("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(int(a) % rank for a in given.reshape(-1))


def after_reduction(node: ir.Node, axis: int) -> int:
    """Where an axis that a Reduce operator leaves alone is in its result."""
    if attributes(node).get("keepdims", 1):
        return axis
    return axis - sum(gone < axis for gone in reduced_axes(node))
