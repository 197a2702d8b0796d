"""Ops that only move data: views where strides can say them, else copies by DMA."""

from __future__ import annotations

import math
from dataclasses import replace

import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, ints, static_shape
from npuc.lower.errors import LoweringRefused, describe
from npuc.tasks import Region


def _output(node: ir.Node) -> ir.Value:
    return node.outputs[0]


def reshape(low: Lowering, node: ir.Node) -> None:
    """Reshape, Squeeze, Unsqueeze, Flatten: the output's static shape says everything."""
    region, shape = low.region(node.inputs[0]), static_shape(_output(node))
    if math.prod(shape) != region.elements:
        raise LoweringRefused([f"{describe(node)}: {region.elements} elements do not make {list(shape)}"])
    low.at[_output(node)] = low.shaped(region, shape, node)


def identity(low: Lowering, node: ir.Node) -> None:
    """The value itself."""
    low.at[_output(node)] = low.region(node.inputs[0])


def transpose(low: Lowering, node: ir.Node) -> None:
    """A view."""
    source = low.region(node.inputs[0])
    perm = attribute(node, "perm", list(reversed(range(source.rank))))
    low.at[_output(node)] = views.transpose(source, [int(p) for p in perm])


def expand(low: Lowering, node: ir.Node) -> None:
    """A view whose repeated axes have no stride."""
    low.at[_output(node)] = views.expand(low.region(node.inputs[0]), static_shape(_output(node)))


def slice_(low: Lowering, node: ir.Node) -> None:
    """Slice with the ends of int64 as exporters write them; Python's rules for negative and far ends."""
    region = low.region(node.inputs[0])
    starts, ends = ints(node, 1) or [], ints(node, 2) or []
    axes = ints(node, 3) or list(range(len(starts)))
    steps = ints(node, 4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= region.rank
        # an end before the front of a backward slice means "through element 0", which Python spells None
        extent = region.shape[axis]
        stop = None if step < 0 and end < -extent else end
        picked = range(extent)[start:stop:step]
        region = views.take_slice(region, axis, picked.start if len(picked) else 0, len(picked), step)
    low.at[_output(node)] = region


def split(low: Lowering, node: ir.Node) -> None:
    """Views of the parts."""
    region = low.region(node.inputs[0])
    axis = int(attribute(node, "axis", 0)) % region.rank
    at = 0
    for output in node.outputs:
        count = static_shape(output)[axis]
        low.at[output] = views.take_slice(region, axis, at, count)
        at += count


def concat(low: Lowering, node: ir.Node) -> None:
    """One copy for each operand."""
    output = _output(node)
    pieces = [low.region(value) for value in node.inputs]
    target = low.new(output, order=_order(max(pieces, key=lambda piece: piece.elements)))
    axis = int(attribute(node, "axis", 0)) % target.rank
    at = 0
    for piece in pieces:
        count = piece.shape[axis]
        if count:
            low.copy(node, piece, views.take_slice(target, axis, at, count))
        at += count
    low.at[output] = target


def _order(region: Region) -> list[int]:
    """A region's axes from the outermost in memory to the innermost: what is made of it then moves in long runs."""
    axes = range(region.rank)
    if 0 in region.stride:
        return list(axes)
    return sorted(axes, key=lambda axis: (region.shape[axis] == 1, -abs(region.stride[axis]), axis))


def tile(low: Lowering, node: ir.Node) -> None:
    """Tile: one copy for each repetition of an axis, unless the axis has extent one and a view says it."""
    region = low.region(node.inputs[0])
    repeats = ints(node, 1) or []
    shape = static_shape(_output(node))
    for axis, times in enumerate(repeats):
        if times == 1:
            continue
        if region.shape[axis] == 1:
            region = views.expand(region, [times if a == axis else n for a, n in enumerate(region.shape)])
            continue
        full = [n * times if a == axis else n for a, n in enumerate(region.shape)]
        target = low.temporary(f"{node.name}.tile{axis}", full, region.dtype)
        for k in range(times):
            low.copy(node, region, views.take_slice(target, axis, k * region.shape[axis], region.shape[axis]))
        region = target
    low.at[_output(node)] = replace(region, shape=shape)


def pad(low: Lowering, node: ir.Node) -> None:
    """Pad with a constant: the whole output filled, then the input copied inside. Negative pads cut."""
    region, output = low.region(node.inputs[0]), _output(node)
    amounts = ints(node, 1) or []
    axes = [a % region.rank for a in (ints(node, 3) or list(range(region.rank)))]
    value = 0.0
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        tensor = constant(node.inputs[2])
        assert tensor is not None, "a limit of the operator"
        value = tensor.numpy().reshape(-1)[0].item()
    target = low.new(output)
    for part in views.parts([target]):
        low.call("fill", part, node, value=value)
    inner = target
    for i, axis in enumerate(axes):
        before, after = amounts[i], amounts[i + len(axes)]
        region = views.take_slice(region, axis, max(-before, 0), region.shape[axis] - max(-before, 0) - max(-after, 0))
        inner = views.take_slice(inner, axis, max(before, 0), region.shape[axis])
    low.copy(node, region, inner)
    low.at[output] = target


RULES = {
    ("", "Reshape"): reshape,
    ("", "Squeeze"): reshape,
    ("", "Unsqueeze"): reshape,
    ("", "Flatten"): reshape,
    ("", "Identity"): identity,
    ("", "Transpose"): transpose,
    ("", "Expand"): expand,
    ("", "Slice"): slice_,
    ("", "Split"): split,
    ("", "Concat"): concat,
    ("", "Tile"): tile,
    ("", "Pad"): pad,
}
