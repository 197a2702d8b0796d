"""Grids of blocks over an array, and loads that broadcast against a block."""

from collections.abc import Sequence

from npuc import tile as t


def blocks(shape: Sequence[int], tile: Sequence[int]) -> tuple[t.Index, ...]:
    """One program for each block of `shape`; the first element of this program's block."""
    ids = t.programs(*(t.cdiv(extent, size) for extent, size in zip(shape, tile, strict=True)))
    return tuple(number * size for number, size in zip(ids, tile, strict=True))


def load_block(array: t.Array, index: Sequence[t.Index], tile: Sequence[int]) -> t.Tile:
    """The part of `array` that a block at `index` needs: dimensions of size 1, and missing ones in front, repeat."""
    lead = len(index) - array.rank
    start = [0 if extent == 1 else first for first, extent in zip(index[lead:], array.shape, strict=True)]
    return t.load(array, start, tile[lead:])
