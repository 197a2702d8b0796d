"""The routing of a mixture of experts as one SHAVE run: softmax, the best of a row, and weights that sum to 1.

Each of these is a launch of its own otherwise, and a launch costs more than the row of scores that a decode step has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from npuc.graph.nodes import is_op
from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, static_shape
from npuc.lower.groups import Group


@dataclass(frozen=True)
class Route:
    """softmax?(scores) -> TopK -> softmax or division by the sum, or neither. nodes: in graph order.

    weights, indices: what is read of it; before: a softmax of all scores; after: "softmax", "sum" or "".
    """

    nodes: tuple[ir.Node, ...]
    scores: ir.Value
    weights: ir.Value
    indices: ir.Value
    before: bool
    after: str


def find_routes(nodes: Sequence[ir.Node], groups: Mapping[ir.Node, Group]) -> list[Route]:
    """The routings of a graph that have more than the TopK alone."""
    found = (_route(node, groups) for node in nodes if is_op(node, "TopK"))
    return [route for route in found if route is not None]


def _route(topk: ir.Node, groups: Mapping[ir.Node, Group]) -> Route | None:
    scores, (best, indices) = topk.inputs[0], topk.outputs[:2]
    axis = int(attribute(topk, "axis", -1))
    if scores is None or axis not in (-1, len(static_shape(scores)) - 1) or not attribute(topk, "largest", 1):
        return None
    nodes, weights, after = [topk], best, ""
    readers = [use.node for use in best.uses()]
    if best.is_graph_output() or not readers:
        return None
    if len(readers) == 1 and _is_softmax(readers[0], best):
        nodes, weights, after = [topk, readers[0]], readers[0].outputs[0], "softmax"
    elif len(readers) == 2:
        total = next((node for node in readers if _sums(node)), None)
        share = next((node for node in readers if is_op(node, "Div") and node is not total), None)
        if total is not None and share is not None and _divides(share, best, total, groups):
            nodes, weights, after = [topk, total, share], share.outputs[0], "sum"
    maker = scores.producer()
    before = maker is not None and len(list(scores.uses())) == 1 and not scores.is_graph_output()
    if maker is not None and before and _is_softmax(maker, maker.inputs[0]):
        assert maker.inputs[0] is not None
        return Route((maker, *nodes), maker.inputs[0], weights, indices, True, after)
    return Route(tuple(nodes), scores, weights, indices, False, after) if after else None


def _is_softmax(node: ir.Node, value: ir.Value | None) -> bool:
    """Over the last axis, of this value."""
    if not is_op(node, "Softmax") or value is None or node.inputs[0] is not value:
        return False
    return int(attribute(node, "axis", -1)) in (-1, len(static_shape(value)) - 1)


def _sums(node: ir.Node) -> bool:
    """A ReduceSum over the last axis, which stays, with one reader."""
    axes = constant(node.inputs[1]) if is_op(node, "ReduceSum") and len(node.inputs) > 1 else None
    if axes is None or not attribute(node, "keepdims", 1) or len(list(node.outputs[0].uses())) != 1:
        return False
    rank = len(static_shape(node.outputs[0]))
    return not node.outputs[0].is_graph_output() and [int(a) % rank for a in axes.numpy().reshape(-1)] == [rank - 1]


def _divides(share: ir.Node, best: ir.Value, total: ir.Node, groups: Mapping[ir.Node, Group]) -> bool:
    """Whether a node, and no chain around it, is best / total."""
    alone = share in groups and groups[share].nodes == (share,)
    return alone and share.inputs[0] is best and share.inputs[1] is total.outputs[0]


def lower_route(low: Lowering, route: Route) -> None:
    """One call of the route kernel."""
    source = low.region(route.scores)
    scores = views.as_matrix(source)
    if scores is None:
        scores = views.as_matrix(low.copied(source, route.nodes[-1]))
    outputs = []
    for value in (route.weights, route.indices):
        low.at[value] = low.new(value)
        outputs.append(views.as_matrix(low.at[value]))
    low.call("route", (scores, *outputs), route.nodes[-1], before=route.before, after=route.after)
