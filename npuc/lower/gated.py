"""Gated layers: two products of one input whose results meet in one elementwise chain, as one kernel.

Neither product is stored whole: the chain runs on each pair of tiles. That pays where the products are large. A decode
row is small, and there one SHAVE run over the whole row costs less than one for each tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, constant, static_shape
from npuc.lower.groups import Group, expression_of
from npuc.lower.packed import packed_form

SMALLEST_ROWS = 32  # below, a SHAVE launch per tile costs more than storing both products


@dataclass(frozen=True)
class Gated:
    """A group that combines exactly the products of two MatMul nodes."""

    group: Group
    products: tuple[ir.Node, ir.Node]


def find_gated(groups: dict[ir.Node, Group]) -> dict[ir.Node, Gated]:
    """Gated layers by the last node of their group."""
    found = {}
    for last, group in groups.items():
        products = _products(group)
        if products is not None:
            found[last] = Gated(group, products)
    return found


def _products(group: Group) -> tuple[ir.Node, ir.Node] | None:
    inside = set(group.nodes)
    inputs = dict.fromkeys(
        value
        for node in group.nodes
        for value in node.inputs
        if value is not None and constant(value) is None and value.producer() not in inside
    )
    nodes = [value.producer() for value in inputs]
    if len(nodes) != 2:
        return None
    first, second = nodes
    if first is None or second is None or first.inputs[:1] != second.inputs[:1]:
        return None
    for value, node in zip(inputs, (first, second), strict=True):
        weights = constant(node.inputs[1]) if (node.domain, node.op_type) == ("", "MatMul") else None
        if weights is None or len(weights.shape) != 2 or any(use.node not in inside for use in value.uses()):
            return None
    if packed_form(first.inputs[1]) != packed_form(second.inputs[1]):
        return None
    shapes = {static_shape(value) for value in (*inputs, group.output)}
    rows = static_shape(group.output)[:-1]
    large = 1
    for extent in rows:
        large *= extent
    return (first, second) if len(shapes) == 1 and large >= SMALLEST_ROWS else None


def lower_gated(low: Lowering, gated: Gated) -> None:
    """out = chain(x w0^T, x w1^T), tile by tile."""
    last = gated.group.nodes[-1]
    x = low.region(gated.products[0].inputs[0])
    rows = views.as_matrix(x)
    if rows is None:
        rows = views.as_matrix(low.copied(x, last))
    out = low.at[gated.group.output] = low.new(gated.group.output)
    matrix = views.as_matrix(out)
    assert rows is not None and matrix is not None
    expression, inputs = expression_of(low, gated.group)
    by_value = {node.outputs[0]: node for node in gated.products}
    held = [by_value[value].inputs[1] for value in inputs]
    packed = [weight for weight in map(low.packed, held) if weight is not None]
    if packed:
        low.call_codes("matmul_codes_pair", rows, packed, matrix, (), last, epilogue=expression)
        return
    weights = []
    for weight in held:
        tensor = constant(weight)
        assert tensor is not None, "found with constant weights"
        weights.append(low.consts.weights(tensor, transposed=False))
    low.call("matmul_pair", (rows, *weights, matrix), last, epilogue=expression)
