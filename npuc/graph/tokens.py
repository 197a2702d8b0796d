"""Whether a graph is a decoder: the input that holds token ids."""

from __future__ import annotations

import math

import onnx_ir as ir

_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)


def ids_input(model: ir.Model) -> ir.Value | None:
    """The token ids, or None where the graph is no decoder.

    An integer input [batch, rows] named input_ids; else, in a graph with an output [batch, rows, vocabulary], the one
    that picks rows of the largest constant table (position ids pick rows of smaller ones).
    """
    candidates = [v for v in model.graph.inputs if v.dtype in _INTEGERS and v.shape is not None and len(v.shape) == 2]
    for value in candidates:
        if value.name == "input_ids":
            return value
    if not any(v.shape is not None and len(v.shape) == 3 for v in model.graph.outputs):
        return None
    sized = [(_table(value), value) for value in candidates]
    size, best = max(sized, key=lambda pair: pair[0], default=(0, None))
    return best if size else None


def is_plain(model: ir.Model, llm: bool | None) -> bool:
    """Whether a graph is compiled as a plain one. llm: as the user says; None lets the graph decide."""
    return llm is False or ids_input(model) is None


def _table(value: ir.Value) -> int:
    """Elements of the largest constant matrix that a value picks rows of."""
    sizes = [0]
    for use in value.uses():
        table = use.node.inputs[0]
        if use.node.op_type == "Gather" and use.idx == 1 and table is not None and table.const_value is not None:
            shape = table.const_value.shape.numpy()
            sizes.append(math.prod(shape) if len(shape) == 2 else 0)
    return max(sizes)
