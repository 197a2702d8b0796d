"""Matrix products: with constant weights (packed [N, full K] for the DPU) or of two activations."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, static_shape, tensor_shape
from npuc.lower.errors import LoweringRefused, describe
from npuc.tasks import Region


def matmul(low: Lowering, node: ir.Node) -> None:
    a, b = node.inputs
    tensor = constant(b)
    if tensor is not None and len(tensor.shape) == 2:
        linear(low, node, low.region(a), low.consts.weights(tensor, transposed=False), None)
        return
    batched(low, node, low.region(a), low.region(b))


def gemm(low: Lowering, node: ir.Node) -> None:
    """Gemm: alpha * A' B' + beta * C, with constant B and a constant vector C (or none) in one call."""
    a, b = node.inputs[0], node.inputs[1]
    c = node.inputs[2] if len(node.inputs) > 2 else None
    alpha, beta = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
    region = low.region(a)
    if attribute(node, "transA", 0):
        region = views.transpose(region, (1, 0))
    tensor, bias = constant(b), constant(c)
    if tensor is None or alpha != 1.0 or (c is not None and (bias is None or not _is_channel_vector(node, bias))):
        raise LoweringRefused([
            f"{describe(node)}: Gemm needs a constant B, alpha 1 and a constant bias of one value per output channel"
        ])  # fmt: skip
    weights = low.consts.weights(tensor, transposed=bool(attribute(node, "transB", 0)))
    linear(low, node, region, weights, None if bias is None else low.consts.table(_widened(bias, weights), beta))


def linear(low: Lowering, node: ir.Node, x: Region, weights: Region, table: Region | None) -> None:
    """out [..., N] = x [..., K] @ weights [N, K]^T (+ bias of the table)."""
    output = node.outputs[0]
    out = low.new(output)
    rows = views.as_matrix(x)
    if rows is None:
        rows = views.as_matrix(low.copied(x, node))
        assert rows is not None
    matrix = views.as_matrix(out)
    assert matrix is not None
    arrays = (rows, weights, matrix) if table is None else (rows, weights, matrix, table)
    low.call("matmul" if table is None else "matmul_bias", arrays, node)
    low.at[output] = out


def batched(low: Lowering, node: ir.Node, a: Region, b: Region) -> None:
    """MatMul of two activations [..., M, K] x [..., K, N]; batch axes broadcast, at most one remains after merging."""
    output = node.outputs[0]
    shape = static_shape(output)
    vectors = (a.rank == 1) + (b.rank == 1)  # a vector operand has no axis of its own in the output
    if a.rank == 1:
        a = views.expand(a, (1, a.shape[0]))
    if b.rank == 1:
        fitted = views.reshape(b, (b.shape[0], 1))
        assert fitted is not None
        b = fitted
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = shape[: len(shape) - 2 + vectors]
    out = low.new(output)
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
    low.at[output] = out


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


RULES = {("", "MatMul"): matmul, ("", "Gemm"): gemm}
