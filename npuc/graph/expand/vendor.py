"""onnxruntime's fused operators (domain com.microsoft) that are a few standard ones."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.nodes import DOMAIN


def _skipped_sum(place: Place, bias: int) -> ir.Value:
    total = place.op("Add", place.required(0), place.required(1))
    extra = place.input(bias)
    return total if extra is None else place.op("Add", total, extra)


def skip_rms_norm(place: Place) -> None:
    """SkipSimplifiedLayerNormalization: x, skip, gamma, bias?; the norm of x + skip (+ bias); that sum as output 3."""
    total, epsilon = _skipped_sum(place, 3), place.attrs.get("epsilon", 1e-5)
    norm = place.op("RMSNorm", total, place.required(2), domain=DOMAIN, axis=-1, epsilon=epsilon)
    place.replace(norm, None, None, total)


def skip_layer_norm(place: Place) -> None:
    """SkipLayerNormalization: x, skip, gamma, beta?, bias?; the norm of x + skip (+ bias), and that sum as output 3."""
    total, epsilon = _skipped_sum(place, 4), place.attrs.get("epsilon", 1e-5)
    norm = place.op("LayerNormalization", total, place.required(2), place.input(3), axis=-1, epsilon=epsilon)
    place.replace(norm, None, None, total)


def fast_gelu(place: Place) -> None:
    """FastGelu: x, bias?; gelu by tanh of x + bias."""
    bias = place.input(1)
    x = place.required(0) if bias is None else place.op("Add", place.required(0), bias)
    place.replace(place.op("Gelu", x, approximate="tanh"))


def gelu(place: Place) -> None:
    """Gelu and BiasGelu: x, bias?; gelu by erf of x + bias."""
    bias = place.input(1)
    x = place.required(0) if bias is None else place.op("Add", place.required(0), bias)
    place.replace(place.op("Gelu", x))


def quick_gelu(place: Place) -> None:
    """QuickGelu: x * sigmoid(alpha * x)."""
    x = place.required(0)
    scaled = place.op("Mul", x, place.number_like(place.attrs.get("alpha", 1.702), x))
    place.replace(place.op("Mul", x, place.op("Sigmoid", scaled)))


def fused_matmul(place: Place) -> None:
    """FusedMatMul: alpha * A' B', where a transposed operand has its last two axes exchanged."""
    attrs = place.attrs
    if attrs.get("transBatchA", 0) or attrs.get("transBatchB", 0):
        place.refuse("transBatchA and transBatchB are not supported")
    operands = []
    for index, flag in enumerate(("transA", "transB")):
        value = place.required(index)
        if attrs.get(flag, 0):
            if value.shape is None:
                place.refuse(f"the rank of input {index} is not known")
            axes = list(range(len(value.shape or ())))
            value = place.op("Transpose", value, perm=[*axes[:-2], axes[-1], axes[-2]])
        operands.append(value)
    result = place.op("MatMul", *operands)
    alpha = attrs.get("alpha", 1.0)
    place.replace(result if alpha == 1.0 else place.op("Mul", result, place.number_like(alpha, place.required(0))))
