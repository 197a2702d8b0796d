"""Indexed reads: embeddings and other Gather forms, by DMA from an index vector."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, static_shape
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.expression import Expression, Scalar, Step
from npuc.lower.packed import Packed
from npuc.tasks import Region
from npurt.abi.dtypes import DType


def gather(low: Lowering, node: ir.Node) -> None:
    """Gather along one axis. A single constant index is a view; else rows are gathered by an int32 index vector."""
    packed = low.packed(node.inputs[0])
    if packed is not None and int(attribute(node, "axis", 0)) % 2 == 0:
        _gather_codes(low, node, packed)
        return
    source = low.region(node.inputs[0])
    axis = int(attribute(node, "axis", 0)) % source.rank
    extent = source.shape[axis]
    output = node.outputs[0]
    shape = static_shape(output)
    index_tensor = constant(node.inputs[1])
    if index_tensor is not None:
        picked = index_tensor.numpy().astype(np.int64)
        picked = np.where(picked < 0, picked + extent, picked)
        outside = (picked < 0) | (picked >= extent)
        if outside.any():
            wrong = int(index_tensor.numpy()[outside].reshape(-1)[0])
            raise LoweringRefused([f"{describe(node)}: the index {wrong} is outside axis {axis}, which has {extent}"])
        strided = _arithmetic(picked.reshape(-1))
        if strided is not None:
            start, step = strided
            view = views.take_slice(source, axis, start, picked.size, step)
            low.at[output] = low.shaped(view, shape, node)
            return
        index = low.consts.array(picked.reshape(-1).astype(np.int32), DType.I32)
    else:
        index = _wrapped(low, node, low.region(node.inputs[1]), extent)
    front = views.transpose(source, [axis, *(a for a in range(source.rank) if a != axis)])
    index_rank = len(shape) - source.rank + 1
    # rows land in index order; the gathered axes move back to their place as a view
    by_rows = (index.elements, *front.shape[1:])
    out = low.new(output) if axis == 0 else low.temporary(f"{node.name}.rows", by_rows, source.dtype)
    rows = views.reshape(out, by_rows)
    assert rows is not None
    merged = _merge_rows(front, rows)
    low.call("gather_rows", (merged[0], index, merged[1]), node)
    if axis == 0:
        low.at[output] = out
        return
    unfolded = views.reshape(out, (*shape[axis : axis + index_rank], *front.shape[1:]))
    assert unfolded is not None
    perm = [*range(index_rank, index_rank + axis), *range(index_rank), *range(index_rank + axis, len(shape))]
    low.at[output] = views.transpose(unfolded, perm)


def _gather_codes(low: Lowering, node: ir.Node, table: Packed) -> None:
    """Rows of a table of codes, dequantised by vector code once they are on the chip."""
    extent, index_tensor = table.channels, constant(node.inputs[1])
    if index_tensor is None:
        index = _wrapped(low, node, low.region(node.inputs[1]), extent)
    else:
        picked = index_tensor.numpy().astype(np.int64).reshape(-1)
        picked = np.where(picked < 0, picked + extent, picked)
        if ((picked < 0) | (picked >= extent)).any():
            raise LoweringRefused([f"{describe(node)}: an index is outside the table, which has {extent} rows"])
        index = low.consts.array(picked.astype(np.int32), DType.I32)
    out = low.at[node.outputs[0]] = low.new(node.outputs[0])
    rows = views.reshape(out, (index.elements, table.row.k))
    assert rows is not None
    low.call("gather_codes", (table.region, index, rows), node, row=table.row)


def _arithmetic(indices: np.ndarray) -> tuple[int, int] | None:
    """(start, step) where the indices are evenly spaced, else None."""
    if indices.size <= 1:
        return (int(indices[0]) if indices.size else 0), 1
    steps = np.diff(indices)
    return (int(indices[0]), int(steps[0])) if (steps == steps[0]).all() and steps[0] != 0 else None


def _wrapped(low: Lowering, node: ir.Node, index: Region, extent: int) -> Region:
    """The index as an int32 vector with negatives counted from the back.

    Token ids of an LLM entry are checked by the session before they reach the device and need no pass of their own.
    """
    flat = low.shaped(index, (math.prod(index.shape),), node)
    if low.ids_checked and index.buffer.name.endswith(".in.input_ids"):
        return flat
    wrapped = low.temporary(f"{node.name}.index", flat.shape, DType.I32)
    negative = Step("Less", (0, Scalar(0)))
    expression = Expression(1, (negative, Step("Add", (0, Scalar(extent))), Step("Where", (1, 2, 0))))
    low.call("map1", (flat, wrapped), node, fn=expression)
    return wrapped


def _merge_rows(table: Region, rows: Region) -> tuple[Region, Region]:
    """Both with the row axis first and the rest merged; ranks stay within four."""
    tails = views.merge_axes([_tail(table), _tail(rows)], limit=3)
    assert tails is not None, "a gathered row has more than three axes that do not merge"
    return _with_rows(table, tails[0]), _with_rows(rows, tails[1])


def _tail(region: Region) -> Region:
    return replace(region, shape=region.shape[1:], stride=region.stride[1:])


def _with_rows(whole: Region, tail: Region) -> Region:
    return replace(tail, shape=(whole.shape[0], *tail.shape), stride=(whole.stride[0], *tail.stride))


RULES = {("", "Gather"): gather}
