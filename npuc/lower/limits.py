"""What lowering asks of a node beyond its operator.

A check's docstring is its message in a refusal, and its line in the table of `npuc ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx_ir as ir

from npuc.lower.context import attribute, constant, static_shape

Check = Callable[[ir.Node], bool]
MAX_INDEX_COLUMNS = 8
"""Inputs of the kernel that joins the columns of an index to a place."""


def last_axis(node: ir.Node) -> bool:
    """only the last axis is normalised, with one output"""
    value = node.inputs[0]
    rank = len(static_shape(value)) if value is not None else 0
    one = not any(output.uses() or output.is_graph_output() for output in node.outputs[1:])
    return one and int(attribute(node, "axis", -1)) % max(rank, 1) == rank - 1


def padded_with_a_constant(node: ir.Node) -> bool:
    """the mode is 'constant', and the value that fills is known when the model is compiled"""
    fill = node.inputs[2] if len(node.inputs) > 2 else None
    return attribute(node, "mode", "constant") == "constant" and (fill is None or constant(fill) is not None)


def no_power_of_two_scale(node: ir.Node) -> bool:
    """a cast to float8e8m0 has no kernel"""
    return ir.DataType(attribute(node, "to", 0)).name != "FLOAT8E8M0"


def few_index_columns(node: ir.Node) -> bool:
    """the last axis of the index names 1 to 8 axes"""
    value = node.inputs[1]
    return value is not None and 1 <= static_shape(value)[-1] <= MAX_INDEX_COLUMNS


def one_batch(node: ir.Node) -> bool:
    """the batch is 1"""
    value = node.inputs[0]
    return value is not None and static_shape(value)[0] == 1


LIMITS: Mapping[tuple[str, str], tuple[Check, ...]] = {
    ("", "LayerNormalization"): (last_axis,),
    ("", "Pad"): (padded_with_a_constant,),
    ("", "Cast"): (no_power_of_two_scale,),
    ("", "GatherND"): (few_index_columns,),
    ("", "ScatterND"): (few_index_columns,),
    ("npuc", "Attention"): (one_batch,),
    ("npuc", "Rotary"): (one_batch,),
}


def message(check: Check) -> str:
    """The text of a check."""
    return " ".join((check.__doc__ or check.__name__).split())


def broken(node: ir.Node) -> Iterator[str]:
    """Messages of the checks that a node does not pass."""
    for check in LIMITS.get((node.domain, node.op_type), ()):
        if not check(node):
            yield message(check)
