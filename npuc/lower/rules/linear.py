"""Matrix products: with constant weights (packed [N, full K] for the DPU) or of two activations."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from npuc.graph.quantised.packed import ROWS, WEIGHT
from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, static_shape, tensor_shape
from npuc.lower.expression import Expression, Scalar, Step
from npuc.lower.packed import Packed
from npuc.tasks import Region
from npurt.abi.dtypes import DType


def matmul(low: Lowering, node: ir.Node) -> None:
    """Of a constant matrix, stored as [N, K], or of two values."""
    a, b = node.inputs
    out = low.at[node.outputs[0]] = low.new(node.outputs[0])
    tensor, packed = constant(b), low.packed(b)
    if packed is not None:
        linear_codes(low, node, low.region(a), packed, out)
    elif tensor is not None and len(tensor.shape) == 2:
        weights = low.consts.weights(tensor, transposed=False, dtype=_wide(low, node))
        linear(low, node, low.region(a), weights, None, out)
    else:
        batched(low, node, low.region(a), low.region(b), out)


def gemm(low: Lowering, node: ir.Node) -> None:
    """Gemm: alpha * A' B' + beta * C; with constant B and a constant vector C (or none) it is one product."""
    a, b = node.inputs[0], node.inputs[1]
    c = node.inputs[2] if len(node.inputs) > 2 else None
    alpha, beta = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
    region = low.region(a)
    if attribute(node, "transA", 0):
        region = views.transpose(region, (1, 0))
    tensor, bias, packed = constant(b), constant(c), low.packed(b)
    out = low.at[node.outputs[0]] = low.new(node.outputs[0])
    in_one = alpha == 1.0 and (c is None or (bias is not None and _is_channel_vector(node, bias)))
    product = out if in_one else low.temporary(f"{node.name}.product", out.shape, DType.F32)
    if packed is not None:
        added = low.region(c) if in_one and c is not None else None
        linear_codes(low, node, region, packed, product, added, beta)
        if in_one:
            return
    elif tensor is not None:
        weights = low.consts.weights(tensor, transposed=bool(attribute(node, "transB", 0)), dtype=_wide(low, node))
        table = low.consts.table(_widened(bias, weights), beta) if in_one and bias is not None else None
        linear(low, node, region, weights, table, product)
        if in_one:
            return
    else:
        other = low.region(b)
        batched(low, node, region, views.transpose(other, (1, 0)) if attribute(node, "transB", 0) else other, product)
        if alpha == 1.0 and c is None:
            low.call("copy", (product, out), node)
            return
    _scale_and_add(low, node, product, None if c is None else low.region(c), alpha, beta, out)


def _wide(low: Lowering, node: ir.Node) -> DType | None:
    """The type of the weights where it is not the usual one."""
    return DType.F32 if node.outputs[0] in low.precise else None


def _scale_and_add(low: Lowering, node: ir.Node, product: Region, c: Region | None, alpha: float, beta: float,
                   out: Region) -> None:  # fmt: skip
    """out = alpha * product + beta * c, where C is a value or alpha is not one."""
    scaled = Step("Mul", (0, Scalar(alpha)))
    if c is None:
        low.call("map1", (product, out), node, fn=Expression(1, (scaled,)))
        return
    steps = (scaled, Step("Mul", (1, Scalar(beta))), Step("Add", (2, 3)))
    low.call("map2", (product, views.narrowed(views.expand(c, out.shape)), out), node, fn=Expression(2, steps))


def linear(low: Lowering, node: ir.Node, x: Region, weights: Region, table: Region | None, out: Region) -> None:
    """out [..., N] = x [..., K] @ weights [N, K]^T (+ bias of the table)."""
    rows = views.as_matrix(x)
    if rows is None:
        rows = views.as_matrix(low.copied(x, node))
        assert rows is not None
    matrix = views.as_matrix(out)
    assert matrix is not None
    arrays = (rows, weights, matrix) if table is None else (rows, weights, matrix, table)
    low.call("matmul" if table is None else "matmul_bias", arrays, node)


def linear_codes(low: Lowering, node: ir.Node, x: Region, weight: Packed, out: Region, bias: Region | None = None,
                 beta: float = 1.0) -> None:  # fmt: skip
    """out [..., N] = x [..., K] times the transpose of a packed weight, plus beta * bias."""
    rows = views.as_matrix(x)
    if rows is None:
        rows = views.as_matrix(low.copied(x, node))
    matrix = views.as_matrix(out)
    assert rows is not None and matrix is not None
    if bias is None:
        low.call_codes("matmul_codes", rows, [weight], matrix, (), node)
        return
    steps = (Step("Mul", (1, Scalar(beta))), Step("Add", (0, 2))) if beta != 1.0 else (Step("Add", (0, 1)),)
    low.call_codes("matmul_codes", rows, [weight], matrix, [views.narrowed(bias)], node, epilogue=Expression(2, steps))


def stands_for_codes(low: Lowering, node: ir.Node) -> None:
    """A packed weight has no value of its own: its readers read the codes, or a constant with its numbers."""


def batched(low: Lowering, node: ir.Node, a: Region, b: Region, out: Region) -> None:
    """Product of two activations [..., M, K] x [..., K, N]; batch axes broadcast and merge into one."""
    shape = static_shape(node.outputs[0])
    vectors = (a.rank == 1) + (b.rank == 1)  # a vector operand has no axis of its own in the output
    if a.rank == 1:
        a = views.expand(a, (1, a.shape[0]))
    if b.rank == 1:
        fitted = views.reshape(b, (b.shape[0], 1))
        assert fitted is not None
        b = fitted
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = shape[: len(shape) - 2 + vectors]
    count = math.prod(batch)
    flat_out = low.shaped(out, (count, m, n), node)
    flat_a = low.shaped(views.expand(a, (*batch, m, k)), (count, m, k), node)
    flat_b = low.shaped(views.expand(b, (*batch, k, n)), (count, k, n), node)
    if not views.rows_are_dense(flat_a):
        flat_a = low.copied(flat_a, node)
    by_columns = views.transpose(flat_b, (0, 2, 1))
    if views.rows_are_dense(by_columns) and not (n == 1 and views.rows_are_dense(flat_b)):
        low.call("bmm_nk", (flat_a, by_columns, flat_out), node)
    else:
        if not views.rows_are_dense(flat_b):
            flat_b = low.copied(flat_b, node)
        low.call("bmm_kn", (flat_a, flat_b, flat_out), node)


def _is_channel_vector(node: ir.Node, bias: ir.TensorProtocol) -> bool:
    n = static_shape(node.outputs[0])[-1]
    shape = tensor_shape(bias)
    return math.prod(shape) in (1, n) and all(d == 1 for d in shape[:-1])


def _widened(bias: ir.TensorProtocol, weights: Region) -> ir.TensorProtocol:
    """A scalar bias as one value per output channel."""
    n = weights.shape[0]
    if math.prod(tensor_shape(bias)) == n:
        return bias
    return ir.Tensor(np.broadcast_to(bias.numpy().reshape(-1), (n,)).copy())


RULES = {
    ("", "MatMul"): matmul,
    ("", "Gemm"): gemm,
    ("npuc", ROWS): stands_for_codes,
    ("npuc", WEIGHT): stands_for_codes,
}
