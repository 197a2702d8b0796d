"""Exact sums: matrix products, reductions and scans whose result does not depend on how the host adds.

Floats are summed in float64 and rounded once to float32. Products of f16 or bf16 values and their sums are exact in
float64 unless magnitudes span more than 2^53, so no order of additions, BLAS kernel or thread count can change the
result. With float32 operands a sum may differ in its last float64 bit, which survives the rounding about once in 2^28.
Integers are summed in int64; a result kept as int32 wraps modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray


def mma_exact(a: Array, b: Array, b_kn: bool = False) -> Array:
    """Matrix product [batch?, m, k] x [batch?, n, k] (or [k, n] with b_kn) -> [batch?, m, n].

    float32 for float operands (float64 operands are taken as they are), int64 for two integer operands. k = 0 gives 0.
    """
    right = b if b_kn else np.swapaxes(b, -1, -2)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        return _integer_matmul(a.astype(np.int64), right.astype(np.int64))
    with np.errstate(all="ignore"):
        total: Array = np.matmul(a.astype(np.float64, copy=False), right.astype(np.float64, copy=False))
        return total.astype(np.float32)


def mma_scaled(a: Array, b: Array, scales: Array, group: int) -> Array:
    """Product [.., m, k] x [.., n, k] whose sums over each `group` of k are scaled, float32 [.., m, n].

    scales: float32 [n, groups]. For each group in order: exact sum, times its scale, added; each step rounded to
    float32. The last group may be short.
    """
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]), np.float32)
    with np.errstate(all="ignore"):
        for number, first in enumerate(range(0, a.shape[-1], group)):
            part = mma_exact(a[..., first : first + group], b[..., first : first + group])
            scaled = part.astype(np.float32, copy=False) * scales[:, number]
            total = total + scaled if number else scaled
    return total


def _integer_matmul(a: Array, b: Array) -> Array:
    """Through float64 BLAS where no partial sum can pass 2^53, which is exact too and far faster."""
    largest = float(np.abs(a).max(initial=0)) * float(np.abs(b).max(initial=0)) * a.shape[-1]
    if largest < 2.0**53:
        a, b = a.astype(np.float64), b.astype(np.float64)
    total: Array = np.matmul(a, b)
    return total.astype(np.int64)


def _last(x: Array, axis: int) -> Array:
    """The axis moved last in one contiguous array, so that the order of additions depends on the shape alone."""
    return np.ascontiguousarray(x if axis in (-1, x.ndim - 1) else np.moveaxis(x, axis, -1))


def _accumulate(
    x: Array, axis: int, function: Callable[..., Array], keepdims: bool, integer: type[np.signedinteger]
) -> Array:
    rows = _last(x, axis)
    with np.errstate(all="ignore"):
        if x.dtype.kind == "f":
            result = function(rows, axis=-1, dtype=np.float64).astype(np.float32)
        else:
            result = function(rows, axis=-1, dtype=np.int64).astype(integer)
    return np.expand_dims(result, axis) if keepdims else result


def sum_exact(x: Array, axis: int, keepdims: bool = True) -> Array:
    """Sum along an axis: float32 of the float64 sum; int32 stays int32 and int64 stays int64 (wrapping)."""
    return _accumulate(x, axis, np.add.reduce, keepdims, np.int64 if x.dtype == np.int64 else np.int32)


def mean(x: Array, axis: int, keepdims: bool = True) -> Array:
    """sum_exact divided by the number of elements, in float32."""
    with np.errstate(all="ignore"):
        return (sum_exact(x, axis, keepdims) / np.float32(x.shape[axis])).astype(np.float32)


def prod(x: Array, axis: int, keepdims: bool = True) -> Array:
    """Product along an axis, like sum_exact."""
    return _accumulate(x, axis, np.multiply.reduce, keepdims, np.int64 if x.dtype == np.int64 else np.int32)


def cumsum(x: Array, axis: int) -> Array:
    """Inclusive running sum along an axis; each element is rounded once."""
    with np.errstate(all="ignore"):
        if x.dtype.kind == "f":
            return np.add.accumulate(x, axis=axis, dtype=np.float64).astype(np.float32)
        return np.add.accumulate(x, axis=axis, dtype=np.int64).astype(x.dtype)


def plain_zero(x: Array) -> Array:
    """Floats with +0 for -0: which of the two a host's maximum takes depends on its instructions."""
    result: Array = x + np.float32(0.0) if x.dtype == np.float32 else x
    return result


def reduce_max(x: Array, axis: int, keepdims: bool = True) -> Array:
    """Largest element; NaN if there is one; a zero is +0. The axis must not be empty."""
    return plain_zero(np.max(x, axis=axis, keepdims=keepdims))


def reduce_min(x: Array, axis: int, keepdims: bool = True) -> Array:
    """Smallest element; NaN if there is one; a zero is +0. The axis must not be empty."""
    return plain_zero(np.min(x, axis=axis, keepdims=keepdims))


def argmax(x: Array, axis: int, keepdims: bool = True) -> Array:
    """int32 index of the largest element, the lowest index of equals; the first NaN counts as the largest."""
    index: Array = np.argmax(x, axis=axis, keepdims=keepdims)
    return index.astype(np.int32)


def topk_index(x: Array, count: int, axis: int) -> Array:
    """int32 indices of the `count` largest elements in falling order; of equals the lowest index first.

    NaN counts as larger than every number. count: at most the extent of `axis`.
    """
    nan = np.isnan(x)
    falling = -np.where(nan, 0, x).astype(np.int64 if x.dtype.kind == "i" else x.dtype)
    order: Array = np.lexsort((falling, ~nan), axis=axis)  # stable
    return np.take(order, np.arange(count), axis).astype(np.int32)


def topk(x: Array, count: int, axis: int) -> Array:
    """The elements at `topk_index`."""
    found: Array = np.take_along_axis(x, topk_index(x, count, axis), axis)
    return found


def argmin(x: Array, axis: int, keepdims: bool = True) -> Array:
    """int32 index of the smallest element, the lowest index of equals; the first NaN counts as the smallest."""
    index: Array = np.argmin(x, axis=axis, keepdims=keepdims)
    return index.astype(np.int32)
