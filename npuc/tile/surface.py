"""Memory and control of the tile language: grid, loads and stores, matrix products, scratch, conditions."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from npuc.tile.affine import Affine, Condition, Index, SplitNeeded, affine
from npuc.tile.arrays import Accumulator, Array, load_part, store_part
from npuc.tile.errors import KernelError, Loc, caller, refused
from npuc.tile.tile import Tile, lift
from npuc.tile.trace import Fill, Gather, Memory, Mma, current
from npuc.tile.types import dense, register_type
from npuc.tile.vector import iota, where
from npurt.abi.dtypes import DType

LOCAL_MEMORY = "cmx"

Valid = tuple[int, Index]


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
    return iter(builtins.range(*(int(bound) for bound in bounds)))


def when(condition: Condition | bool) -> AbstractContextManager[None]:
    """A block whose loads, products and stores act only where the condition on t.step holds.

    A tile made inside may not be used outside (it may never have been computed): store it in scratch and load that.
    """
    if not isinstance(condition, Condition):
        raise refused("when() takes a condition on t.step, such as t.step.n_past > 64; use `if` for static values")
    if current().predicated:
        raise refused("when() blocks do not nest: a task has one predicate")
    return current().predicate(condition)


def load(array: Array, index: Sequence[Index], shape: Sequence[int], *, valid: Valid | None = None) -> Tile:
    """The part of `array` of size `shape` that starts at element `index`, cut at the end of the array.

    valid=(axis, rows): only the first `rows` (an expression of t.step) along `axis` exist, the rest is zero.
    """
    memory = _memory_of(array, "load")
    axis, rows = _extent(memory, valid, index)
    start, size = _clip(memory, index, shape)
    if rows is None or not memory.type.on_chip:
        return load_part(memory, start, size, axis, rows)
    tile = load_part(memory, start, size, 0, None)  # on-chip arrays are read where they lie: mask instead of a cut copy
    position = iota([extent if d == axis else 1 for d, extent in enumerate(size)], axis)
    masked = where(position < rows, tile, lift(0, tile.dtype))
    return masked.cast(tile.dtype) if tile.dtype.is_float else masked


def store(array: Array, index: Sequence[Index], tile: Tile | Accumulator, *, valid: Valid | None = None) -> None:
    """Writes `tile` to the part of `array` that starts at `index`, rounded to the array's type.

    valid=(axis, rows): only the first `rows` along `axis` are written.
    """
    memory = _memory_of(array, "store")
    tile = tile.read() if isinstance(tile, Accumulator) else tile
    axis, rows = _extent(memory, valid, index)
    start, size = _clip(memory, index, tile.shape)
    wanted = register_type(memory.type.dtype)
    if register_type(tile.dtype) is not wanted:
        how = "i64 is only copied" if DType.I64 in (wanted, tile.dtype) else f"cast it: .cast(t.{wanted.label})"
        raise refused(f"a tile of {tile.dtype.label} cannot be stored in {memory.type}; {how}")
    if size != tile.shape:
        raise refused(f"a tile of shape {list(tile.shape)} does not fit: {memory.type} has room for {list(size)} there")
    store_part(memory, start, tile, axis, rows)


def clipped(array: Array, index: Sequence[Index], shape: Sequence[int]) -> tuple[int, ...]:
    """The static size of the part that load(array, index, shape) would give."""
    return _clip(_memory_of(array, "clipped"), index, shape)[1]


def gather(table: Array, rows: Tile) -> Tile:
    """out[r] = table[rows[r]] for an i32 tile of rank 1; a row number outside the table gives zeros."""
    memory = _memory_of(table, "gather")
    if rows.dtype is not DType.I32 or rows.rank != 1:
        raise refused(f"gather needs an i32 tile of rank 1 as rows, got {rows!r}")
    out = current().value(table.dtype, (rows.shape[0], *table.shape[1:]))
    current().emit(Gather(out, memory, rows.value, caller()))
    return Tile(out)


def scratch(shape: Sequence[int], dtype: DType = DType.F32) -> Array:
    """A local on-chip array. What was never stored there has no defined value (NaN in eager execution)."""
    return Array(current().allocate(dense(dtype, tuple(shape), LOCAL_MEMORY), caller()))


def accumulator(shape: Sequence[int], *, init: float | None = None) -> Accumulator:
    """An f32 sum for mma(..., acc=). The first mma writes it, later ones add.

    If the first mma stands in a when() block it may be skipped: then give init=0, which fills the array first.
    """
    loc = caller()
    memory = current().allocate(dense(DType.F32, tuple(shape), LOCAL_MEMORY), loc)
    if init is not None:
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


def _memory_of(array: Array, what: str) -> Memory:
    if not isinstance(array, Array):
        raise refused(f"{what} takes an array argument or scratch first, got {type(array).__name__}")
    return array.memory


def _clip(memory: Memory, index: Sequence[Index], shape: Sequence[int]) -> tuple[tuple[Affine, ...], tuple[int, ...]]:
    """Start and size of a part, cut at the array's end; equal sizes for the whole class of programs."""
    type_ = memory.type
    if len(index) != type_.rank or len(shape) != type_.rank:
        raise refused(
            f"{type_} needs an index and a shape of rank {type_.rank}, got {tuple(map(str, index))} and {tuple(shape)}"
        )
    starts, sizes = [], []
    for dimension, (first, size, extent) in enumerate(zip(map(affine, index), shape, type_.shape, strict=True)):
        low, high = first.without_step().range()
        if low < 0 or (high >= extent and size > 0 and extent > 0) or size < 0:
            raise refused(f"index {first} is outside dimension {dimension} of {type_}")
        cut = int(size)
        if first.step_field is None:
            cut = min(size, extent - high)
            if cut != min(size, extent - low):
                raise SplitNeeded(
                    next(
                        term
                        for term, _ in first.terms
                        if isinstance(term, int) and first.bounds[term][0] != first.bounds[term][1]
                    )
                )
        elif high + size > extent:
            raise refused(f"{size} rows from {first} do not fit dimension {dimension} of {type_}")
        starts.append(first)
        sizes.append(cut)
    return tuple(starts), tuple(sizes)


def _extent(memory: Memory, valid: Valid | None, index: Sequence[Index]) -> tuple[int, Affine | None]:
    """The runtime dimension of a transfer and its extent; the index's step field must be in the same dimension."""
    shifted = [d for d, first in enumerate(index) if affine(first).step_field is not None]
    if shifted and memory.type.on_chip:
        raise refused(f"{memory.type} is on-chip; an index may depend on t.step only in DDR arrays")
    if valid is None:
        if len(shifted) > 1:
            raise refused("only one dimension of an index may depend on t.step")
        return (shifted[0] if shifted else 0), None
    axis, rows = valid
    if not 0 <= axis < memory.type.rank:
        raise refused(f"valid axis {axis} is not a dimension of {memory.type}")
    if shifted not in ([], [axis]):
        raise refused(
            f"valid is along dimension {axis}, the step offset along {shifted[0]}; a transfer has one such dimension"
        )
    expression = affine(rows)
    if [c for term, c in expression.terms if isinstance(term, str)] != [1]:
        raise refused(
            f"valid rows must have the form step.field + number, got {expression}; "
            "for a static extent use a smaller tile"
        )
    return axis, expression
