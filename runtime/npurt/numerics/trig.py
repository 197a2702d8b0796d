"""Sine and cosine of float32 with the same bits on every host, for every finite argument.

The argument is reduced to r in [-pi/4, pi/4] and a quadrant in float64: by three parts of pi/2 (Cody and Waite) while
the quadrant number fits 20 bits, above that by the fraction of x * 2/pi taken from enough bits of 2/pi (Payne and
Hanek). Then Taylor polynomials, rounded once.
"""

from __future__ import annotations

import numpy as np

from npurt.numerics.elementary import Array, float32_function, horner

_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
# 33 bits each: a product with a quadrant number below 2^20 is exact
_HALF_PI_PARTS = tuple(map(float.fromhex, ("0x1.921fb54400000p+0", "0x1.0b4611a600000p-34", "0x1.3198a2e037073p-69")))
_SMALL = 2.0**20

# 2/pi to 320 bits after the binary point
_TWO_OVER_PI_BITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E0
_LOWEST_EXPONENT, _LARGE_ROWS = -4, 109  # |x| = M 2^e above 2^20 has e >= -4, the largest float32 e = 104
_PART_BITS = 29  # times a 24-bit significand: exact in float64

_SIN = (1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0)  # sin(r)/r in r^2; next term 2^-45
_COS = (1 / 479001600, -1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -1 / 2, 1.0)  # cos(r) in r^2; next term 2^-41


def _large_table() -> Array:
    """[109, 4] float64: parts of (2^e * 2/pi) mod 4 for e = -4..104, from high to low, 29 bits each."""
    point = 320 - _LOWEST_EXPONENT
    rows = []
    for shift in range(_LARGE_ROWS):
        fraction = (_TWO_OVER_PI_BITS << shift) & ((1 << point + 2) - 1)  # mod 4: two integer bits above the point
        parts = []
        for place in range(1, 5):
            low = point + 2 - place * _PART_BITS
            parts.append(float((fraction >> low) & ((1 << _PART_BITS) - 1)) * 2.0 ** (low - point))
        rows.append(parts)
    return np.array(rows)


_LARGE = _large_table()


def _reduce_small(x: Array) -> tuple[Array, Array]:
    k = np.rint(x * _TWO_OVER_PI)
    r = x - k * _HALF_PI_PARTS[0]
    r -= k * _HALF_PI_PARTS[1]
    r -= k * _HALF_PI_PARTS[2]
    return r, k.astype(np.int64)


def _reduce_large(x: Array) -> tuple[Array, Array]:
    """x = M 2^e with 24-bit M: quarters = M * ((2^e * 2/pi) mod 4), part by part, dropping whole turns."""
    mantissa, exponent = np.frexp(x)
    whole = mantissa * 2.0**24
    parts = _LARGE[np.clip(exponent - 24 - _LOWEST_EXPONENT, 0, _LARGE_ROWS - 1)]
    quarters = whole * parts[:, 0]
    quarters -= 4.0 * np.rint(quarters * 0.25)  # exact: multiples of 2^-27 below 2^26
    second = whole * parts[:, 1]
    second -= 4.0 * np.rint(second * 0.25)
    k = np.rint(quarters + second)
    rest = (quarters - k) + second
    rest += whole * parts[:, 2]
    rest += whole * parts[:, 3]
    return rest * _HALF_PI, k.astype(np.int64)


def _reduce(x: Array) -> tuple[Array, Array]:
    """Remainder of x by pi/2 and the quadrant; infinities and NaN give a NaN remainder."""
    finite = np.where(np.isfinite(x), x, 0.0)
    large = np.abs(finite) > _SMALL
    r, k = _reduce_small(np.where(large, 0.0, finite))
    if large.any():
        r[large], k[large] = _reduce_large(finite[large])
    r += x - x  # NaN where x is not finite
    return r, k


def _by_quadrant(r: Array, k: Array) -> Array:
    square = r * r
    sine = horner(square, _SIN)
    sine *= r
    result = np.where(k & 1, horner(square, _COS), sine)
    return np.where(k & 2, -result, result)


@float32_function
def sin(x: Array) -> Array:
    """Sine of x radians; sin(+-inf) = NaN, sin(-0) = -0."""
    r, k = _reduce(x)
    return np.where(x == 0, x, _by_quadrant(r, k))


@float32_function
def cos(x: Array) -> Array:
    """Cosine of x radians; cos(+-inf) = NaN."""
    r, k = _reduce(x)
    return _by_quadrant(r, k + 1)
