"""Codes of 2 to 8 bits and the numbers they stand for: int4, uint4, uint2, fp8, fp4, power-of-two scales.

Decoding is exact. Encoding takes the nearest number, halves to the even code, and never fails:

- an integer code saturates, infinities included; NaN gives 0
- e4m3 and e5m2 saturate at 448 and 57344, infinities included (as ONNX's QuantizeLinear with saturate = 1); NaN gives
  the one quiet NaN, 0x7f of e4m3 and 0x7e of e5m2
- e2m1, which has no NaN, saturates at 6; NaN gives 0
- e8m0 takes the nearer power of two, halves the larger one; NaN, infinity, zero and negative numbers give its NaN, 0xff

The bits are those of the OCP's specifications of 8-bit floats and of microscaling formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan

import numpy as np

from npurt.abi.dtypes import DType

Array = np.ndarray


def _small_float(exponent: int, mantissa: int) -> Array:
    """float32 numbers [2^bits] of a sign, `exponent` bits and `mantissa` bits, all of them finite."""
    code = np.arange(1 << (1 + exponent + mantissa))
    fraction = (code & (1 << mantissa) - 1) / (1 << mantissa)
    power = code >> mantissa & (1 << exponent) - 1
    bias = (1 << (exponent - 1)) - 1
    size = np.where(power == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (power - bias))
    return np.where(code >> (exponent + mantissa), -size, size).astype(np.float32)


def _but(numbers: Array, special: Mapping[int, float]) -> Array:
    """Numbers by code, but for some codes."""
    numbers = numbers.astype(np.float32)
    for code, value in special.items():
        numbers[code] = value
    return numbers


_E5M2_SPECIAL = {0x7C: inf, 0xFC: -inf, **dict.fromkeys((0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF), nan)}
NUMBERS: dict[DType, Array] = {
    DType.U2: np.arange(4, dtype=np.int32),
    DType.U4: np.arange(16, dtype=np.int32),
    DType.I4: (np.arange(16, dtype=np.int32) ^ 8) - 8,
    DType.E2M1: _small_float(2, 1),
    DType.E4M3: _but(_small_float(4, 3), {0x7F: nan, 0xFF: nan}),
    DType.E5M2: _but(_small_float(5, 2), _E5M2_SPECIAL),
    DType.E8M0: _but(np.ldexp(1.0, np.minimum(np.arange(256) - 127, 127)), {0xFF: nan}),
}
"""The number of each code, float32 or int32 [codes]."""

_INTEGERS = {DType.U2: (0, 3), DType.U4: (0, 15), DType.I4: (-8, 7)}
_LARGEST = {DType.E2M1: 0x7, DType.E4M3: 0x7E, DType.E5M2: 0x7B}  # code of the largest finite number
_QUIET_NAN = {DType.E2M1: 0, DType.E4M3: 0x7F, DType.E5M2: 0x7E}
_BETWEEN = {
    dtype: (NUMBERS[dtype][:last].astype(np.float64) + NUMBERS[dtype][1 : last + 1]) / 2
    for dtype, last in _LARGEST.items()
}


def decode(codes: Array, dtype: DType) -> Array:
    """The numbers of codes (any integer type, within the type's range), float32 or int32."""
    numbers: Array = NUMBERS[dtype][codes]
    return numbers


def encode(values: Array, dtype: DType) -> Array:
    """uint8 codes of numbers (floats or integers), by the rules above."""
    wide = np.asarray(values, np.float64)
    if dtype in _INTEGERS:
        low, high = _INTEGERS[dtype]
        whole = np.clip(np.where(wide != wide, 0.0, np.rint(wide)), low, high).astype(np.int32)
        return (whole & (1 << dtype.bits) - 1).astype(np.uint8)
    if dtype is DType.E8M0:
        return _encode_power(wide)
    size, between = np.abs(wide), _BETWEEN[dtype]
    lower = np.searchsorted(between, size)  # halves take the lower code
    odd_half = (between[np.minimum(lower, between.size - 1)] == size) & (lower % 2 == 1) & (lower < between.size)
    code = np.where(odd_half, lower + 1, lower) | np.where(np.signbit(wide), 1 << (dtype.bits - 1), 0)
    return np.where(wide != wide, _QUIET_NAN[dtype], code).astype(np.uint8)


def _encode_power(wide: Array) -> Array:
    fraction, exponent = np.frexp(wide)  # in [0.5, 1), so wide lies between 2^(exponent - 1) and 2^exponent
    code = np.clip(exponent - 1 + (fraction >= 0.75) + 127, 0, 254)
    return np.where((wide > 0) & np.isfinite(wide), code, 0xFF).astype(np.uint8)
