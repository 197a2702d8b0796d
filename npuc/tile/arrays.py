"""What kernels load from, store into and sum in: arrays and accumulators."""

from __future__ import annotations

from collections.abc import Sequence

from npuc.tile.affine import Affine, Index, affine
from npuc.tile.errors import caller, refused
from npuc.tile.tile import Tile
from npuc.tile.trace import Load, Memory, Store, current
from npurt.abi.dtypes import DType


class Array:
    """A piece of memory that a kernel loads from and stores into: an argument, or on-chip scratch."""

    __slots__ = ("memory",)

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @property
    def shape(self) -> tuple[int, ...]:
        return self.memory.type.shape

    @property
    def dtype(self) -> DType:
        return self.memory.type.dtype

    @property
    def rank(self) -> int:
        return len(self.memory.type.shape)

    def __repr__(self) -> str:
        return f"Array({self.memory.type})"


class Accumulator:
    """An f32 local array that matrix products add into."""

    __slots__ = ("array", "started")

    def __init__(self, array: Array, started: bool) -> None:
        self.array = array
        self.started = started

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def read(self) -> Tile:
        """The sum so far."""
        if not self.started:
            raise refused("the accumulator is read before the first mma; give it init=0, or let an mma run first")
        return load_part(self.array.memory, (0,) * self.array.rank, self.shape, 0, None)

    def scale(self, factor: Tile | float) -> None:
        """Multiplies the sum so far by a tile that broadcasts against it."""
        store_part(self.array.memory, (0,) * self.array.rank, self.read() * factor, 0, None)

    def __repr__(self) -> str:
        return f"Accumulator({list(self.shape)})"


def load_part(memory: Memory, index: Sequence[Index], size: tuple[int, ...], axis: int, rows: Affine | None) -> Tile:
    """The operation under load(): the part of size `size` at `index`, already cut to the array."""
    executor = current()
    out = executor.value(memory.type.dtype, size)
    executor.emit(Load(out, memory, tuple(map(affine, index)), axis, rows, caller()))
    return Tile(out)


def store_part(memory: Memory, index: Sequence[Index], tile: Tile, axis: int, rows: Affine | None) -> None:
    """The operation under store()."""
    current().emit(Store(tile.value, memory, tuple(map(affine, index)), axis, rows, caller()))
