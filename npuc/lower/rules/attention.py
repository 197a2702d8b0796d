"""The ops of decoder LLMs: attention over past and new rows, rotary embedding, rows of a position table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, static_shape
from npuc.lower.views import contiguous_strides
from npuc.tasks import Region, Role
from npurt.abi.dtypes import DType

_ROWS_FIRST = (0, 2, 1, 3)  # [1, H, C, D] in memory as [1, C, H, D], which is how linear layers leave and take heads


def attention(low: Lowering, node: ir.Node) -> None:
    """npuc.Attention(q, k_new, v_new, k_past, v_past, n_past), with a slope and a sink per head where it has them.

    The output is laid out [C, H, D], so that the transposition and reshape that follow are views, and takes the place
    of the queries where it can.
    """
    q, k_new, v_new, k_past, v_past = (_heads(low.region(v)) for v in node.inputs[:5])
    ring = int(attribute(node, "ring", 0))
    known = not ring and "attention" not in low.bound
    out = (_over_queries(low, node) if known else None) or low.new(node.outputs[0], order=_ROWS_FIRST)
    arrays: list[Region | None] = [q, k_new, v_new, k_past, v_past, _heads(out)]
    arrays += [_of_heads(low, attribute(node, name, ())) for name in ("slopes", "sinks")]
    if known:
        arrays += [_ones(low, k_past.shape[1] + k_new.shape[1], q.dtype), _slot_table(low, q, k_past, node)]
    low.call(
        "attention_ring" if ring else "attention",
        arrays,
        node,
        scale=float(attribute(node, "scale", 1.0)),
        softcap=float(attribute(node, "softcap", 0.0)),
        window=int(attribute(node, "window", 0)),
        **({"ring": ring} if ring else {}),
    )
    low.at[node.outputs[0]] = out


def _over_queries(low: Lowering, node: ir.Node) -> Region | None:
    """The queries' own room, where nothing else reads them and it has the output's layout: each kernel has multiplied
    the queries of a head and row before it writes their result."""
    q, out = node.inputs[0], node.outputs[0]
    assert q is not None
    region = low.region(q)
    shape = static_shape(out)
    packed = contiguous_strides([shape[axis] for axis in _ROWS_FIRST], region.dtype.nbytes)
    strides = [(region.stride[axis], step) for axis, step in zip(_ROWS_FIRST, packed, strict=True) if shape[axis] > 1]
    fits = region.shape == shape and all(own == wanted for own, wanted in strides)
    alone = len(list(q.uses())) == 1 and not q.is_graph_output() and region.nbytes == region.buffer.nbytes
    return region if fits and alone and region.buffer.role is Role.LOCAL and out not in low.direct else None


def _of_heads(low: Lowering, numbers: Sequence[float]) -> Region | None:
    """A constant f32 [H], whatever the precision: it is added to scores, which are f32."""
    if not len(numbers):
        return None
    array = np.array(numbers, "<f4")
    return low.consts.region(f"{array.tobytes().hex()}.heads", DType.F32, array.shape, lambda: array)


def _ones(low: Lowering, count: int, dtype: DType) -> Region:
    """A constant row that sums weights on the matrix engine; of the operands' type."""
    return low.consts.array(np.ones((1, count), np.float32), dtype)


def _slot_table(low: Lowering, q: Region, past: Region, node: ir.Node) -> Region | None:
    """The table f32 [N, 2] of valid slots, for forms that hide the others as products are made: those of many rows."""
    slots = past.shape[1]
    if q.shape[1] == 1 or not slots:
        return None
    if slots not in low.slot_tables:
        low.slot_tables[slots] = low.temporary("valid_slots", (slots, 2), DType.F32)
        low.call("valid_slots", (low.slot_tables[slots],), node)
    return low.slot_tables[slots]


def rotary(low: Lowering, node: ir.Node) -> None:
    """npuc.Rotary(x [1, H, C, D], cos, sin [C, R/2]); the output keeps x's memory order."""
    x = low.region(node.inputs[0])
    cos, sin = low.region(node.inputs[1]), low.region(node.inputs[2])
    order = sorted(range(x.rank), key=lambda axis: (-abs(x.stride[axis]), axis))
    out = low.new(node.outputs[0], order=order)
    low.call(
        "rotary",
        (_heads(x), cos, sin, _heads(out)),
        node,
        interleaved=bool(attribute(node, "interleaved", 0)),
        rotary_dim=int(attribute(node, "rotary_dim", 2 * cos.shape[-1])),
    )
    low.at[node.outputs[0]] = out


def step_rows(low: Lowering, node: ir.Node) -> None:
    """npuc.StepRows(table [T, ...], n_past): rows n_past .. n_past + C, one DMA with a patched address."""
    table = low.region(node.inputs[0])
    shape = static_shape(node.outputs[0])
    out = low.new(node.outputs[0])
    width = table.elements // max(table.shape[0], 1)
    flat, rows = views.reshape(table, (table.shape[0], width)), views.reshape(out, (shape[0], width))
    assert flat is not None and rows is not None
    low.call("step_rows", (flat, rows), node)
    low.at[node.outputs[0]] = out


def _heads(region: Region) -> Region:
    """[1, H, C, D] as [H, C, D]; batch is always one."""
    assert region.rank == 4 and region.shape[0] == 1, region.shape
    return replace(region, shape=region.shape[1:], stride=region.stride[1:])


RULES = {
    ("npuc", "Attention"): attention,
    ("npuc", "Rotary"): rotary,
    ("npuc", "StepRows"): step_rows,
}
