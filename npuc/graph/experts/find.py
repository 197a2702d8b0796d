"""Where a graph may have a mixture of experts: regions from an input, expert numbers and their weights to one result.

The numbers come from a TopK. Everything that depends on them flows together again in one value, the result; what else
flows in comes from one value, the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import onnx_ir as ir

from npuc.graph.experts.sizes import Sizes
from npuc.graph.fuse.region import FLOATS, Region
from npuc.graph.nodes import DOMAIN, is_op

_RESULTS, _INPUTS, _WEIGHTS = 60, 6, 6  # how many values are tried for each part, the nearest first


@dataclass(frozen=True)
class Candidate:
    """region: its sources are the input, the numbers, the weights, then values that follow from sizes."""

    x: ir.Value
    indices: ir.Value
    weights: ir.Value
    region: Region

    @property
    def result(self) -> ir.Value:
        return self.region.result


def routers(graph: ir.Graph) -> list[ir.Node]:
    """TopK nodes that pick the largest along an axis that may be the last, whose numbers are read and
    not by a mixture that is said already."""
    found = []
    for node in graph:
        readers = [use.node for use in node.outputs[1].uses()] if is_op(node, "TopK") else []
        if not readers or any(is_op(reader, "MoE", domain=DOMAIN) for reader in readers):
            continue
        if any(is_op(use.node, "MoE", domain=DOMAIN) for use in node.outputs[1].uses()):
            continue  # of a mixture that is one operator already
        attrs = node.attributes
        largest = attrs["largest"].value if "largest" in attrs else 1
        axis = attrs["axis"].value if "axis" in attrs else -1
        if largest and axis in (-1, 1, 2):
            found.append(node)
    return found


def candidates(topk: ir.Node, sizes: Sizes) -> Iterator[Candidate]:
    """What may be the mixture behind a router, nearest results first."""
    indices = topk.outputs[1]
    rows = sizes.shape(indices)
    if rows is None:
        return
    for result in _results(topk, sizes):
        for weights in _weights(result, rows, topk, sizes):
            tried = 0
            for x, nodes, leaves in _inputs(result, {indices, weights}, sizes):
                if topk in nodes or tried == _INPUTS:
                    break
                if sum(is_op(node, "MatMul", "Gemm") for node in nodes) >= 2:
                    tried += 1
                    ordered = tuple(sorted(nodes, key=sizes.order.__getitem__))
                    yield Candidate(x, indices, weights, Region(ordered, (x, indices, weights, *leaves), result))


def _results(topk: ir.Node, sizes: Sizes) -> Iterator[ir.Value]:
    """Values through which everything flows that depends on the router's numbers or weights."""
    nodes = [node for node, place in sizes.order.items() if place > sizes.order[topk]]
    open_: dict[ir.Value, int] = {}

    def add(values: list[ir.Value]) -> None:
        for value in values:
            if value.is_graph_output():
                open_[value] = len(sizes.order)
            elif value.uses():
                open_[value] = max(sizes.order[use.node] for use in value.uses())

    add(list(topk.outputs))
    found = 0
    for node in nodes:
        if not any(value in open_ for value in node.inputs if value is not None):
            continue
        add(list(node.outputs))
        for value in [v for v, last in open_.items() if last <= sizes.order[node]]:
            del open_[value]
        if len(open_) == 1:
            found += 1
            yield next(iter(open_))
        if found == _RESULTS:
            return


def _weights(result: ir.Value, rows: tuple[int, ...], topk: ir.Node, sizes: Sizes) -> list[ir.Value]:
    """Float values of the numbers' shape that the result depends on, the last ones first."""
    found: dict[ir.Value, int] = {}
    seen: set[ir.Value] = set()
    stack = [result]
    first = sizes.order[topk]
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in seen or node is None or sizes.order[node] < first:
            continue
        seen.add(value)
        stack.extend(v for v in node.inputs if v is not None)
        fact = sizes.fact(value)
        if fact is not None and fact.dtype in FLOATS and fact.shape == rows:
            found[value] = sizes.order[node]
    last_first = sorted(found, key=found.__getitem__, reverse=True)
    stands_for = (value for value in last_first if not _reaches(result, topk, {topk.outputs[1], value}))
    return list(islice(stands_for, _WEIGHTS))


def _reaches(result: ir.Value, node: ir.Node, stops: set[ir.Value]) -> bool:
    """Whether the result depends on a node by other ways than through the stops."""
    seen: set[ir.Value] = set()
    stack = [result]
    while stack:
        value = stack.pop()
        maker = value.producer()
        if value in seen or value in stops or maker is None:
            continue
        if maker is node:
            return True
        seen.add(value)
        stack.extend(v for v in maker.inputs if v is not None)
    return False


def _inputs(
    result: ir.Value, stops: set[ir.Value], sizes: Sizes
) -> Iterator[tuple[ir.Value, set[ir.Node], list[ir.Value]]]:
    """Values from which alone, beside the stops and sizes, the result follows: with the nodes and sizes between."""
    open_, leaves, nodes = {result: 0}, dict[ir.Value, None](), set[ir.Node]()
    while open_:
        if len(open_) == 1 and nodes:
            yield next(iter(open_)), set(nodes), list(leaves)
        value = max(open_, key=open_.__getitem__)
        node = value.producer()
        if node is None:
            return
        nodes.add(node)
        for output in node.outputs:
            open_.pop(output, None)
        for operand in node.inputs:
            if operand is None or operand in stops or operand.const_value is not None:
                continue
            maker = operand.producer()
            if sizes.follows_from_sizes(operand) and sizes.content(operand) is not None:
                leaves.setdefault(operand)
            elif maker is None or maker not in nodes:
                open_[operand] = -1 if maker is None else sizes.order[maker]
