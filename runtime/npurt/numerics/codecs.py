"""Element types between memory and arithmetic: exact widening, one rounding at each store.

Arithmetic knows float32, int32 and bool (and int64, which is only copied). Memory holds what ``npurt.abi.DType`` lists;
bf16 is raw uint16. Narrow floats are handled as bits or on their grid in float32, never as np.float16 arithmetic, and
float32 subnormals cost nothing extra.

Rules of a store, in order: a float into an integer type rounds half to even, saturates, and NaN gives 0; an integer
into a narrower integer saturates; an integer into a float rounds to nearest even; anything into bool is ``value != 0``;
a NaN into f16 or bf16 becomes the one quiet NaN (0x7e00, 0x7fc0).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npurt.abi.dtypes import DType

Array = np.ndarray

COMPUTE: dict[DType, np.dtype] = {
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float32),
    DType.BF16: np.dtype(np.float32),
    DType.I32: np.dtype(np.int32),
    DType.I8: np.dtype(np.int32),
    DType.U8: np.dtype(np.int32),
    DType.BOOL: np.dtype(np.bool_),
    DType.I64: np.dtype(np.int64),
}
"""The type in which arithmetic sees an element of memory."""

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


def f16_bits_to_f32(bits: Array) -> Array:
    """float32 values of f16 bit patterns (uint16). Exact."""
    values: Array = _F16_TO_F32.take(bits, mode="clip")
    return values


def bf16_bits_to_f32(bits: Array) -> Array:
    """float32 values of bf16 bit patterns (uint16). Exact; NaN payloads are kept."""
    wide = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


def f32_to_f16_bits(values: Array) -> Array:
    """f16 bit patterns (uint16) nearest to float32 values, ties to even, overflow to infinity.

    |x| + 2^13 * 2^e, with 2^e the leading power of two of x (at least 2^-14), has its last bit at the last f16 fraction
    bit: the float32 adder rounds to nearest even there, and the sum's fraction is the f16 fraction. A carry runs into
    the exponent as it should. No subnormal takes part.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(values.shape)
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


def round_f16(values: Array) -> Array:
    """float32 values moved to the f16 grid: equal to a store as f16 and a load, and stays float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(values.shape)
    magnitude = bits & _MAGNITUDE
    if magnitude.max(initial=0) >= _F16_OVERFLOW:
        return f16_bits_to_f32(f32_to_f16_bits(values))
    anchor = magnitude & _F32_INF
    np.maximum(anchor, _F16_MIN_EXPONENT, out=anchor)
    anchor += _ALIGN_13
    rounded = magnitude.view(np.float32)
    rounded += anchor.view(np.float32)
    rounded -= anchor.view(np.float32)
    signed = magnitude
    signed |= bits & _SIGN
    return signed.view(np.float32)


def f32_to_bf16_bits(values: Array) -> Array:
    """bf16 bit patterns (uint16) nearest to float32 values, ties to even, overflow to infinity."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(values.shape)
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


def load(memory: Array, dtype: DType) -> Array:
    """Elements of memory (an array of ``dtype.storage``, any strides) as a new array of ``COMPUTE[dtype]``. Exact."""
    return _LOAD[dtype](memory)


def load_f64(memory: Array, dtype: DType) -> Array:
    """Elements of float memory as float64, for exact sums."""
    if dtype is DType.F16:
        values: Array = _F16_TO_F64.take(memory.view(np.uint16), mode="clip")
        return values
    return load(memory, dtype).astype(np.float64)


def store(values: Array, dtype: DType) -> Array:
    """Values (float32, float64, int32, int64 or bool) as an array of ``dtype.storage``, rounded or saturated once.

    Where nothing changes the result is ``values`` itself.
    """
    return _STORE[dtype](values)


def _load_f32(memory: Array) -> Array:
    return memory.astype(np.float32)


def _load_bool(memory: Array) -> Array:
    values: Array = memory != 0
    return values


def _load_i32(memory: Array) -> Array:
    return memory.astype(np.int32)


_LOAD: dict[DType, Callable[[Array], Array]] = {
    DType.F32: _load_f32,
    DType.F16: lambda memory: f16_bits_to_f32(memory.view(np.uint16)),
    DType.BF16: bf16_bits_to_f32,
    DType.I32: _load_i32,
    DType.I8: _load_i32,
    DType.U8: _load_i32,
    DType.BOOL: _load_bool,
    DType.I64: lambda memory: memory.astype(np.int64),
}


def _integer_store(low: int, high: int, storage: np.dtype) -> Callable[[Array], Array]:
    float_high = min(float(high), 2.0**63 - 1024)  # the largest float64 below 2^63

    def convert(values: Array) -> Array:
        if values.dtype == storage:
            return values
        if values.dtype.kind == "f":
            whole = np.rint(values.astype(np.float64))
            return np.clip(np.where(whole != whole, 0.0, whole), float(low), float_high).astype(storage)
        return np.clip(values.astype(np.int64), low, high).astype(storage)

    return convert


def _float_store(to_bits: Callable[[Array], Array], storage: np.dtype) -> Callable[[Array], Array]:
    def convert(values: Array) -> Array:
        return to_bits(values.astype(np.float32, copy=False)).view(storage)

    return convert


_STORE: dict[DType, Callable[[Array], Array]] = {
    DType.F32: lambda values: values.astype(np.float32, copy=False),
    DType.F16: _float_store(f32_to_f16_bits, DType.F16.storage),
    DType.BF16: _float_store(f32_to_bf16_bits, DType.BF16.storage),
    DType.I32: _integer_store(-(2**31), 2**31 - 1, DType.I32.storage),
    DType.I8: _integer_store(-128, 127, DType.I8.storage),
    DType.U8: _integer_store(0, 255, DType.U8.storage),
    DType.BOOL: lambda values: (values != 0).astype(np.uint8),
    DType.I64: _integer_store(-(2**63), 2**63 - 1, DType.I64.storage),
}
