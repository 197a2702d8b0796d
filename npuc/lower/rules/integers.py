"""Codes that a run makes: their scales, products in whole numbers, and zeros for padding."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from npuc import tile as t
from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, static_shape, tensor_shape
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.expression import Expression, Scalar, Step
from npuc.tasks import Region
from npurt.abi.dtypes import DType

_CODES = Expression(  # saturate(round(x / scale) + zero)
    3,
    (
        Step("Div", (0, 1)),
        Step("Round", (3,)),
        Step("Cast", (2,), (("to", t.f32),)),
        Step("Add", (4, 5)),
        Step("Clip", (6, Scalar(0.0), Scalar(255.0))),
        Step("Cast", (7,), (("to", t.i32),)),
    ),
)
_CODE_TYPES = (DType.I8, DType.U8)


def dynamic_quantize(low: Lowering, node: ir.Node) -> None:
    """DynamicQuantizeLinear: one pass for the range of all elements, one for the codes. The scale stays float32."""
    x = low.region(node.inputs[0])
    matrix = views.as_matrix(x)
    if matrix is None:
        matrix = views.as_matrix(low.copied(x, node))
        assert matrix is not None
    codes = low.new(node.outputs[0])
    scale, zero = low.new(node.outputs[1], dtype=DType.F32), low.new(node.outputs[2])
    low.call("code_range", (matrix, _unit(scale, 2), _unit(zero, 2)), node)
    dense = views.as_matrix(codes)
    assert dense is not None
    low.call("map3", (matrix, _unit(scale, 2), _unit(zero, 2), dense), node, fn=_CODES)
    for value, region in zip(node.outputs, (codes, scale, zero), strict=True):
        low.at[value] = region


def integer_linear(low: Lowering, node: ir.Node) -> None:
    """npuc.IntegerLinear(x, x_scale, x_zero, w [K, N], w_scale [N], w_zero [N]) with constant weights."""
    x, out = low.region(node.inputs[0]), low.new(node.outputs[0])
    scale, zero = low.region(node.inputs[1]), low.region(node.inputs[2])
    weight, w_scale, w_zero = (constant(value) for value in node.inputs[3:6])
    if weight is None or w_scale is None or w_zero is None:
        raise LoweringRefused([f"{describe(node)}: its weight must be a constant"])
    rows = views.as_matrix(x)
    if rows is None:
        rows = views.as_matrix(low.copied(x, node))
        assert rows is not None
    matrix = views.as_matrix(out)
    assert matrix is not None
    (k, n), zeros = tensor_shape(weight), w_zero.numpy().astype(np.int64)
    key = f"{low.consts.digest(weight)}.{low.consts.digest(w_zero)}"
    packed = low.consts.weights(weight, transposed=False)
    scales = low.consts.region(
        f"{low.consts.digest(w_scale)}.scales", DType.F32, (1, n), lambda: w_scale.numpy().astype("<f4").reshape(1, n)
    )
    sums = low.consts.region(
        f"{key}.sums", DType.I32, (1, n), lambda: (weight.numpy().astype("<i4").sum(0) - k * zeros)[None].astype("<i4")
    )
    arrays: list[Region | None] = [rows, _unit(scale, 2), _unit(zero, 2), packed, scales, sums, matrix]
    if zeros.any():
        arrays.append(low.consts.array(zeros.reshape(1, n), DType.I32))
    low.call("integer_linear", arrays, node)
    low.at[node.outputs[0]] = out


def integer_product(low: Lowering, node: ir.Node) -> None:
    """MatMulInteger: int32 products of codes; of a zero point for each row of A there is no kernel."""
    a, b = low.region(node.inputs[0]), low.region(node.inputs[1])
    if a.dtype not in _CODE_TYPES or b.dtype not in _CODE_TYPES or min(a.rank, b.rank) < 2:
        raise LoweringRefused([f"{describe(node)}: it needs matrices of int8 or uint8"])
    shape = static_shape(node.outputs[0])
    m, k, n, batch = a.shape[-2], a.shape[-1], b.shape[-1], shape[:-2]
    count = math.prod(batch)
    left = _dense(low, node, low.shaped(views.expand(a, (*batch, m, k)), (count, m, k), node))
    right = low.shaped(views.expand(b, (*batch, k, n)), (count, k, n), node)
    turned = _dense(low, node, views.transpose(right, (0, 2, 1)))
    out = low.new(node.outputs[0])
    flat = views.reshape(out, (count, m, n))
    assert flat is not None
    low.call("integer_product", (left, turned, flat, _zero(low, node, 2, 1), _zero(low, node, 3, n)), node)
    low.at[node.outputs[0]] = out


def valid_rows(low: Lowering, node: ir.Node) -> None:
    """npuc.ValidRows(x, n_new) {axis}: the rows of padding as zeros."""
    x, axis = low.region(node.inputs[0]), int(attribute(node, "axis", 0))
    out = low.new(node.outputs[0])
    folded = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
    target = views.reshape(out, folded)
    assert target is not None
    low.call("valid_rows", (low.shaped(x, folded, node), target), node)
    low.at[node.outputs[0]] = out


def _dense(low: Lowering, node: ir.Node, region: Region) -> Region:
    return region if views.rows_are_dense(region) else low.copied(region, node)


def _unit(region: Region, rank: int) -> Region:
    """A region of one element with that many axes."""
    shaped = views.reshape(region, (1,) * rank)
    assert shaped is not None
    return shaped


def _zero(low: Lowering, node: ir.Node, index: int, channels: int) -> Region:
    """A zero point as [1, channels or 1, 1]; zero where it is left out."""
    value = node.inputs[index] if len(node.inputs) > index else None
    if value is None:
        return low.consts.array(np.zeros((1, 1, 1)), DType.I32)
    region = low.region(value)
    if region.elements not in (1, channels):
        shape = list(region.shape)
        raise LoweringRefused([f"{describe(node)}: zero points {shape} have no kernel; one, or one a column of B, has"])
    shaped = views.reshape(region, (1, region.elements, 1))
    assert shaped is not None
    return shaped


RULES = {
    ("", "DynamicQuantizeLinear"): dynamic_quantize,
    ("", "MatMulInteger"): integer_product,
    ("npuc", "IntegerLinear"): integer_linear,
    ("npuc", "ValidRows"): valid_rows,
}
