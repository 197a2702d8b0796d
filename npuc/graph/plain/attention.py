"""Attention that no rule takes runs as the model writes it, where no unfilled slot can change an answer."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.fuse.rule import Refusal, Scope
from npuc.graph.nodes import DOMAIN, Builder, attributes, dims, is_op, label
from npuc.graph.plain.facts import Lost
from npuc.graph.plain.padding import mask_padding
from npuc.graph.plain.rows import row_axes
from npuc.graph.plain.slots import SlotWalk
from npuc.graph.static import Draft

_NO_RULE = "a cache is read by a node that belongs to no attention which a rule takes"


def run_as_written(draft: Draft, scope: Scope, ids: str, refusals: Sequence[Refusal]) -> int:
    """Lets the readers of caches that are no npuc.Attention read npuc.PastRows, in place; how many caches have such.

    npuc.PastRows gives the filled slots and zeros for the others. Raises ModelRefused, with the reasons of the
    attention rules, unless every value that leaves the graph is the same whatever the other slots hold.
    """
    assert draft.n_past is not None
    readers = [(value, use.node) for value in _caches(draft) for use in value.uses() if not _is_attention(use.node)]
    if not readers:
        return 0
    problems = Problems()
    for value, node in readers:
        reason = _form(value, node, draft.capacity)
        if reason is not None:
            problems.add(f"{_NO_RULE}; {reason}", label(node))
            continue
        builder = Builder(draft.graph, node, [node])
        past = builder.op("PastRows", [value, draft.n_past], dims(value), value.dtype or ir.DataType.FLOAT, {}, DOMAIN)
        node.replace_input_with(0, past)
        if draft.rows > 1 and any(is_op(other, "DynamicQuantizeLinear") for other in draft.graph):
            mask_padding(draft, node, 1, 2)
    if not problems:
        walk = SlotWalk(scope, row_axes(draft.graph, ids, draft.rows))
        walk.run()
        for reason in _reasons(draft, walk):
            problems.add(f"{_NO_RULE}, and it cannot run as it is written: {reason}")
    for refusal in refusals if problems else ():
        if refusal.rule.startswith("attention"):
            problems.add(refusal.reason, refusal.node)
    problems.refuse()
    return len({value for value, _ in readers})


def _caches(draft: Draft) -> list[ir.Value]:
    return [value for value, shape in draft.shapes.items() if len(shape) == 4 and value.is_graph_input()]


def _is_attention(node: ir.Node) -> bool:
    return is_op(node, "Attention", domain=DOMAIN)


def _form(cache: ir.Value, node: ir.Node, capacity: int) -> str | None:
    """Why a reader does not join a whole cache with new rows; None if it does."""
    if not is_op(node, "Concat") or len(node.inputs) != 2 or node.inputs[0] is not cache:
        return "to run as it is written it must join the cache with the new rows"
    if attributes(node)["axis"] % 4 != 2:
        return f"it joins the cache along axis {attributes(node)['axis']}, not along its rows"
    if dims(cache)[2] != capacity:
        return f"to run as it is written it must keep all {capacity} rows, and keeps {dims(cache)[2]}"
    return None


def _reasons(draft: Draft, walk: SlotWalk) -> list[str]:
    """Why a value that leaves the graph may depend on unfilled slots, each reason once."""
    reasons: dict[str, None] = {}
    for value in draft.graph.outputs:
        fact = walk.found.get(value)
        if isinstance(fact, Lost):
            reasons.setdefault(fact.reason)
        elif fact is not None:
            reasons.setdefault(f"output {value.name!r} has the slots of a cache")
    return list(reasons)
