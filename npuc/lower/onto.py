"""Sums of a product and a value of its shape: the matrix engine adds the product onto the value.

The vector engine would load both, add and store, on every element of a residual stream; an accumulator that begins with
the value costs it nothing. That pays where there are many rows. A decode row is small, and its sum is part of the norm
behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, constant, static_shape
from npuc.lower.gated import SMALLEST_ROWS
from npuc.lower.groups import Group


@dataclass(frozen=True)
class Onto:
    """A group that adds exactly the product of a MatMul node to another value."""

    group: Group
    product: ir.Node
    other: ir.Value


def find_onto(low: Lowering, groups: Mapping[ir.Node, Group]) -> dict[ir.Node, Onto]:
    """The sums that this lowering makes so, by the node of their group: those of two bytes, without packed weights."""
    if low.storage.floats.nbytes != 2 or "matmul" in low.bound:
        return {}
    return {
        last: found
        for last, found in sums_of(groups).items()
        if low.packed(found.product.inputs[1]) is None
        and found.product.outputs[0] not in low.precise
        and found.group.output not in low.precise
    }


def sums_of(groups: Mapping[ir.Node, Group]) -> dict[ir.Node, Onto]:
    """Such sums by the node of their group. A MatMul is in at most one."""
    found: dict[ir.Node, Onto] = {}
    taken: set[ir.Node] = set()
    for last, group in groups.items():
        sum_ = _sum(group)
        if sum_ is not None and sum_.product not in taken:
            taken.add(sum_.product)
            found[last] = sum_
    return found


def _sum(group: Group) -> Onto | None:
    add, shape = group.nodes[-1], static_shape(group.output)
    if len(group.nodes) != 1 or add.op_type != "Add" or math.prod(shape[:-1]) < SMALLEST_ROWS:
        return None
    for value, other in (add.inputs, reversed(add.inputs)):
        node = None if value is None else value.producer()
        if value is None or other is None or node is None or (node.domain, node.op_type) != ("", "MatMul"):
            continue
        weights = constant(node.inputs[1])
        alone = len(list(value.uses())) == 1 and not value.is_graph_output()
        alike = constant(other) is None and static_shape(other) == static_shape(value) == shape
        if weights is not None and len(weights.shape) == 2 and alone and alike:
            return Onto(group, node, other)
    return None


def lower_onto(low: Lowering, onto: Onto) -> None:
    """out = other + x w^T."""
    last = onto.group.nodes[-1]
    out = low.at[onto.group.output] = low.new(onto.group.output)
    rows, base, matrix = (views.as_matrix(r) for r in (low.region(onto.product.inputs[0]), low.region(onto.other), out))
    assert matrix is not None, "a new value is dense"
    if rows is None:
        rows = views.as_matrix(low.copied(low.region(onto.product.inputs[0]), last))
    if base is None:
        base = views.as_matrix(low.copied(low.region(onto.other), last))
    tensor = constant(onto.product.inputs[1])
    assert tensor is not None, "found with constant weights"
    low.call("matmul_onto", (rows, low.consts.weights(tensor, transposed=False), base, matrix), last)
