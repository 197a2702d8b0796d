"""The ops of decoder LLMs: attention over past and new rows, rotary embedding, rows of a position table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, static_shape
from npuc.tasks import Region
from npurt.abi.dtypes import DType


def attention(low: Lowering, node: ir.Node) -> None:
    """npuc.Attention(q, k_new, v_new, k_past, v_past, n_past), with a slope and a sink per head where it has them.

    The output is laid out [C, H, D], so that the transposition and reshape that follow are views.
    """
    q, k_new, v_new, k_past, v_past = (_heads(low.region(v)) for v in node.inputs[:5])
    out = low.new(node.outputs[0], order=(0, 2, 1, 3))
    arrays: list[Region | None] = [q, k_new, v_new, k_past, v_past, _heads(out)]
    numbers = [attribute(node, name, ()) for name in ("slopes", "sinks")]
    if any(map(len, numbers)):
        arrays += [_of_heads(low, values) for values in numbers]
    ring = int(attribute(node, "ring", 0))
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


def _of_heads(low: Lowering, numbers: Sequence[float]) -> Region | None:
    """A constant f32 [H], whatever the precision: it is added to scores, which are f32."""
    if not len(numbers):
        return None
    array = np.array(numbers, "<f4")
    return low.consts.region(f"{array.tobytes().hex()}.heads", DType.F32, array.shape, lambda: array)


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
