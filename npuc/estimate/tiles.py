"""Blocks of a matrix product, as a library kernel would take them: fewest bytes, then fewest transfers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil

PANEL = 16  # output channels and rows that a matrix engine computes at once
STEP = 8 * PANEL  # along K
SUM_BYTES = 4  # of a sum in f32
STRIDED = 1.1  # assumed: parts of rows load a little slower than whole ones
TRANSFER = 20_000  # bytes that cross in the latency of a transfer, 300 ns at 68 GB/s


@dataclass(frozen=True)
class Product:
    """out[m, n] = x[m, k] w[n, k]^T for `weights` matrices. item, weight_bits: of a number. x_far: x is in device
    memory."""

    m: int
    k: int
    n: int
    weights: int
    item: int
    weight_bits: int
    x_far: bool

    @property
    def x_bytes(self) -> int:
        return self.m * self.k * self.item if self.x_far else 0

    @property
    def w_bytes(self) -> int:
        return self.weights * self.n * self.k * self.weight_bits // 8


@dataclass(frozen=True)
class Blocks:
    """rows, columns, steps: blocks along m, n and k. x_loads, w_loads: how often the operands cross, each times all
    of its bytes; transfers: in all."""

    rows: int
    columns: int
    steps: int
    x_loads: int
    w_loads: int
    transfers: int


@lru_cache(maxsize=4096)
def blocks_of(shape: Product, room: int) -> Blocks:
    """The blocks whose buffers take at most `room` bytes; the smallest ones where none fit."""
    found = [(price, blocks) for price, local, blocks in _priced(shape) if local <= room]
    if not found:
        return min(_priced(shape), key=lambda entry: entry[1])[2]
    return min(found, key=lambda entry: entry[0])[1]


def _priced(shape: Product) -> Iterator[tuple[tuple[float, int], int, Blocks]]:
    """(price, bytes of buffers, blocks): a walk along the rows, or along the columns, keeps a block of the other."""
    for bm, bn, bk in product(halvings(shape.m), halvings(shape.n), halvings(shape.k, STEP)):
        rows, columns, steps = ceil(shape.m / bm), ceil(shape.n / bn), ceil(shape.k / bk)
        local = (shape.x_bytes * bm * bk // (shape.m * shape.k) + shape.w_bytes * bn * bk // (shape.n * shape.k)
                 + (SUM_BYTES * bm * bn if steps > 1 else 0))  # fmt: skip
        many = rows * columns * steps * (shape.weights + shape.x_far)
        walks = [(columns, 1 if steps == 1 else rows)]
        if rows > 1 and columns > 1 and steps == 1:
            walks.append((1, rows))
        for x_loads, w_loads in walks:
            moved = shape.x_bytes * x_loads + shape.w_bytes * w_loads
            price = moved * (1.0 if steps == 1 else STRIDED) + many * TRANSFER
            transfers = steps * (x_loads * rows * shape.x_far + w_loads * columns * shape.weights)
            yield (price, -bm * bn * bk), local, Blocks(rows, columns, steps, x_loads, w_loads, transfers)


def halvings(extent: int, multiple: int = PANEL) -> Iterator[int]:
    """extent, then ever smaller multiples of `multiple`, each about half of the last."""
    size = max(extent, 1)
    yield size
    while size > multiple:
        size = max(multiple, ceil(ceil(size / 2) / multiple) * multiple)
        yield size
