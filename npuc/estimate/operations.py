"""The canonical graph as the operations that a compiled program runs: one or more nodes each, in the graph's order.

The grouping is the compiler's own: elementwise chains, a residual sum with the norm behind it or the product before it,
gated layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

import onnx_ir as ir

from npuc.bound.work import MOVES
from npuc.graph.entry import EntryGraph
from npuc.graph.nodes import DOMAIN, SHAPE_OPERANDS, attributes, dims, is_op
from npuc.graph.quantised.packed import packed_node
from npuc.lower.gated import find_gated
from npuc.lower.groups import group_nodes, members_of
from npuc.lower.onto import sums_of
from npuc.lower.residual import norm_of_sum

Kind = Literal["product", "pair", "attention", "experts", "vector", "gather", "move"]
PRODUCTS = ("MatMul", "Gemm")
ROW_TABLES = ("Gather", "StepRows")
"""Operators that take rows of their first operand."""


@dataclass(frozen=True)
class Operation:
    """Nodes that run together. kind: "product" of two operands, and what it is added onto; "pair", two products and the
    chain behind them; "attention"; "experts"; "vector"; "gather" of rows; "move", which may cost nothing."""

    kind: Kind
    nodes: tuple[ir.Node, ...]

    @property
    def last(self) -> ir.Node:
        return self.nodes[-1]

    @property
    def name(self) -> str:
        """The name of its last node, which a compiled program has for it, too."""
        return self.last.name or ""

    @property
    def products(self) -> tuple[ir.Node, ...]:
        return tuple(node for node in self.nodes if node.op_type in PRODUCTS)

    def inputs(self) -> list[ir.Value]:
        """The data that it reads and does not make, each once: no shapes and axes."""
        made = {output for node in self.nodes for output in node.outputs}
        values = [value for node in self.nodes for value in _data(node)]
        return list(dict.fromkeys(value for value in values if value not in made))

    def outputs(self) -> list[ir.Value]:
        """What others read, or the entry gives."""
        own = set(self.nodes)
        made = [output for node in self.nodes for output in node.outputs if output.name]
        return [v for v in made if v.is_graph_output() or any(use.node not in own for use in v.uses())]


def operations_of(entry: EntryGraph) -> list[Operation]:
    """entry: canonical, with static shapes."""
    return list(_operations(entry))


def _operations(entry: EntryGraph) -> Iterator[Operation]:
    graph = entry.model.graph
    nodes = list(graph)
    groups = group_nodes(nodes, frozenset(graph.outputs))
    grouped, gated = members_of(groups), find_gated(groups)
    position = {node: place for place, node in enumerate(nodes)}
    onto = sums_of(groups)  # as with floats of two bytes; f32 sums stay with the norm
    done = {product for layer in gated.values() for product in layer.products}
    done |= {sum_.product for sum_ in onto.values()}
    for node in nodes:
        norm = norm_of_sum(groups[node], position) if node in groups and node not in onto else None
        if norm is not None:
            done.add(norm)
            yield Operation("vector", (*groups[node].nodes, norm))
        elif node in onto:
            yield Operation("product", (onto[node].product, *onto[node].group.nodes))
        elif node in gated:
            yield Operation("pair", (*gated[node].products, *gated[node].group.nodes))
        elif node in groups:
            kind: Kind = "move" if all(member.op_type in MOVES for member in groups[node].nodes) else "vector"
            yield Operation(kind, groups[node].nodes)
        elif node not in grouped and node not in done and packed_node(node.outputs[0]) is None:
            yield Operation(_kind(node), (node,))


def constant_matrix(node: ir.Node) -> ir.Value | None:
    """The weights of a product, None for other nodes and for products of two values."""
    weights = node.inputs[1] if node.op_type in PRODUCTS and not node.domain else None
    return weights if weights is not None and weights.const_value is not None else None


def product_extents(node: ir.Node) -> tuple[int, int, int]:
    """m, k and n of one product of a MatMul or Gemm; of one axis, a left operand is a row and a right one a column."""
    a, b = (dims(v) for v in node.inputs[:2] if v is not None)
    c = dims(node.outputs[0])
    turned = node.op_type == "Gemm" and bool(attributes(node).get("transA", 0))
    depth = a[0] if turned else a[-1]
    if len(b) == 1:
        return prod(c), depth, 1
    rows = prod(c[:-1]) if len(b) == 2 else (c[-2] if len(a) > 1 else 1)
    return rows, depth, c[-1]


def matrix_extents(node: ir.Node) -> tuple[int, int, int]:
    """Output channels, depth and number of the matrices that are the second operand of a product."""
    _, depth, channels = product_extents(node)
    weights = node.inputs[1]
    assert weights is not None
    return channels, depth, prod(dims(weights)[:-2])


def _data(node: ir.Node) -> list[ir.Value]:
    skipped = SHAPE_OPERANDS.get(node.op_type, ()) if not node.domain else ()
    return [value for at, value in enumerate(node.inputs) if value is not None and at not in skipped]


def _kind(node: ir.Node) -> Kind:
    if node.op_type == "Attention":
        return "attention"
    if is_op(node, "MoE", domain=DOMAIN):
        return "experts"
    if node.op_type in PRODUCTS:
        return "product"
    if node.op_type in ROW_TABLES:
        return "gather"
    return "move" if node.op_type in MOVES else "vector"
