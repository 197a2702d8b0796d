"""Indexed transfers: one dimension of a load or store is chosen by the numbers of a tile, on the device."""

from __future__ import annotations

from collections.abc import Sequence

from npuc.tile.affine import Affine, Index, affine
from npuc.tile.errors import caller, refused
from npuc.tile.parts import Valid, clip
from npuc.tile.tile import Tile
from npuc.tile.trace import Gather, Memory, Scatter, current
from npurt.abi.dtypes import DType

Place = Index | Tile
"""Where a part begins along one dimension; or the indices of that dimension, as an i32 tile."""


def indexed_axis(index: Sequence[Place]) -> int | None:
    """The dimension that a tile chooses, None where none does."""
    chosen = [d for d, place in enumerate(index) if isinstance(place, Tile)]
    if len(chosen) > 1:
        raise refused(f"dimensions {chosen[0]} and {chosen[1]} are both chosen by a tile; a transfer has one such")
    return chosen[0] if chosen else None


def plain_index(index: Sequence[Place]) -> list[Index]:
    """Where the part begins in the dimensions that are not chosen, 0 in the one that is."""
    return [0 if isinstance(place, Tile) else place for place in index]


def gather_part(memory: Memory, index: Sequence[Place], shape: Sequence[int], axis: int, valid: Valid | None) -> Tile:
    """The operation under an indexed load."""
    rows, start, size = _part(memory, index, shape, axis, valid)
    out = current().value(memory.type.dtype, size)
    current().emit(Gather(out, memory, rows.value, axis, start, caller()))
    return Tile(out)


def scatter_part(memory: Memory, index: Sequence[Place], tile: Tile, axis: int, valid: Valid | None) -> None:
    """The operation under an indexed store."""
    rows, start, size = _part(memory, index, tile.shape, axis, valid)
    if tile.dtype is not memory.type.dtype and not (tile.dtype.is_float and memory.type.dtype.is_float):
        raise refused(
            f"a tile of {tile.dtype.label} cannot be scattered into {memory.type}: the transfer converts among floats "
            "alone; store it into scratch of that type and load it from there"
        )
    if size != tile.shape:
        raise refused(f"a tile of shape {list(tile.shape)} does not fit: {memory.type} has room for {list(size)} there")
    current().emit(Scatter(tile.value, memory, rows.value, axis, start, caller()))


def _part(
    memory: Memory, index: Sequence[Place], shape: Sequence[int], axis: int, valid: Valid | None
) -> tuple[Tile, tuple[Affine, ...], tuple[int, ...]]:
    """The tile of numbers, where the part starts (0 along `axis`) and its size, cut in the other dimensions."""
    rows = index[axis]
    assert isinstance(rows, Tile)
    if rows.dtype is not DType.I32 or rows.rank > 1:
        raise refused(f"an index must be a number or an i32 tile of rank 0 or 1, got {rows!r}")
    if valid is not None:
        raise refused("valid= does not go with an index tile: give -1 for rows that do not exist")
    count = rows.shape[0] if rows.rank else 1
    if len(shape) > axis and shape[axis] != count:
        raise refused(f"the index tile has {count} numbers, the part {shape[axis]} rows along dimension {axis}")
    plain = plain_index(index)
    if any(affine(place).step_field is not None for place in plain):
        raise refused("an index tile does not go with an offset by t.step; add that to the tile")
    whole = [memory.type.shape[d] if d == axis and d < memory.type.rank else n for d, n in enumerate(shape)]
    start, size = clip(memory, plain, whole)
    return rows, start, (*size[:axis], count, *size[axis + 1 :])
