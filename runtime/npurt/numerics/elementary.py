"""Elementary functions of float32 whose bits are the same on every host.

Each is a polynomial in float64 built from + - * / and sqrt (which IEEE 754 fixes to the bit) and integer operations on
the exponent, rounded once to float32. NumPy's own exp, log, sin and power differ between instruction sets and are not
used. The float64 result is within 2^-36 of the truth relatively, so the float32 result is off by less than 0.501 ulp.
Series are the Taylor series of the function around 0 unless said; limits (infinities, NaN, signed zeros, subnormals)
follow C99 Annex F.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import factorial

import numpy as np

Array = np.ndarray

BLOCK = 8192  # elements at a time: the float64 temporaries stay in the second-level cache

LN2_HI = float.fromhex("0x1.62e42fefa3800p-1")  # 42 bits: k * LN2_HI is exact for |k| < 2^11
LN2_LO = float.fromhex("0x1.ef35793c76730p-45")
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
INV_LN2 = float.fromhex("0x1.71547652b82fep+0")
_SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)
_ONE_BITS = np.int64(1023 << 52)
_EXPONENT_SHIFT = np.int64(52)

_EXP = tuple(1.0 / factorial(n) for n in range(9, -1, -1))  # |r| <= ln2/2: next term 2^-37
_ATANH = tuple(1.0 / (2 * n + 1) for n in range(9, -1, -1))  # atanh(s)/s in s^2 <= 0.0295: next term 2^-55

# Chebyshev fit of degree 23 to erf(x)/x in v = x^2/8 - 1 on [-1, 1], that is |x| <= 4; absolute error 2.4e-14
# (computed with 60 digits, highest power first)
_ERF = (
    -4.7677593373708656e-07,
    1.525078675158126e-06,
    -1.8477082233652099e-06,
    4.867587784831905e-06,
    -1.9474614222107485e-05,
    5.0995742764843516e-05,
    -0.00011675995435633769,
    0.00027244442325580383,
    -0.0006135610536966054,
    0.0012946046887796594,
    -0.002577962875421378,
    0.0048527008914917595,
    -0.00860629367904577,
    0.014349836806032582,
    -0.022473555537373086,
    0.03306059062184811,
    -0.04576511177349191,
    0.059886909359934994,
    -0.07472786567162942,
    0.09020899387698399,
    -0.10771044253014905,
    0.13167511689964084,
    -0.17657623330136532,
    0.3535309956433878,
)


def float32_function(compute: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Makes a float64 kernel of one flat block a function of float32 arrays of any shape, silent about IEEE flags."""

    @wraps(compute)
    def function(x: Array) -> Array:
        values = np.ascontiguousarray(x, dtype=np.float32)
        flat = values.reshape(-1)
        result = np.empty(flat.size, np.float32)
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, BLOCK):
                result[start : start + BLOCK] = compute(flat[start : start + BLOCK].astype(np.float64))
        return result.reshape(np.shape(x))

    return function


def horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Polynomial of x, highest power first."""
    result = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        result += coefficient
        result *= x
    result += coefficients[-1]
    return result


def exp_f64(x: Array) -> Array:
    """e^x of float64 in [-700, 700] or NaN: 2^k e^r with r = x - k ln2."""
    k = np.rint(x * INV_LN2)
    r = x - k * LN2_HI
    r -= k * LN2_LO
    return _scale(horner(r, _EXP), k)


def _scale(mantissa: Array, k: Array) -> Array:
    """mantissa * 2^k for integral k in [-1022, 1023]; a NaN in mantissa stays NaN whatever k is."""
    power = k.astype(np.int64)
    power += np.int64(1023)
    power <<= _EXPONENT_SHIFT
    mantissa *= power.view(np.float64)
    return mantissa


def log_f64(x: Array) -> Array:
    """Natural logarithm of positive finite float64: k ln2 + 2 atanh((m - 1)/(m + 1)), m in [sqrt(1/2), sqrt(2))."""
    bits = x.view(np.int64)
    k = (bits - _SQRT_HALF_BITS) >> _EXPONENT_SHIFT
    m = (bits - (k << _EXPONENT_SHIFT)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    series = horner(s * s, _ATANH)
    series *= s
    series *= 2.0
    exponent = k.astype(np.float64)
    series += exponent * LN2_LO
    series += exponent * LN2_HI
    return series


@float32_function
def exp(x: Array) -> Array:
    """e^x. Beyond +-110 the float32 result is 0 or infinity."""
    return exp_f64(np.clip(x, -110.0, 110.0))


@float32_function
def exp2(x: Array) -> Array:
    """2^x."""
    x = np.clip(x, -160.0, 160.0)
    k = np.rint(x)
    return _scale(horner((x - k) * LN2, _EXP), k)


@float32_function
def log(x: Array) -> Array:
    """Natural logarithm: log(+-0) = -inf, log(x < 0) = NaN."""
    result = log_f64(np.where((x > 0) & (x < np.inf), x, 1.0))
    result = np.where(x == np.inf, np.inf, result)
    result = np.where(x == 0, -np.inf, result)
    return np.where(x >= 0, result, np.nan)


@float32_function
def tanh(x: Array) -> Array:
    """(e^2x - 1)/(e^2x + 1); x - x^3/3 below 2^-10, where the difference would cancel (error below 2^-35)."""
    grown = exp_f64(2.0 * np.clip(x, -20.0, 20.0))
    result = (grown - 1.0) / (grown + 1.0)
    return np.where(np.abs(x) < 2.0**-10, x * (1.0 - x * x * (1.0 / 3.0)), result)


@float32_function
def sigmoid(x: Array) -> Array:
    """1/(1 + e^-x)."""
    return 1.0 / (1.0 + exp_f64(np.clip(-x, -110.0, 110.0)))


@float32_function
def erf(x: Array) -> Array:
    """Error function; from |x| = 4 on it rounds to +-1."""
    near = np.clip(x, -4.0, 4.0)
    result: Array = near * horner(near * near * 0.125 - 1.0, _ERF)
    return result


@float32_function
def rsqrt(x: Array) -> Array:
    """1/sqrt(x): rsqrt(+-0) = +-inf, rsqrt(x < 0) = NaN."""
    root: Array = np.sqrt(x)
    return 1.0 / root


def recip(x: Array) -> Array:
    """1/x, correctly rounded."""
    with np.errstate(all="ignore"):
        result: Array = np.float32(1.0) / np.asarray(x, np.float32)
        return result


def sqrt(x: Array) -> Array:
    """Square root, correctly rounded."""
    with np.errstate(all="ignore"):
        result: Array = np.sqrt(np.asarray(x, np.float32))
        return result


def pow(x: Array, y: Array) -> Array:
    """x^y with NumPy broadcasting, special cases as C99 pow; e^(y log|x|) in float64, relative error 2^-36."""
    with np.errstate(all="ignore"):
        base, exponent = np.broadcast_arrays(np.asarray(x, np.float32), np.asarray(y, np.float32))
        base, exponent = base.astype(np.float64), exponent.astype(np.float64)
        size = np.abs(base)
        usual = (size > 0) & (size < np.inf)
        growth = exponent * log_f64(np.where(usual, size, 1.0))
        result = exp_f64(np.clip(growth, -110.0, 110.0))
        whole = np.rint(exponent) == exponent
        odd = whole & (np.rint(exponent * 0.5) != exponent * 0.5)
        negative = np.signbit(base)
        # 0 and infinity: the result is 0 or infinity, by the sign of the exponent
        edge = np.where((size == 0) == (exponent < 0), np.inf, 0.0)
        result = np.where((size == 0) | (size == np.inf), edge, result)
        result = np.where(negative & odd, -result, result)
        result = np.where((base < 0) & (size < np.inf) & ~whole, np.nan, result)
        result = np.where((size == 1) & (np.abs(exponent) == np.inf), 1.0, result)
        result = np.where(np.isnan(base) | np.isnan(exponent), np.nan, result)
        result = np.where((exponent == 0) | (base == 1), 1.0, result)
        return result.astype(np.float32)
