"""Products, reductions, scans and the norms. Float sums run in float64 and are rounded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuc.graph.evalops.common import Array, Attributes, Inputs, OpFunction, given, in_float32, ints, widened
from npuc.graph.evalops.common import required as need
from npurt import numerics

_EXP = in_float32(numerics.exp)


def _rounded(total: Array, like: Array) -> Array:
    if like.dtype == np.float16:
        total = numerics.round_f16(total.astype(np.float32))
    result: Array = total.astype(like.dtype)
    return result


def _matmul(inputs: Inputs, attributes: Attributes) -> Array:
    a, b = need(inputs, 0), need(inputs, 1)
    if a.dtype.kind in "iu":
        return np.asarray(np.matmul(a, b))
    return _rounded(np.matmul(a.astype(np.float64), b.astype(np.float64)), a)


def _gemm(inputs: Inputs, attributes: Attributes) -> Array:
    a, b, c = need(inputs, 0), need(inputs, 1), given(inputs, 2)
    left = a.T if attributes.get("transA", 0) else a
    right = b.T if attributes.get("transB", 0) else b
    total = attributes.get("alpha", 1.0) * np.matmul(left.astype(np.float64), right.astype(np.float64))
    if c is not None:
        total = total + attributes.get("beta", 1.0) * c.astype(np.float64)
    return _rounded(total, a)


def _reduce(function: Callable[..., Array], floats_in_f64: bool) -> OpFunction:
    """function(x, axis=(...), keepdims=...). No axes mean all, or with noop_with_empty_axes none."""

    def operator(inputs: Inputs, attributes: Attributes) -> Array:
        x, axes = need(inputs, 0), given(inputs, 1)
        where = ints(axes) if axes is not None else list(attributes.get("axes", ()))
        if not where and attributes.get("noop_with_empty_axes", 0):
            return x
        axis = tuple(a % x.ndim for a in where) if where else tuple(range(x.ndim))
        wide = x.astype(np.float64) if floats_in_f64 and x.dtype.kind not in "iub" else x
        return _rounded(np.asarray(function(wide, axis=axis, keepdims=bool(attributes.get("keepdims", 1)))), x)

    return operator


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Of no elements: NaN."""
    count = np.prod([x.shape[a] for a in axis], dtype=np.float64)
    return np.asarray(np.sum(x, axis=axis, keepdims=keepdims, dtype=np.float64) / count)


def _extreme(function: Callable[..., Array], sign: int) -> Callable[..., Array]:
    """np.max (sign -1) or np.min (1); of no elements the infinity of that sign, or the end of an integer type."""

    def reduce(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        if 0 not in x.shape:
            return function(x, axis=axis, keepdims=keepdims)
        nothing: float = sign * np.inf
        if x.dtype.kind in "iub":
            low, high = (0, 1) if x.dtype.kind == "b" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
            nothing = low if sign < 0 else high
        shape = [1 if a in axis else extent for a, extent in enumerate(x.shape)]
        result = np.full(shape, nothing, x.dtype)
        return result if keepdims else result.squeeze(axis)

    return reduce


def _arg(function: Callable[..., Array]) -> OpFunction:
    def operator(inputs: Inputs, attributes: Attributes) -> Array:
        x, axis, last = need(inputs, 0), attributes.get("axis", 0), attributes.get("select_last_index", 0)
        index = function(np.flip(x, axis) if last else x, axis=axis, keepdims=bool(attributes.get("keepdims", 1)))
        return (x.shape[axis] - 1 - index if last else index).astype(np.int64)

    return operator


def _cumsum(inputs: Inputs, attributes: Attributes) -> Array:
    x, axis = need(inputs, 0), int(need(inputs, 1).reshape(()))
    backward = bool(attributes.get("reverse", 0))
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    wide = np.flip(wide, axis) if backward else wide
    total = np.cumsum(wide, axis=axis)
    total = total - wide if attributes.get("exclusive", 0) else total
    return _rounded(np.flip(total, axis) if backward else total, x)


def _softmax(inputs: Inputs, attributes: Attributes) -> Array:
    x, axis = need(inputs, 0), attributes.get("axis", -1)
    wide = widened(x)
    with np.errstate(invalid="ignore"):
        powers = _EXP(wide - wide.max(axis=axis, keepdims=True))
    return _rounded(powers / powers.sum(axis=axis, keepdims=True, dtype=np.float64), x)


def _layer_norm(inputs: Inputs, attributes: Attributes) -> Array:
    x, scale, bias = need(inputs, 0), need(inputs, 1), given(inputs, 2)
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=axes, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + attributes.get("epsilon", 1e-5))
    result = centred / spread * scale.astype(np.float64)
    return _rounded(result if bias is None else result + bias.astype(np.float64), x)


def _top_k(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array]:
    """Ties: the lowest index first."""
    x, k, axis = need(inputs, 0), int(need(inputs, 1).reshape(())), attributes.get("axis", -1)
    key = -x.astype(np.float64) if attributes.get("largest", 1) else x.astype(np.float64)
    order = np.take(np.argsort(key, axis=axis, kind="stable"), np.arange(k), axis=axis)
    return np.take_along_axis(x, order, axis=axis), order.astype(np.int64)


OPERATORS: dict[str, OpFunction] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "ReduceSum": _reduce(np.sum, True),
    "ReduceMean": _reduce(_mean, True),
    "ReduceProd": _reduce(np.prod, True),
    "ReduceMax": _reduce(_extreme(np.max, -1), False),
    "ReduceMin": _reduce(_extreme(np.min, 1), False),
    "ReduceSumSquare": _reduce(lambda x, axis, keepdims: np.sum(x * x, axis=axis, keepdims=keepdims), True),
    "ReduceL2": _reduce(lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)), True),
    "ArgMax": _arg(np.argmax),
    "ArgMin": _arg(np.argmin),
    "CumSum": _cumsum,
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "TopK": _top_k,
}
