"""Reductions over one or several axes, and running sums."""

from collections.abc import Callable

from npuc import tile as t
from npukernels.blocks import blocks

Block = tuple[int, ...]

OPERATIONS: dict[str, Callable[[t.Tile, int, float], t.Tile]] = {
    "sum": lambda x, axis, count: t.sum(x, axis),
    "mean": lambda x, axis, count: t.sum(x, axis) / count,
    "max": lambda x, axis, count: t.max(x, axis),
    "min": lambda x, axis, count: t.min(x, axis),
    "prod": lambda x, axis, count: t.prod(x, axis),
    "sum_square": lambda x, axis, count: t.sum(x * x, axis),
    "l1": lambda x, axis, count: t.sum(t.abs(x), axis),
    "l2": lambda x, axis, count: t.sqrt(t.sum(x * x, axis)),
    "argmax": lambda x, axis, count: t.argmax(x, axis),
    "argmin": lambda x, axis, count: t.argmin(x, axis),
}
"""What `reduce` knows: a function of a tile, the axis and the number of elements along it (float for float tiles)."""


@t.kernel
def reduce(x: t.Array, out: t.Array, *, op: str, axes: tuple[int, ...] | None = None, tile: Block) -> None:
    """out = op of x over `axes` (None: the last), which out keeps with size 1. argmax and argmin give i32.

    Ties of argmax and argmin: the lowest index, over several axes in row-major order. tile: block sizes; `axes` are
    taken whole.
    """
    axes = (x.rank - 1,) if axes is None else axes
    size = [extent if d in axes else block for d, (extent, block) in enumerate(zip(x.shape, tile, strict=True))]
    index = blocks(x.shape, size)
    block = t.load(x, index, size)
    kept = [d for d in range(x.rank) if d not in axes]
    flat = t.reshape(t.transpose(block, [*kept, *axes]), [*(block.shape[d] for d in kept), -1])
    count = flat.shape[-1]
    result = OPERATIONS[op](flat, flat.rank - 1, float(count) if x.dtype.is_float else count)
    t.store(out, index, t.reshape(result, [1 if d in axes else block.shape[d] for d in range(x.rank)]))


@t.kernel
def cumsum(
    x: t.Array, out: t.Array, *, axis: int = -1, exclusive: bool = False, reverse: bool = False, tile: Block
) -> None:
    """out = sums of x along `axis` up to each element, without it if exclusive, from the end if reverse.

    tile: block sizes; `axis` is taken whole.
    """
    axis %= x.rank
    size = [extent if d == axis else block for d, (extent, block) in enumerate(zip(x.shape, tile, strict=True))]
    index = blocks(x.shape, size)
    order = [axis, *(d for d in range(x.rank) if d != axis)]
    rows = t.transpose(t.load(x, index, size), order)
    count = rows.shape[0]
    backwards = count - 1 - t.iota((count,), 0)
    if reverse:
        rows = t.take(rows, backwards)
    if exclusive:
        rows = t.take(rows, t.iota((count,), 0) - 1)
    sums = t.cumsum(rows, 0)
    if reverse:
        sums = t.take(sums, backwards)
    t.store(out, index, t.transpose(sums, [order.index(d) for d in range(x.rank)]))
