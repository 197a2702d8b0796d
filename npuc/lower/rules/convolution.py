"""Convolutions of decoder LLMs: depthwise, along the rows, and the windows that they keep from run to run."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, static_shape
from npuc.lower.errors import LoweringRefused, describe
from npuc.tasks import Region


def conv(low: Lowering, node: ir.Node) -> None:
    """Conv of [1, C, T] with a weight [C, 1, K]: each channel is a product with shifted rows, summed on SHAVE."""
    x, weight = (static_shape(value) for value in node.inputs[:2] if value is not None)
    channels, groups = x[1], int(attribute(node, "group", 1))
    if len(x) != 3 or x[0] != 1 or groups != channels or weight[:2] != (channels, 1):
        raise LoweringRefused(
            [
                f"{describe(node)}: input {list(x)} and weight {list(weight)} in {groups} groups; only the depthwise "
                "form along one axis has a kernel: [1, C, T] with [C, 1, K] in C groups"
            ]
        )
    taps = weight[2]
    stride, dilation = (int(attribute(node, name, (1,))[0]) for name in ("strides", "dilations"))
    before, after = _padding(node, x[2], taps, stride, dilation)
    rows = _by_rows(low.region(node.inputs[0]))
    out = low.new(node.outputs[0], order=(0, 2, 1))
    arrays: list[Region | None] = [
        _padded(low, node, rows, before, after),
        views.transpose(_without(low.region(node.inputs[1]), 1), (1, 0)),
        _by_rows(out),
    ]
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        arrays.append(low.region(node.inputs[2]))
    low.call("depthwise", arrays, node, stride=stride, dilation=dilation)
    low.at[node.outputs[0]] = out


def last_rows(low: Lowering, node: ir.Node) -> None:
    """npuc.LastRows(x, n_new) of [1, C, T] along its last axis, or of [1, T, C] along the one before."""
    source, axis = low.region(node.inputs[0]), int(attribute(node, "axis", -1))
    if source.rank != 3 or axis == 0 or source.shape[0] != 1:
        raise LoweringRefused([f"{describe(node)}: a window state of shape {list(source.shape)} has no kernel"])
    order = (0, axis, 3 - axis)
    out = low.new(node.outputs[0], order=order)
    low.call("last_rows", [_without(views.transpose(region, order), 0) for region in (source, out)], node)
    low.at[node.outputs[0]] = out


def _padding(node: ir.Node, extent: int, taps: int, stride: int, dilation: int) -> tuple[int, int]:
    """Zero rows before and behind."""
    mode = str(attribute(node, "auto_pad", "NOTSET"))
    if mode == "VALID":
        return 0, 0
    if mode == "NOTSET":
        before, after = attribute(node, "pads", (0, 0))
        return int(before), int(after)
    total = max((-(-extent // stride) - 1) * stride + dilation * (taps - 1) + 1 - extent, 0)
    small = total // 2
    return (small, total - small) if mode == "SAME_UPPER" else (total - small, small)


def _padded(low: Lowering, node: ir.Node, rows: Region, before: int, after: int) -> Region:
    """[T, C] with zero rows around it."""
    if not before and not after:
        return rows
    whole = low.temporary(f"{node.name}.padded", (before + rows.shape[0] + after, rows.shape[1]), rows.dtype)
    low.call("fill", (whole,), node, value=0.0)
    low.copy(node, rows, views.take_slice(whole, 0, before, rows.shape[0]))
    return whole


def _without(region: Region, axis: int) -> Region:
    """Without an axis of extent one."""
    keep = [a for a in range(region.rank) if a != axis]
    shape, stride = tuple(region.shape[a] for a in keep), tuple(region.stride[a] for a in keep)
    return replace(region, shape=shape, stride=stride)


def _by_rows(region: Region) -> Region:
    """[1, C, T] as [T, C]."""
    return views.transpose(_without(region, 0), (1, 0))


RULES = {("", "Conv"): conv, ("npuc", "LastRows"): last_rows}
