"""Elementwise operators that take several instructions: hyperbolic functions, shifts, tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuc import tile as t

Tile = Any
SMALL = 0.25
"""Below it the series are exact to float32, where the formulas cancel."""


def sinh(x: Tile) -> Tile:
    square = x * x
    series = x * (1.0 + square * (1 / 6 + square * (1 / 120 + square * (1 / 5040))))
    return t.where(abs(x) < SMALL, series, 0.5 * (t.exp(x) - t.exp(-x)))


def cosh(x: Tile) -> Tile:
    return 0.5 * (t.exp(x) + t.exp(-x))


def asinh(x: Tile) -> Tile:
    square, size = x * x, abs(x)
    series = x * (1.0 - square * (1 / 6 - square * (3 / 40 - square * (15 / 336 - square * (105 / 3456)))))
    far = t.sign(x) * t.log(size + t.sqrt(square + 1.0))
    return t.where(size < SMALL, series, far)


def acosh(x: Tile) -> Tile:
    return t.log(x + t.sqrt(x * x - 1.0))


def atanh(x: Tile) -> Tile:
    square = x * x
    series = x * (1.0 + square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * (1 / 9 + square * (1 / 11))))))
    return t.where(abs(x) < SMALL, series, 0.5 * t.log((1.0 + x) / (1.0 - x)))


def tan(x: Tile) -> Tile:
    return t.sin(x) / t.cos(x)


def is_inf(x: Tile, detect_negative: int = 1, detect_positive: int = 1) -> Tile:
    infinite = t.isinf(x)
    if detect_negative and detect_positive:
        return infinite
    if not detect_negative and not detect_positive:
        return infinite & ~infinite
    return infinite & (x > 0.0 if detect_positive else x < 0.0)


def bit_shift(x: Tile, by: Tile, direction: str) -> Tile:
    """Of int32. Shifts by 32 and more, and negative ones, leave nothing (set 28); to the right the sign stays."""
    x, by = (value if isinstance(value, t.Tile) else t.full((1,), int(value), t.i32) for value in (x, by))
    outside = (by < 0) | (by > 31)
    factor: Tile = t.full((1,), 1, t.i32)
    rest = t.where(outside, 0, by)
    for bit in (16, 8, 4, 2, 1):
        taken = rest >= bit
        rest = t.where(taken, rest - bit, rest)
        if direction == "LEFT":
            factor = t.where(taken, factor * (1 << bit), factor)
        else:  # floor division keeps the sign
            x = t.where(taken, (x - x % (1 << bit)) / (1 << bit), x)
    if direction == "LEFT":
        return t.where(outside, 0, x * factor)
    return t.where(outside, t.where(x < 0, -1, 0), x)


FUNCTIONS: dict[str, Callable[..., Tile]] = {
    "Sinh": sinh,
    "Cosh": cosh,
    "Asinh": asinh,
    "Acosh": acosh,
    "Atanh": atanh,
    "Tan": tan,
    "IsInf": is_inf,
    "BitShift": bit_shift,
}
