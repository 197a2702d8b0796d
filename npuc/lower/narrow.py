"""Element types narrower than a register: integers that wrap at their width, and floats of few bits on their grid.

A register of a vector kernel holds float32 or int32. What ONNX says of a narrow type is computed there: integer
arithmetic and casts keep the low bits, a cast to a small float rounds to nearest even and saturates where asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from npuc import tile as t

Tile = Any


@dataclass(frozen=True)
class Width:
    """An integer type of fewer than 32 bits."""

    bits: int
    signed: bool


WIDTHS: Mapping[str, Width] = {
    "INT16": Width(16, True), "INT8": Width(8, True), "INT4": Width(4, True), "INT2": Width(2, True),
    "UINT16": Width(16, False), "UINT8": Width(8, False), "UINT4": Width(4, False), "UINT2": Width(2, False),
}  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """A float type of few bits (ONNX, "Float stored in 8 bits" and "4 bits").

    fraction: bits behind the leading one; lowest, highest: exponents of the smallest and the largest normal number;
    largest: the largest finite number; beyond: what a larger one becomes where the cast does not saturate.
    """

    fraction: int
    lowest: int
    highest: int
    largest: float
    beyond: float


NAN, INF = float("nan"), float("inf")
GRIDS: Mapping[str, Grid] = {
    "FLOAT8E4M3FN": Grid(3, -6, 8, 448.0, NAN),
    "FLOAT8E4M3FNUZ": Grid(3, -7, 7, 240.0, NAN),
    "FLOAT8E5M2": Grid(2, -14, 15, 57344.0, INF),
    "FLOAT8E5M2FNUZ": Grid(2, -15, 15, 57344.0, NAN),
    "FLOAT4E2M1": Grid(1, 0, 2, 6.0, 6.0),  # no infinity and no NaN: it always saturates
}

WRAPPING = frozenset({"Add", "Sub", "Mul", "Neg", "Abs", "Pow", "Sum", "Div", "BitShift"})
"""Elementwise operators whose integer result may not fit the type of their operands."""


def width_of(dtype: ir.DataType | None) -> Width | None:
    """The width of a narrow integer type, None for any other type."""
    return WIDTHS.get(dtype.name) if dtype is not None else None


def wrapped(x: Tile, bits: int, signed: bool) -> Tile:
    """The low bits of an int32 tile, as numbers of that width."""
    size = 1 << bits
    return (x + size // 2) % size - size // 2 if signed else x % size


def on_grid(x: Tile, grid: str, saturate: bool = True) -> Tile:
    """A float32 tile rounded to the numbers of a small float type, half to even."""
    form = GRIDS[grid]
    size = t.minimum(abs(x), 2.0 ** (form.highest + 2))  # the roundings below are exact up to here
    step: Tile = t.full((1,), 2.0 ** (form.lowest - form.fraction))
    for exponent in range(form.lowest + 1, form.highest + 2):
        step = t.where(size >= 2.0**exponent, 2.0 ** (exponent - form.fraction), step)
    rounded = t.round(size / step) * step
    rounded = t.where(rounded > form.largest, form.largest if saturate else form.beyond, rounded)
    return t.where(x < 0.0, -rounded, rounded)
