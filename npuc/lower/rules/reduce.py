"""Ops along an axis: softmax, norms, reductions, argmax, cumulative sums.

The kernels work on the last axis; another axis is brought there by a view.
"""

from __future__ import annotations

import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, ints
from npuc.lower.errors import LoweringRefused, describe
from npuc.tasks import Region

_REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceSumSquare": "sum_square", "ReduceL2": "l2", "ReduceL1": "l1",
}  # fmt: skip


def softmax(low: Lowering, node: ir.Node) -> None:
    source = low.region(node.inputs[0])
    out = like(low, node.outputs[0], source)
    axis = int(attribute(node, "axis", -1)) % source.rank
    low.call("softmax", axis_last(low, node, [source, out], axis), node)
    low.at[node.outputs[0]] = out


def rms_norm(low: Lowering, node: ir.Node) -> None:
    """npuc.RMSNorm(x, w) over the last axis."""
    source = low.region(node.inputs[0])
    out = like(low, node.outputs[0], source)
    rows = axis_last(low, node, [source, out], source.rank - 1)
    weight = vector(low, node, 1, source.shape[-1])
    low.call("rmsnorm", (rows[0], weight, rows[1]), node, eps=float(attribute(node, "epsilon", 1e-5)))
    low.at[node.outputs[0]] = out


def layer_norm(low: Lowering, node: ir.Node) -> None:
    """LayerNormalization over the last axis, with or without bias."""
    source = low.region(node.inputs[0])
    axis = int(attribute(node, "axis", -1)) % source.rank
    if axis != source.rank - 1 or any(o is not None and o.uses() for o in node.outputs[1:]):
        raise LoweringRefused([f"{describe(node)}: only the last axis is normalised, with one output"])
    out = like(low, node.outputs[0], source)
    rows = axis_last(low, node, [source, out], axis)
    weight = vector(low, node, 1, source.shape[-1])
    eps = float(attribute(node, "epsilon", 1e-5))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        low.call("layernorm", (rows[0], weight, vector(low, node, 2, source.shape[-1]), rows[1]), node, eps=eps)
    else:
        low.call("layernorm_plain", (rows[0], weight, rows[1]), node, eps=eps)
    low.at[node.outputs[0]] = out


def reduction(low: Lowering, node: ir.Node) -> None:
    """ReduceX: the reduced axes are brought to the back and merged into one."""
    source = low.region(node.inputs[0])
    axes = ints(node, 1)
    if axes is None or not axes:
        if attribute(node, "noop_with_empty_axes", 0):
            low.at[node.outputs[0]] = source
            return
        axes = list(range(source.rank))
    axes = sorted(a % source.rank for a in axes)
    kept = [a for a in range(source.rank) if a not in axes]
    moved = views.transpose(source, [*kept, *axes])
    count = 1
    for axis in axes:
        count *= source.shape[axis]
    folded = low.shaped(moved, (*(source.shape[a] for a in kept), count), node)
    out = low.new(node.outputs[0])
    squeezed = views.reshape(out, (*(source.shape[a] for a in kept), 1))
    assert squeezed is not None
    pair = axis_last(low, node, [folded, squeezed], folded.rank - 1)
    low.call("reduce", pair, node, op=_REDUCTIONS[node.op_type], axes=(pair[0].rank - 1,))
    low.at[node.outputs[0]] = out


def arg(low: Lowering, node: ir.Node) -> None:
    """ArgMax and ArgMin: the lowest index of a tie, as ONNX's select_last_index 0 asks."""
    if attribute(node, "select_last_index", 0):
        raise LoweringRefused([f"{describe(node)}: select_last_index 1 has no kernel; 0 has"])
    source = low.region(node.inputs[0])
    axis = int(attribute(node, "axis", 0)) % source.rank
    out = low.new(node.outputs[0])
    shape = tuple(1 if a == axis else n for a, n in enumerate(source.shape))
    kept = views.reshape(out, shape)
    assert kept is not None
    pair = axis_last(low, node, [source, kept], axis)
    low.call("reduce", pair, node, op={"ArgMax": "argmax", "ArgMin": "argmin"}[node.op_type], axes=(pair[0].rank - 1,))
    low.at[node.outputs[0]] = out


def cumsum(low: Lowering, node: ir.Node) -> None:
    axis = ints(node, 1)
    if axis is None:
        raise LoweringRefused([f"{describe(node)}: CumSum needs a constant axis"])
    source = low.region(node.inputs[0])
    out = like(low, node.outputs[0], source)
    pair = axis_last(low, node, [source, out], axis[0] % source.rank)
    flags = {name: bool(attribute(node, name, 0)) for name in ("exclusive", "reverse")}
    low.call("cumsum", pair, node, axis=pair[0].rank - 1, **flags)
    low.at[node.outputs[0]] = out


def like(low: Lowering, value: ir.Value, source: Region) -> Region:
    """A new value in its input's memory order, so that views of both stay mergeable."""
    order = sorted(range(source.rank), key=lambda axis: (-abs(source.stride[axis]), axis))
    return low.new(value, order=order if 0 not in source.stride else None)


def axis_last(low: Lowering, node: ir.Node, pair: list[Region], axis: int) -> list[Region]:
    """Both regions with `axis` last and the other axes merged, at most four in all."""
    rank = pair[0].rank
    perm = [*(a for a in range(rank) if a != axis), axis]
    moved = [views.transpose(r, perm) for r in pair]
    heads = views.merge_axes([_without_last(r) for r in moved], limit=3)
    if heads is None:
        raise LoweringRefused([f"{describe(node)}: its layout has more than three axes beside the reduced one"])
    return [_with_last(h, r) for h, r in zip(heads, moved, strict=True)]


def _without_last(region: Region) -> Region:
    return Region(region.buffer, region.offset, region.dtype, region.shape[:-1], region.stride[:-1])


def _with_last(head: Region, whole: Region) -> Region:
    return Region(
        head.buffer, head.offset, head.dtype, (*head.shape, whole.shape[-1]), (*head.stride, whole.stride[-1])
    )


def vector(low: Lowering, node: ir.Node, index: int, length: int) -> Region:
    """Operand `index` as a vector of `length`; a scalar is repeated by a view."""
    region = views.squeeze_ones(low.region(node.inputs[index]))
    if region.rank == 0:
        region = views.expand(region, (length,))
    if region.shape != (length,):
        what = "constant" if constant(node.inputs[index]) is not None else "value"
        raise LoweringRefused([f"{describe(node)}: {what} {index} must have {length} elements along the last axis"])
    return region


RULES = {
    ("", "Softmax"): softmax,
    ("", "LayerNormalization"): layer_norm,
    **{("", op): reduction for op in _REDUCTIONS},
    ("", "ArgMax"): arg,
    ("", "ArgMin"): arg,
    ("", "CumSum"): cumsum,
    ("npuc", "RMSNorm"): rms_norm,
}
