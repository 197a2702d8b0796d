"""Any function of tiles over blocks, and copies between types, strides and memories."""

from collections.abc import Callable

from npuc import tile as t
from npukernels.blocks import blocks, load_block

Block = tuple[int, ...]


@t.kernel
def elementwise(
    *arrays: t.Array, fn: Callable[..., t.Tile | tuple[t.Tile, ...]], outputs: int = 1, tile: Block
) -> None:
    """outputs = fn(*inputs), element by element; the last `outputs` arrays are written, all of one shape.

    Inputs broadcast to that shape. fn takes tiles and returns a tile, or a tuple of tiles. tile: block sizes.
    """
    inputs, targets = arrays[: len(arrays) - outputs], arrays[len(arrays) - outputs :]
    index = blocks(targets[0].shape, tile)
    results = fn(*(load_block(array, index, tile) for array in inputs))
    size = t.clipped(targets[0], index, tile)
    for target, result in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
        t.store(target, index, t.broadcast(result, size))


@t.kernel
def copy(x: t.Array, out: t.Array, *, tile: Block) -> None:
    """out = x, converted to out's float type; views of any strides (a transposing copy is a view of its source)."""
    index = blocks(out.shape, tile)
    t.store(out, index, t.load(x, index, tile))


@t.kernel
def fill(out: t.Array, *, value: float, tile: Block) -> None:
    """out = value everywhere."""
    index = blocks(out.shape, tile)
    t.store(out, index, t.full(t.clipped(out, index, tile), value, out.dtype))
