"""A residual sum and the norm behind it in one SHAVE run: the sum is normalised while it is in registers.

A launch costs more than the sum of a decode row, so this saves two of about eight runs in a decoder layer.
"""

from __future__ import annotations

import onnx_ir as ir

from npuc.lower.context import Lowering, attribute, constant, static_shape
from npuc.lower.groups import Group
from npuc.lower.rules.reduce import axis_last, like, vector


def norm_of_sum(group: Group, position: dict[ir.Node, int]) -> ir.Node | None:
    """The RMSNorm that can take over a group's work, or None.

    The group is one Add of two values of one shape, and the norm is the first to read the sum: whoever else reads it
    comes later and finds it stored.
    """
    node = group.nodes[-1]
    if len(group.nodes) != 1 or node.op_type != "Add":
        return None
    shape = static_shape(group.output)
    if any(constant(value) is not None or value is None or static_shape(value) != shape for value in node.inputs):
        return None
    users = sorted({use.node for use in group.output.uses()}, key=lambda user: position.get(user, -1))
    if not users or (users[0].domain, users[0].op_type) != ("npuc", "RMSNorm"):
        return None
    return users[0] if users[0].inputs[0] is group.output else None


def lower_norm_of_sum(low: Lowering, group: Group, norm: ir.Node) -> None:
    """total = a + b, out = RMSNorm(total), as one call of the rmsnorm kernel."""
    add = group.nodes[-1]
    first, second = (low.region(value) for value in add.inputs)
    total = like(low, group.output, first)
    out = like(low, norm.outputs[0], first)
    weight = vector(low, norm, 1, first.shape[-1])
    for x, residual, stored, normalised in axis_last([first, second, total, out], first.rank - 1):
        arrays = (x, weight, normalised, residual, stored)
        low.call("rmsnorm", arrays, norm, eps=float(attribute(norm, "epsilon", 1e-5)))
    low.at[group.output], low.at[norm.outputs[0]] = total, out
