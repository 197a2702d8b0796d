"""Attention written out: a Softmax between two MatMuls, with scale, soft-cap, masks and NaN guards around it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from npuc.graph.fuse.attention import AttentionSite, rewrite_attention
from npuc.graph.fuse.columns import drops_last_column, read_sinks, read_slopes
from npuc.graph.fuse.mask import Visibility, additive, boolean, mask_region, negated
from npuc.graph.fuse.region import is_float_cast
from npuc.graph.fuse.rule import Rewrite, Scope
from npuc.graph.nodes import attributes, constant, dims, is_op, label, producer, scalar
from npuc.graph.recognise.classify import MASKED_BELOW


@dataclass
class _Scores:
    """What happens between q x k and softmax, read backwards. scale multiplies q x k; softcap 0 is none. slopes, sinks:
    one a head, empty for none."""

    scale: float = 1.0
    softcap: float = 0.0
    masks: list[Visibility] = field(default_factory=list)
    slopes: tuple[float, ...] = ()
    sinks: tuple[float, ...] = ()
    nodes: list[ir.Node] = field(default_factory=list)


class SoftmaxAttentionRule:
    """MatMul > (scale, soft-cap, bias, mask, sink) > Softmax > (NaN guard) > MatMul becomes npuc.Attention."""

    name = "attention (MatMul, Softmax, MatMul)"
    anchors = ("Softmax",)

    def match(self, node: ir.Node, scope: Scope) -> Rewrite | str | None:
        scores = _Scores()
        before = read_sinks(node.inputs[0])
        if isinstance(before, str):
            return before
        scores.sinks, first = before
        closing = _closing_product(node, bool(scores.sinks))
        opening = _read_scores(first, scores, scope)
        if isinstance(opening, str):
            return opening
        if closing is None or any(value is None or value.const_value is not None for value in opening.inputs):
            return None
        shape = dims(node.outputs[0])
        if attributes(node).get("axis", -1) % len(shape) != len(shape) - 1:
            return "its Softmax does not run over the last axis"
        visibility = Visibility(False, 0)
        for mask in scores.masks:
            visibility = visibility.both(mask)
        query, key, value = opening.inputs[0], opening.inputs[1], closing.inputs[1]
        assert query is not None and key is not None and value is not None
        heads = int(np.prod(dims(opening.outputs[0])[:-2]))
        nodes = (opening, *reversed(scores.nodes), node, closing)
        site = AttentionSite(
            query, key, value, closing.outputs[0], heads, scores.scale, scores.softcap, visibility, nodes,
            scores.slopes, scores.sinks,
        )  # fmt: skip
        return rewrite_attention(site, scope)


def _closing_product(softmax: ir.Node, has_sinks: bool) -> ir.Node | None:
    """The MatMul whose first input is the probabilities, behind casts, reshapes, NaN guards and the cut of a sink."""
    queue = [softmax.outputs[0]]
    if has_sinks:
        queue = [use.node.outputs[0] for use in queue[0].uses() if drops_last_column(use.node)]
    seen = set(queue)
    plane = dims(queue[0])[-2:] if queue else ()
    while queue:
        value = queue.pop(0)
        for use in value.uses():
            if is_op(use.node, "MatMul") and use.idx == 0 and dims(value)[-2:] == plane:
                other = use.node.inputs[1]
                return use.node if other is not None and other.const_value is None else None
            hands_on = is_float_cast(use.node) or is_op(use.node, "Reshape") or _is_nan_guard(use.node)
            if (hands_on or is_op(use.node, "IsNaN")) and use.node.outputs[0] not in seen:
                seen.add(use.node.outputs[0])
                queue.append(use.node.outputs[0])
    return None


def _is_nan_guard(node: ir.Node) -> bool:
    """Where(IsNaN(p), 0, p): softmax gives no NaN, because a row always sees itself."""
    test = producer(node.inputs[0], "IsNaN") if is_op(node, "Where") else None
    return test is not None and test.inputs[0] is node.inputs[2] and scalar(node.inputs[1]) == 0


def _read_scores(value: ir.Value | None, scores: _Scores, scope: Scope) -> ir.Node | str:
    """The MatMul of queries and keys behind the scores; what lies between goes into `scores`. Else a reason."""
    while value is not None:
        node = value.producer()
        if node is None:
            return f"its scores come from the graph input {value.name!r}"
        if is_op(node, "MatMul"):
            if scores.softcap:
                scores.scale *= scores.softcap
            return node
        scores.nodes.append(node)
        step = _one_score_step(node, scores, scope)
        if isinstance(step, str):
            return step
        value = step
    return "its scores have no source"


def _one_score_step(node: ir.Node, scores: _Scores, scope: Scope) -> ir.Value | str:
    """The scores before a node, whose effect is noted; or why the node has no place in attention."""
    first = node.inputs[0]
    assert first is not None
    if is_float_cast(node) or (is_op(node, "Reshape") and dims(first)[-2:] == dims(node.outputs[0])[-2:]):
        return first
    if is_op(node, "Mul", "Div"):
        return _scaled(node, scores)
    if is_op(node, "Tanh"):
        if scores.softcap:
            return f"{label(node)} is the second Tanh on the way of the scores"
        scores.softcap, scores.scale = scores.scale, 1.0
        return first
    if is_op(node, "Max"):
        others = [v for v in node.inputs if (scalar(v) or 0.0) > MASKED_BELOW]
        return others[0] if len(others) == 1 and others[0] is not None else f"{label(node)} clips scores"
    if is_op(node, "Add"):
        return _masked(node, scores, scope)
    if is_op(node, "Where"):
        return _selected(node, scores, scope)
    return f"{label(node)} stands between the product of queries and keys and the softmax"


def _scaled(node: ir.Node, scores: _Scores) -> ir.Value | str:
    a, b = node.inputs
    number, data = (scalar(b), a) if scalar(b) is not None else (scalar(a), b)
    if number is None or data is None or (is_op(node, "Div") and data is not a):
        return f"{label(node)} scales scores by something that is no number"
    scores.scale *= number if is_op(node, "Mul") else 1 / number
    return data


def _masked(node: ir.Node, scores: _Scores, scope: Scope) -> ir.Value | str:
    if scores.softcap:
        return f"{label(node)} adds a mask before the scores are capped"
    reason = "nothing is a mask"
    for mask, data in ((node.inputs[1], node.inputs[0]), (node.inputs[0], node.inputs[1])):
        slopes = read_slopes(mask)
        if slopes is not None and data is not None:
            if scores.slopes:
                return f"{label(node)} adds a second position bias"
            scores.slopes = tuple(slope * scores.scale for slope in slopes)
            return data
        if mask is not None and data is not None and mask_region(mask, scope) is not None:
            seen = additive(mask, scope)
            if isinstance(seen, Visibility):
                scores.masks.append(seen)
                return data
            reason = seen
    return f"{label(node)} adds something to the scores, but {reason}"


def _selected(node: ir.Node, scores: _Scores, scope: Scope) -> ir.Value | str:
    """Where(mask, scores, lowest) or Where(mask, lowest, scores)."""
    condition, a, b = node.inputs
    assert condition is not None
    for data, fill, read in ((a, b, boolean), (b, a, negated)):
        number = constant(fill)
        if number is not None and bool((number <= MASKED_BELOW).all()) and data is not None:
            seen = "it masks before the scores are capped" if scores.softcap else read(condition, scope)
            if isinstance(seen, str):
                return f"{label(node)}: {seen}"
            scores.masks.append(seen)
            return data
    return f"{label(node)} chooses between scores and something that is not the lowest number"
