"""Nodes of operators that the caller has bound to a kernel."""

from __future__ import annotations

import onnx_ir as ir

from npuc.lower.context import Lowering
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.library import call_name

_PLAIN = {
    ir.AttributeType.INT: int,
    ir.AttributeType.FLOAT: float,
    ir.AttributeType.STRING: str,
    ir.AttributeType.INTS: tuple,
    ir.AttributeType.FLOATS: tuple,
}


def bound_op(low: Lowering, node: ir.Node) -> None:
    """One call: the node's inputs (None for one that is left out), then its outputs; attributes are parameters."""
    params = {}
    for name, attribute in node.attributes.items():
        kind = _PLAIN.get(attribute.type)
        if kind is None:
            what = attribute.type.name.lower()
            takes = "a kernel takes numbers, texts and lists of numbers"
            raise LoweringRefused([f"{describe(node)}: attribute {name!r} is a {what}; {takes}"])
        params[name] = kind(attribute.value)
    inputs = [None if value is None else low.region(value) for value in node.inputs]
    outputs = [low.new(value) for value in node.outputs]
    for region in (*inputs, *outputs):
        if region is not None and region.rank > 4:
            raise LoweringRefused(
                [f"{describe(node)}: a kernel's array has at most 4 axes, one here has {region.rank}"]
            )
    low.call(call_name((node.domain, node.op_type)), (*inputs, *outputs), node, **params)
    low.at.update(zip(node.outputs, outputs, strict=True))
