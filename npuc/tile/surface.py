"""Memory and control of the tile language: grid, loads and stores, matrix products, scratch, conditions."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import SupportsIndex

from npuc.tile.affine import Condition, Index
from npuc.tile.arrays import Accumulator, Array, load_part, store_part
from npuc.tile.errors import KernelError, Loc, caller, refused
from npuc.tile.indexed import Place, gather_part, indexed_axis, plain_index, scatter_part
from npuc.tile.parts import Valid, clip, memory_of, runtime_extent
from npuc.tile.tile import Tile, cast, lift
from npuc.tile.trace import EndRun, Fill, FlagCondition, Mma, current
from npuc.tile.types import dense, register_type
from npuc.tile.vector import iota, reshape, where
from npuc.tile.watch import MAX_OPERATIONS
from npurt.abi.dtypes import DType

LOCAL_MEMORY = "cmx"


class _Step:
    """Fields of the step block, known when the device runs."""

    @property
    def n_past(self) -> Index:
        """Rows of the KV cache that are valid before this step."""
        return current().step("n_past")

    @property
    def n_new(self) -> Index:
        """Valid rows of this step's input."""
        return current().step("n_new")


step = _Step()


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    if b <= 0:
        raise refused(f"cdiv needs a positive divisor, got {b}; is a tile size 0?")
    return -(-a // b)


def programs(*extents: int) -> tuple[Index, ...]:
    """The grid: one program for each combination of ids. The ids of this program, one for each extent."""
    if not all(isinstance(extent, int) and extent >= 0 for extent in extents):
        raise refused(f"programs() takes numbers of programs, got {extents}")
    if current().grid is not None:
        raise refused("programs() may be called once, as the first statement")
    if current().started:
        raise refused("programs() must come before every load, store and computation")
    return current().programs(extents)


def range(*bounds: Index, stages: int = 1) -> Iterator[int]:
    """Python's range, unrolled. stages: turns that may be in flight, as a note: the scheduler prefetches."""
    if stages < 1:
        raise refused(f"stages must be at least 1, got {stages}")
    if not 1 <= len(bounds) <= 3 or not all(isinstance(bound, SupportsIndex) for bound in bounds):
        raise refused(f"range() takes one to three whole numbers, got {bounds}")
    whole = [operator.index(bound) for bound in bounds]
    if whole[2:] == [0]:
        raise refused("range() with a step of 0 never ends; is a tile size 0?")
    numbers = builtins.range(*whole)
    if len(numbers) > MAX_OPERATIONS:
        raise refused(f"range() of {len(numbers)} turns, {MAX_OPERATIONS} unroll at most; take larger tiles")
    return iter(numbers)


def when(condition: Condition | Tile | bool, *, taken: bool = True) -> AbstractContextManager[None]:
    """A block whose loads, products and stores act only where the condition holds.

    condition: on t.step, such as t.step.n_past > 64, or a range, (t.step.n_past > 64) & (t.step.n_past <= 128); or a
    flag, a bool or i32 tile of one element, which the device looks at when it gets there: not 0 is true. taken: False
    for a block that acts where a flag is 0.
    A tile made inside may not be used outside (it may never have been computed): store it in scratch and load that.
    What skipped stores would have written stays as it was.
    """
    if current().predicated:
        raise refused("when() blocks do not nest: a task has one predicate")
    if isinstance(condition, Tile):
        return current().predicate(FlagCondition(_flag(condition).value, taken))
    if not isinstance(condition, Condition):
        raise refused(
            "when() takes a condition on t.step, such as t.step.n_past > 64, or a flag tile; use `if` for static values"
        )
    if not taken:
        raise refused("taken=False goes with a flag tile; write the opposite condition on t.step")
    return current().predicate(condition)


def _flag(tile: Tile) -> Tile:
    """The tile as an i32 of shape [], which is what a task's predicate reads."""
    if math.prod(tile.shape) != 1 or tile.dtype not in (DType.BOOL, DType.I32):
        raise refused(f"a flag is a bool or i32 tile of one element, got {tile!r}; reduce and compare first")
    return reshape(cast(tile, DType.I32), ())


def end_run() -> None:
    """Ends the SHAVE run: vector code behind it becomes a run of its own.

    It changes no value. A run computes in lanes as wide as the widest float that it loads or stores, so work on f32
    arrays may be worth a run beside that on many more f16 elements.
    """
    current().emit(EndRun(caller()))


def load(array: Array, index: Sequence[Place], shape: Sequence[int], *, valid: Valid | None = None) -> Tile:
    """The part of `array` of size `shape` that starts at element `index`, cut at the end of the array.

    valid=(axis, rows): only the first `rows` (an expression of t.step) along `axis` exist, the rest is zero. One place
    of `index` may be an i32 tile of rank 0 or 1: its numbers are the indices along that dimension, as many as `shape`
    has there; a number outside the array gives zeros.
    """
    memory = memory_of(array, "load")
    chosen = indexed_axis(index)
    if chosen is not None:
        return gather_part(memory, index, shape, chosen, valid)
    begin = plain_index(index)
    axis, rows = runtime_extent(memory, valid, begin)
    start, size = clip(memory, begin, shape)
    if rows is None or not memory.type.on_chip:
        return load_part(memory, start, size, axis, rows)
    tile = load_part(memory, start, size, 0, None)  # on-chip arrays are read where they lie: mask instead of a cut copy
    position = iota([extent if d == axis else 1 for d, extent in enumerate(size)], axis)
    masked = where(position < rows, tile, lift(0, tile.dtype))
    return masked.cast(tile.dtype) if tile.dtype.is_float else masked


def store(array: Array, index: Sequence[Place], tile: Tile | Accumulator, *, valid: Valid | None = None) -> None:
    """Writes `tile` to the part of `array` that starts at `index`, rounded to the array's type.

    valid=(axis, rows): only the first `rows` along `axis` are written. One place of `index` may be an i32 tile, as in
    load(): a number outside the array is skipped, of equal numbers the last stays.
    """
    memory = memory_of(array, "store")
    tile = tile.read() if isinstance(tile, Accumulator) else tile
    chosen = indexed_axis(index)
    if chosen is not None:
        return scatter_part(memory, index, tile, chosen, valid)
    begin = plain_index(index)
    axis, rows = runtime_extent(memory, valid, begin)
    start, size = clip(memory, begin, tile.shape)
    wanted = register_type(memory.type.dtype)
    if register_type(tile.dtype) is not wanted:
        how = "i64 is only copied" if DType.I64 in (wanted, tile.dtype) else f"cast it: .cast(t.{wanted.label})"
        raise refused(f"a tile of {tile.dtype.label} cannot be stored in {memory.type}; {how}")
    if size != tile.shape:
        raise refused(f"a tile of shape {list(tile.shape)} does not fit: {memory.type} has room for {list(size)} there")
    store_part(memory, start, tile, axis, rows)


def clipped(array: Array, index: Sequence[Index], shape: Sequence[int]) -> tuple[int, ...]:
    """The static size of the part that load(array, index, shape) would give."""
    return clip(memory_of(array, "clipped"), index, shape)[1]


def gather(table: Array, rows: Tile) -> Tile:
    """out[r] = table[rows[r]] for an i32 tile of rank 1; a row number outside the table gives zeros."""
    memory = memory_of(table, "gather")
    if not isinstance(rows, Tile) or rows.dtype is not DType.I32 or rows.rank != 1:
        raise refused(f"gather needs an i32 tile of rank 1 as rows, got {rows!r}")
    return gather_part(memory, (rows, *(0,) * (table.rank - 1)), (rows.shape[0], *table.shape[1:]), 0, None)


def scatter(array: Array, rows: Tile, tile: Tile | Accumulator) -> None:
    """array[rows[r]] = tile[r] for an i32 tile of rank 1, in rising order of r: of equal numbers the last stays.

    A row number outside the array is skipped. tile: of the array's type, or both floats.
    """
    memory = memory_of(array, "scatter")
    if not isinstance(rows, Tile) or rows.dtype is not DType.I32 or rows.rank != 1:
        raise refused(f"scatter needs an i32 tile of rank 1 as rows, got {rows!r}")
    tile = tile.read() if isinstance(tile, Accumulator) else tile
    scatter_part(memory, (rows, *(0,) * (array.rank - 1)), tile, 0, None)


def scratch(shape: Sequence[int], dtype: DType = DType.F32) -> Array:
    """A local on-chip array. A load of what no store can have written there is an error at its line."""
    return Array(current().allocate(dense(dtype, tuple(shape), LOCAL_MEMORY), caller()))


def accumulator(shape: Sequence[int], *, init: float | Tile | None = None) -> Accumulator:
    """An f32 sum for mma(..., acc=). The first mma writes it, later ones add.

    init: what it begins with, a number or a float tile of its shape; then the first mma adds, too. If the first mma
    stands in a when() block it may be skipped: then give init=0, which fills the array first.
    """
    loc = caller()
    memory = current().allocate(dense(DType.F32, tuple(shape), LOCAL_MEMORY), loc)
    if isinstance(init, Tile):
        store(Array(memory), (0,) * len(memory.type.shape), init)
    elif init is not None:
        current().emit(Fill(memory, float(init), loc))
    return Accumulator(Array(memory), init is not None)


def mma(
    a: Tile,
    b: Tile,
    *,
    acc: Accumulator | None = None,
    kn: bool = False,
    table: Tile | None = None,
    scale: float = 1.0,
    clamp: tuple[float, float] | None = None,
) -> Tile:
    """Matrix product a [m, k] x b [n, k], or b [k, n] with kn: the exact sum rounded once to f32, times `scale`.

    Operands may have a batch dimension in front; one of size 1 (or none) serves all batches of the other. table: f32
    [n, 2], (scale, bias) for each output column. clamp: (low, high). acc: adds to an accumulator and returns its sum.
    """
    loc = caller()
    shape = _product_shape(a, b, kn, loc)
    if table is not None and (table.shape != (shape[-1], 2) or table.dtype is not DType.F32):
        raise KernelError(f"the table must be f32[{shape[-1]}, 2] (scale, bias for each column), got {table!r}", loc)
    executor = current()
    rows = None if table is None else table.value
    if acc is None:
        out = executor.value(register_type(a.dtype), shape)
        executor.emit(Mma(out, a.value, b.value, None, False, rows, float(scale), clamp, kn, loc))
        return Tile(out)
    if not a.dtype.is_float:
        raise KernelError(f"accumulators hold f32; a product of {a.dtype.label} tiles cannot be added to one", loc)
    if acc.shape != shape:
        raise KernelError(f"the product has shape {list(shape)}, the accumulator {list(acc.shape)}", loc)
    if not acc.started and executor.predicated:
        raise KernelError(
            "the first mma of this accumulator may be skipped by when(); give accumulator(..., init=0)", loc
        )
    executor.emit(Mma(None, a.value, b.value, acc.array.memory, acc.started, rows, float(scale), clamp, kn, loc))
    acc.started = True
    return acc.read()


def _product_shape(a: Tile, b: Tile, kn: bool, loc: Loc) -> tuple[int, ...]:
    if not (2 <= a.rank <= 3 and 2 <= b.rank <= 3):
        raise KernelError(
            f"mma takes tiles of rank 2, or 3 with a batch in front; got {a!r} and {b!r}; reshape first", loc
        )
    k_of_b, n = (b.shape[-2], b.shape[-1]) if kn else (b.shape[-1], b.shape[-2])
    if a.shape[-1] != k_of_b:
        hint = "" if kn or a.shape[-1] != b.shape[-2] else "; b is stored [k, n]: pass kn=True"
        raise KernelError(
            f"mma sums over k: a {list(a.shape)} has {a.shape[-1]}, b {list(b.shape)} has {k_of_b}{hint}", loc
        )
    if register_type(a.dtype) is not register_type(b.dtype):
        raise KernelError(f"mma of {a.dtype.label} and {b.dtype.label} does not mix floats and integers; cast one", loc)
    batches = {tile.shape[0] for tile in (a, b) if tile.rank == 3} - {1}
    if len(batches) > 1:
        raise KernelError(f"mma batches differ: {list(a.shape)} and {list(b.shape)}", loc)
    if a.rank == b.rank == 2:
        return (a.shape[0], n)
    return (max(batches, default=1), a.shape[-2], n)
