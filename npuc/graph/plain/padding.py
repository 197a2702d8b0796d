"""Padding at the end of a run gets a neutral value in front of operators that go over all its rows."""

from __future__ import annotations

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.nodes import DOMAIN, Builder, dims, is_op, label
from npuc.graph.plain.facts import Lost
from npuc.graph.plain.rows import row_axes
from npuc.graph.static import N_NEW, Draft


def neutral_padding(draft: Draft, ids: str) -> None:
    """Puts npuc.ValidRows in front of each DynamicQuantizeLinear, in place: zeros for the rows that are padding.

    Zero does not change its scale, for its range has zero in it. Raises ModelRefused naming each whose rows cannot be
    told from other elements.
    """
    spans = [node for node in draft.graph if is_op(node, "DynamicQuantizeLinear")]
    if draft.rows == 1 or not spans:
        return
    rows, problems = row_axes(draft.graph, ids, draft.rows), Problems()
    for node in spans:
        axis = rows.get(node.inputs[0]) if node.inputs[0] is not None else None
        if isinstance(axis, Lost):
            problems.add(f"its scale would span the padding of a run: {axis.reason}", label(node))
        elif axis is not None:
            mask_padding(draft, node, 0, axis)
    problems.refuse()


def mask_padding(draft: Draft, node: ir.Node, index: int, axis: int) -> None:
    """Zeros for the padding among the rows along `axis` of one input of a node, in place."""
    value = node.inputs[index]
    assert value is not None and value.dtype is not None
    n_new = next(given for given in draft.graph.inputs if given.name == N_NEW)
    masked = Builder(draft.graph, node, [node]).op(
        "ValidRows", [value, n_new], dims(value), value.dtype, {"axis": axis}, DOMAIN
    )
    node.replace_input_with(index, masked)
