"""Whether a graph is a decoder: the input that holds token ids."""

from __future__ import annotations

import onnx_ir as ir

_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)


def ids_input(model: ir.Model) -> ir.Value | None:
    """The token ids: the integer input [batch, rows] named input_ids, or else the only one that picks rows of a constant table.

    None: the graph is no decoder.
    """
    candidates = [v for v in model.graph.inputs if v.dtype in _INTEGERS and v.shape is not None and len(v.shape) == 2]
    named = [v for v in candidates if v.name == "input_ids"]
    if named:
        return named[0]
    looked_up = [v for v in candidates if _picks_rows(v)]
    return looked_up[0] if len(looked_up) == 1 and _has_float_table(model) else None


def _picks_rows(value: ir.Value) -> bool:
    return any(use.node.op_type in ("Gather", "GatherBlockQuantized") and use.idx == 1 for use in value.uses())


def _has_float_table(model: ir.Model) -> bool:
    return any(v.shape is not None and len(v.shape) == 3 for v in model.graph.outputs)
