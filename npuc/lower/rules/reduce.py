"""Ops along an axis: softmax, norms, reductions, argmax, cumulative sums.

The kernels work on the last axis; another axis is brought there by a view.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, ints
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.expression import Expression, Scalar, Step
from npuc.tasks import Region
from npurt.abi.dtypes import DType

_REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceSumSquare": "sum_square", "ReduceL2": "l2", "ReduceL1": "l1",
}  # fmt: skip


def softmax(low: Lowering, node: ir.Node) -> None:
    """Softmax and LogSoftmax over one axis; a row of -inf gives zeros."""
    source = low.region(node.inputs[0])
    out = like(low, node.outputs[0], source)
    axis = int(attribute(node, "axis", -1)) % source.rank
    log = {"log": True} if node.op_type == "LogSoftmax" else {}
    for pair in axis_last([source, out], axis):
        low.call("softmax", pair, node, **log)
    low.at[node.outputs[0]] = out


def rms_norm(low: Lowering, node: ir.Node) -> None:
    """npuc.RMSNorm(x, w) over the last axis."""
    source = low.region(node.inputs[0])
    out = like(low, node.outputs[0], source)
    weight = vector(low, node, 1, source.shape[-1])
    for x, y in axis_last([source, out], source.rank - 1):
        low.call("rmsnorm", (x, weight, y), node, eps=float(attribute(node, "epsilon", 1e-5)))
    low.at[node.outputs[0]] = out


def layer_norm(low: Lowering, node: ir.Node) -> None:
    """LayerNormalization over the last axis, with or without bias."""
    source = low.region(node.inputs[0])
    axis = int(attribute(node, "axis", -1)) % source.rank
    out = like(low, node.outputs[0], source)
    weight = vector(low, node, 1, source.shape[-1])
    bias = vector(low, node, 2, source.shape[-1]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
    eps = float(attribute(node, "epsilon", 1e-5))
    for x, y in axis_last([source, out], axis):
        if bias is not None:
            low.call("layernorm", (x, weight, bias, y), node, eps=eps)
        else:
            low.call("layernorm_plain", (x, weight, y), node, eps=eps)
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
    result = low.at[node.outputs[0]] = low.new(node.outputs[0])
    out = result
    if source.dtype is DType.BOOL:  # a reduction takes numbers: false and true as 0 and 1
        numbers = low.temporary(f"{node.name}.numbers", folded.shape, DType.I8)
        _convert(low, node, folded, numbers, DType.I32)
        folded, out = numbers, low.temporary(f"{node.name}.number", out.shape, DType.I8)
    squeezed = views.reshape(out, (*(source.shape[a] for a in kept), 1))
    assert squeezed is not None
    for pair in axis_last([folded, squeezed], folded.rank - 1):
        low.call("reduce", pair, node, op=_REDUCTIONS[node.op_type], axes=(pair[0].rank - 1,))
    if out is not result:
        _convert(low, node, out, result, DType.BOOL)


def _convert(low: Lowering, node: ir.Node, source: Region, target: Region, register: DType) -> None:
    fn = Expression(1, (Step("Cast", (0,), (("to", register),)),))
    for pair in views.parts([source, target]):
        low.call("map1", pair, node, fn=fn)


def arg(low: Lowering, node: ir.Node) -> None:
    """ArgMax and ArgMin: the lowest index of a tie; the last, where it is asked for, is the lowest from the back."""
    source = low.region(node.inputs[0])
    axis = int(attribute(node, "axis", 0)) % source.rank
    out = result = low.at[node.outputs[0]] = low.new(node.outputs[0])
    last = source.shape[axis] - 1
    if attribute(node, "select_last_index", 0):
        source = views.take_slice(source, axis, last, last + 1, -1)
        out = low.temporary(f"{node.name}.back", result.shape, result.dtype)
    shape = tuple(1 if a == axis else n for a, n in enumerate(source.shape))
    kept = views.reshape(out, shape)
    assert kept is not None
    for pair in axis_last([source, kept], axis):
        op = {"ArgMax": "argmax", "ArgMin": "argmin"}[node.op_type]
        low.call("reduce", pair, node, op=op, axes=(pair[0].rank - 1,))
    if out is not result:
        fn = Expression(1, (Step("Sub", (Scalar(last), 0)),))
        for pair in views.parts([out, result]):
            low.call("map1", pair, node, fn=fn)


def cumsum(low: Lowering, node: ir.Node) -> None:
    """Running sums along one axis."""
    axis = ints(node, 1)
    if axis is None:
        raise LoweringRefused([f"{describe(node)}: CumSum needs a constant axis"])
    source = low.region(node.inputs[0])
    out = like(low, node.outputs[0], source)
    flags = {name: bool(attribute(node, name, 0)) for name in ("exclusive", "reverse")}
    for pair in axis_last([source, out], axis[0] % source.rank):
        low.call("cumsum", pair, node, axis=pair[0].rank - 1, **flags)
    low.at[node.outputs[0]] = out


def like(low: Lowering, value: ir.Value, source: Region) -> Region:
    """A new value in its input's memory order, so that views of both stay mergeable."""
    order = sorted(range(source.rank), key=lambda axis: (-abs(source.stride[axis]), axis))
    return low.new(value, order=order if 0 not in source.stride else None)


def axis_last(regions: list[Region], axis: int) -> Iterator[list[Region]]:
    """The regions with `axis` last and the other axes merged, at most four in all; more than once where they do not
    merge that far.
    """
    perm = [*(a for a in range(regions[0].rank) if a != axis), axis]
    moved = [views.transpose(r, perm) for r in regions]
    for heads in views.parts([_without_last(r) for r in moved], limit=3):
        yield [_with_last(h, r) for h, r in zip(heads, moved, strict=True)]


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
    ("", "LogSoftmax"): softmax,
    ("", "LayerNormalization"): layer_norm,
    **{("", op): reduction for op in _REDUCTIONS},
    ("", "ArgMax"): arg,
    ("", "ArgMin"): arg,
    ("", "CumSum"): cumsum,
    ("npuc", "RMSNorm"): rms_norm,
}
