"""Which way of multiplying with weights that stay codes is the cheapest on a target, and what the report says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from npukernels.codes import Row
from npurt.abi.dtypes import DType
from npurt.target.model import Target
from npurt.timing.compute import Products, product_seconds


@dataclass(frozen=True)
class Way:
    """widen: whether vector code dequantises before the product. what, how: in words, for the report; prices: of both
    ways."""

    widen: bool
    what: str
    how: str
    prices: str

    @property
    def why(self) -> str:
        return f"{self.what}: {self.how}{self.prices and ', '}{self.prices}"


def way(row: Row, m: int, n: int, floats: DType, target: Target) -> Way:
    """The cheaper of both ways for x [m, k] and n channels: codes to the matrix engine, or dequantised before it."""
    engine, kind = target.engine_of("matrix"), row.codes.label
    text = f"{kind} codes " + ("with a scale a channel" if row.groups == 1 else f"in groups of {row.group}")
    if row.shifts is not None:
        text += " and zero points of their own"
    if kind not in engine.codes:
        return Way(True, text, f"dequantised by vector code, as {engine.name} takes no codes of {kind}", "")
    direct = _seconds(row, m, n, floats, row.codes, row.group if row.groups > 1 else 0, target)
    widened = _seconds(row, m, n, floats, floats, 0, target) + _dequantising(row, n, target)
    prices = f"{direct * 1e6:.1f} us as codes, {widened * 1e6:.1f} us dequantised"
    if widened < direct:
        return Way(True, text, "dequantised by vector code", prices)
    one = "the scale is that of the engine's table"
    return Way(False, text, one if row.groups == 1 else f"{row.groups} products that add up on-chip", prices)


def _seconds(row: Row, m: int, n: int, a: DType, b: DType, group: int, target: Target) -> float:
    columns = np.array([(1, m, n, row.k, a, b, a, group)], np.int64).T
    return float(product_seconds(Products(*columns), target.engine_of("matrix"), target.matrix)[0])


def _dequantising(row: Row, n: int, target: Target) -> float:
    """Load, unpack, cast, subtract, multiply and store of n rows in f32 lanes, and one launch."""
    engine = target.engine_of("vector")
    cycles = engine.cycles["load"] + 4 * engine.cycles["simple"] + engine.cycles["store"]
    vectors = n * row.k * DType.F32.nbytes / engine.bytes_per_cycle / engine.units
    return engine.launch + cycles * vectors / engine.clock


def report_lines(entry: str, ways: Iterable[Way]) -> Iterator[str]:
    """One line for each kind of way of an entry, with the prices of the first product that takes it."""
    first: dict[tuple[str, str], Way] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for way in ways:
        first.setdefault((way.what, way.how), way)
        counts[way.what, way.how] += 1
    for key, count in counts.items():
        yield f"{entry}: {count} product{'s' * (count > 1)} of {first[key].why}"
