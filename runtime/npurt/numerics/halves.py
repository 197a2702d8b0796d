"""f16 and bf16 in 16 bits, to and from float32, exactly and in few passes.

Blocks of `BLOCK` elements keep the temporaries in the second-level cache. NumPy's own conversion of float32 to float16
gives the same bits, but takes some thirty times as long where results are subnormal, as those of a softmax are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np

Array = np.ndarray
Flat = Callable[[Array], Array]

BLOCK = 16384  # elements

_F16_OVERFLOW = np.uint32(0x477FF000)  # 65520.0: half way to 2^16, the first magnitude that rounds to infinity
_F32_INF = np.uint32(0x7F800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SIGN = np.uint32(0x80000000)
_F16_MIN_EXPONENT = np.uint32((127 - 14) << 23)  # 2^-14: below it the f16 grid is as wide as at it
_F16_LEAD = np.uint16((113 << 10) & 0xFFFF)  # exponent bits of 2^-14 at their f16 place, and the hidden bit of 2^10
_ALIGN_13 = np.uint32(13 << 23)  # adding 2^13 times the leading power of two leaves 10 fraction bits


def _f16_table() -> Array:
    """float32 of each of the 65536 f16 patterns; every NaN is the same quiet NaN."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    exponent, fraction = (bits >> 10) & 31, bits & 1023
    normal = (exponent + np.uint32(112)) << 23 | fraction << 13
    subnormal = (fraction.astype(np.float32) * np.float32(2.0**-24)).view(np.uint32)
    special = np.where(fraction == 0, _F32_INF, np.uint32(0x7FC00000))
    magnitude = np.where(exponent == 0, subnormal, np.where(exponent == 31, special, normal))
    sign = np.where((exponent == 31) & (fraction != 0), np.uint32(0), bits >> 15)
    table: Array = (magnitude | sign << 31).view(np.float32)
    return table


_F16_TO_F32 = _f16_table()
_F16_TO_F64 = _F16_TO_F32.astype(np.float64)
for _table in (_F16_TO_F32, _F16_TO_F64):
    _table.flags.writeable = False


def _in_blocks(source: type[np.generic], result: type[np.generic]) -> Callable[[Flat], Flat]:
    """Makes a function of a flat block one of arrays of any shape and stride."""

    def decorate(convert: Flat) -> Flat:
        @wraps(convert)
        def function(values: Array) -> Array:
            flat = np.ascontiguousarray(values, dtype=source).reshape(-1)
            out = np.empty(flat.size, result)
            for start in range(0, flat.size, BLOCK):
                out[start : start + BLOCK] = convert(flat[start : start + BLOCK])
            return out.reshape(np.shape(values))

        return function

    return decorate


def _look_up(table: Array, bits: Array, out: Array | None) -> Array:
    flat = np.ascontiguousarray(bits).reshape(-1)
    target = np.empty(bits.shape, table.dtype) if out is None else out
    line = target.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        table.take(flat[start : start + BLOCK], mode="clip", out=line[start : start + BLOCK])
    return target


def f16_bits_to_f32(bits: Array, out: Array | None = None) -> Array:
    """float32 values of f16 bit patterns (uint16). Exact. out: where they go, C-contiguous."""
    return _look_up(_F16_TO_F32, bits, out)


def f16_bits_to_f64(bits: Array, out: Array | None = None) -> Array:
    """The same in float64."""
    return _look_up(_F16_TO_F64, bits, out)


def bf16_bits_to_f32(bits: Array) -> Array:
    """float32 values of bf16 bit patterns (uint16). Exact; NaN payloads are kept."""
    wide = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


@_in_blocks(np.float32, np.uint16)
def f32_to_f16_bits(values: Array) -> Array:
    """f16 bit patterns (uint16) nearest to float32 values, ties to even, overflow to infinity.

    |x| + 2^13 * 2^e, with 2^e the leading power of two of x (at least 2^-14), has its last bit at the last f16 fraction
    bit: the float32 adder rounds to nearest even there, and the sum's fraction is the f16 fraction. A carry runs into
    the exponent as it should. No subnormal takes part.
    """
    bits = values.view(np.uint32)
    magnitude = bits & _MAGNITUDE
    largest = magnitude.max(initial=0)
    if largest >= _F16_OVERFLOW:
        np.minimum(magnitude, _F16_OVERFLOW, out=magnitude)
    lead = magnitude & _F32_INF
    np.maximum(lead, _F16_MIN_EXPONENT, out=lead)
    rounded = (magnitude.view(np.float32) + (lead + _ALIGN_13).view(np.float32)).view(np.uint32)
    lead >>= np.uint32(13)
    rounded += lead  # the anchor's own exponent is zero in the low 16 bits, all that is kept
    result = rounded.astype(np.uint16)
    result -= _F16_LEAD
    sign = (bits >> np.uint32(16)).astype(np.uint16)
    sign &= np.uint16(0x8000)
    result |= sign
    if largest > _F32_INF:
        result[(bits & _MAGNITUDE) > _F32_INF] = 0x7E00
    return result


@_in_blocks(np.float32, np.float32)
def round_f16(values: Array) -> Array:
    """float32 values moved to the f16 grid: equal to a store as f16 and a load, and stays float32."""
    bits = values.view(np.uint32)
    magnitude = bits & _MAGNITUDE
    if magnitude.max(initial=0) >= _F16_OVERFLOW:
        return f16_bits_to_f32(f32_to_f16_bits(values))
    anchor = magnitude & _F32_INF
    np.maximum(anchor, _F16_MIN_EXPONENT, out=anchor)
    anchor += _ALIGN_13
    rounded = magnitude.view(np.float32)
    rounded += anchor.view(np.float32)
    rounded -= anchor.view(np.float32)
    magnitude |= bits & _SIGN
    return rounded


@_in_blocks(np.float32, np.uint16)
def f32_to_bf16_bits(values: Array) -> Array:
    """bf16 bit patterns (uint16) nearest to float32 values, ties to even, overflow to infinity."""
    bits = values.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    result = rounded.astype(np.uint16)
    nan = (bits & _MAGNITUDE) > _F32_INF
    if nan.any():
        result[nan] = 0x7FC0
    return result


def round_bf16(values: Array) -> Array:
    """float32 values moved to the bf16 grid."""
    return bf16_bits_to_f32(f32_to_bf16_bits(values))
