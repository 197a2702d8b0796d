"""Rows of codes with their scales, as kernels read them, and the numbers that they hold in float64."""

from __future__ import annotations

import numpy as np

from npuc import tile as t
from npukernels.codes import Row
from npurt import numerics

Array = np.ndarray


def random_rows(count: int, row: Row, seed: int = 0) -> tuple[Array, Array]:
    """uint8 [count, row.nbytes] with random contents, and the numbers [count, k] by the formula, in float64."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 1 << row.codes.bits, (count, row.k)).astype(np.uint8)
    if row.codes in (t.e4m3, t.e5m2):  # neither NaN nor infinity
        codes &= 0xBF
    scales = numerics.store(random.uniform(0.01, 0.1, (count, row.groups)).astype(np.float32), row.scales)
    parts = [numerics.pack_codes(codes, row.codes.bits), scales]
    numbers = numerics.decode(codes, row.codes).astype(np.float64) if row.codes not in (t.i8, t.u8) else None
    if numbers is None:
        numbers = codes.view(row.codes.storage).astype(np.float64)
    group = np.arange(row.k) // row.group
    wide = (numbers - row.zero) * numerics.load(scales, row.scales).astype(np.float64)[:, group]
    if row.shifts is not None:
        shifts = numerics.store(random.normal(0, 0.2, (count, row.groups)).astype(np.float32), row.shifts)
        parts.append(shifts)
        wide = wide + numerics.load(shifts, row.shifts).astype(np.float64)[:, group]
    return joined(row, parts), wide


def joined(row: Row, parts: list[Array]) -> Array:
    """Codes, scales and shifts at their places in the rows; what lies between is 0xA5, which nobody may read."""
    made = np.full((len(parts[0]), row.nbytes), 0xA5, np.uint8)
    at = (0, row.code_bytes, row.code_bytes + row.scale_bytes)
    for first, part in zip(at, parts, strict=False):
        data = np.ascontiguousarray(part).view(np.uint8).reshape(len(part), -1)
        made[:, first : first + data.shape[1]] = data
    return made


def picks(row: Row) -> Array:
    """Codes [groups, k / 2] that sum the places of each group."""
    ones = np.arange(row.k) // row.group == np.arange(row.groups)[:, None]
    return numerics.pack_codes(ones.astype(np.uint8), 4)
