"""The vector functions of the tile language: elementwise, reductions, and changes of shape."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence

from npuc.tile.errors import refused
from npuc.tile.tile import Tile, TileLike, binary, broadcast_shape, common, constant, emit, lift, unary
from npuc.tile.types import register_type
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType

# --- elementwise: f32 in, f32 out; shapes broadcast as in NumPy


def exp(x: Tile) -> Tile:
    return unary(Op.EXP, x)


def exp2(x: Tile) -> Tile:
    return unary(Op.EXP2, x)


def log(x: Tile) -> Tile:
    return unary(Op.LOG, x)


def sqrt(x: Tile) -> Tile:
    return unary(Op.SQRT, x)


def rsqrt(x: Tile) -> Tile:
    return unary(Op.RSQRT, x)


def recip(x: Tile) -> Tile:
    return unary(Op.RECIP, x)


def tanh(x: Tile) -> Tile:
    return unary(Op.TANH, x)


def sigmoid(x: Tile) -> Tile:
    return unary(Op.SIGMOID, x)


def erf(x: Tile) -> Tile:
    return unary(Op.ERF, x)


def sin(x: Tile) -> Tile:
    return unary(Op.SIN, x)


def cos(x: Tile) -> Tile:
    return unary(Op.COS, x)


def floor(x: Tile) -> Tile:
    return unary(Op.FLOOR, x)


def ceil(x: Tile) -> Tile:
    return unary(Op.CEIL, x)


def round(x: Tile) -> Tile:
    """To the nearest integer, half to even."""
    return unary(Op.ROUND, x)


def isnan(x: Tile) -> Tile:
    return unary(Op.ISNAN, x)


def isinf(x: Tile) -> Tile:
    return unary(Op.ISINF, x)


def abs(x: Tile) -> Tile:
    return unary(Op.ABS, x)


def neg(x: Tile) -> Tile:
    return unary(Op.NEG, x)


def sign(x: Tile) -> Tile:
    return unary(Op.SIGN, x)


def logical_not(x: Tile) -> Tile:
    return unary(Op.NOT, x)


def minimum(a: TileLike, b: TileLike) -> Tile:
    """The smaller one; NaN where either is NaN."""
    return binary(Op.MIN, a, b)


def maximum(a: TileLike, b: TileLike) -> Tile:
    """The larger one; NaN where either is NaN."""
    return binary(Op.MAX, a, b)


def power(a: TileLike, b: TileLike) -> Tile:
    """a to the power b; special cases as C's pow."""
    return binary(Op.POW, a, b)


def mod(a: TileLike, b: TileLike) -> Tile:
    """Remainder with the sign of the divisor, as `%` of tiles."""
    return binary(Op.MOD, a, b)


def equal(a: TileLike, b: TileLike) -> Tile:
    """Bool tile, as `==` of tiles."""
    return binary(Op.EQ, a, b)


def fmod(a: TileLike, b: TileLike) -> Tile:
    """Remainder with the sign of the dividend; `%` has the sign of the divisor."""
    return binary(Op.FMOD, a, b)


def where(condition: Tile, a: TileLike, b: TileLike) -> Tile:
    """`a` where the bool tile `condition` holds, else `b`; what the other operand holds there does not matter."""
    if not isinstance(condition, Tile) or condition.dtype is not DType.BOOL:
        raise refused("where takes a bool tile first, such as where(x > 0, x, 0.0)")
    default = DType.I32 if isinstance(a, int) and isinstance(b, int) else DType.F32
    first, second = common(a, b, default)
    dtype = first.dtype if first.dtype is second.dtype else register_type(first.dtype)
    return emit(
        Op.WHERE, dtype, broadcast_shape(condition.shape, first.shape, second.shape), (condition, first, second)
    )


# --- reductions along one axis, or several adjacent axes; the result keeps them with size 1 unless keep=False


def _reduce(op: Op, x: Tile, axis: int | Sequence[int], keep: bool) -> Tile:
    axes = sorted(_axis(x, a) for a in ((axis,) if isinstance(axis, int) else axis))
    if not axes or axes != list(builtins.range(axes[0], axes[-1] + 1)):
        raise refused(f"{op.name.lower()} reduces one axis or several adjacent ones, got {axis}; transpose first")
    if register_type(x.dtype) is DType.BOOL:
        raise refused(f"{op.name.lower()} takes numbers, got bool; cast first: .cast(t.f32) or .cast(t.i32)")
    first, last = axes[0], axes[-1]
    count = math.prod(x.shape[first : last + 1])
    if count == 0 and op not in (Op.SUM, Op.PROD):
        raise refused(f"{op.name.lower()} over an axis of size 0 has no value; shape {list(x.shape)}, axis {axis}")
    flat = x if first == last else reshape(x, (*x.shape[:first], count, *x.shape[last + 1 :]))
    dtype = DType.I32 if op in (Op.ARGMAX, Op.ARGMIN) else register_type(x.dtype)
    out = emit(op, dtype, (*flat.shape[:first], 1, *flat.shape[first + 1 :]), (flat,), axis=first)
    kept = (*x.shape[:first], *(1 for _ in axes), *x.shape[last + 1 :])
    shape = kept if keep else (*x.shape[:first], *x.shape[last + 1 :])
    return out if out.shape == shape else reshape(out, shape)


def sum(x: Tile, axis: int | Sequence[int], *, keep: bool = True) -> Tile:
    """The exact sum, rounded once to f32."""
    return _reduce(Op.SUM, x, axis, keep)


def max(x: Tile, axis: int | Sequence[int], *, keep: bool = True) -> Tile:
    return _reduce(Op.RMAX, x, axis, keep)


def min(x: Tile, axis: int | Sequence[int], *, keep: bool = True) -> Tile:
    return _reduce(Op.RMIN, x, axis, keep)


def prod(x: Tile, axis: int | Sequence[int], *, keep: bool = True) -> Tile:
    return _reduce(Op.PROD, x, axis, keep)


def argmax(x: Tile, axis: int, *, keep: bool = True) -> Tile:
    """i32 position of the largest; the lowest one of equals."""
    return _reduce(Op.ARGMAX, x, axis, keep)


def argmin(x: Tile, axis: int, *, keep: bool = True) -> Tile:
    """i32 position of the smallest; the lowest one of equals."""
    return _reduce(Op.ARGMIN, x, axis, keep)


def topk(x: Tile, k: int, axis: int) -> tuple[Tile, Tile]:
    """The k largest along `axis` in falling order, and their i32 positions; of equals the lowest position first.

    NaN counts as larger than every number, as in argmax.
    """
    position = _axis(x, axis)
    if not 0 < k <= x.shape[position]:
        raise refused(f"topk of {k} along axis {axis}: a tile of shape {list(x.shape)} has {x.shape[position]} there")
    if register_type(x.dtype) is DType.BOOL:
        raise refused("topk takes numbers, got bool; cast first: .cast(t.f32) or .cast(t.i32)")
    shape = (*x.shape[:position], k, *x.shape[position + 1 :])
    values = emit(Op.TOPK, register_type(x.dtype), shape, (x,), axis=position)
    return values, emit(Op.TOPK_INDEX, DType.I32, shape, (x,), axis=position)


def cumsum(x: Tile, axis: int) -> Tile:
    """Inclusive running sum: element i is the exact sum of the elements up to i, rounded once."""
    return emit(Op.CUMSUM, register_type(x.dtype), x.shape, (x,), axis=_axis(x, axis))


# --- making tiles


def iota(shape: Sequence[int], axis: int) -> Tile:
    """An i32 tile that counts 0, 1, 2 ... along `axis`."""
    sizes = tuple(shape)
    if not 0 <= axis < len(sizes):
        raise refused(f"axis {axis} is not in a tile of rank {len(sizes)}")
    return emit(Op.IOTA, DType.I32, sizes, axis=axis)


def full(shape: Sequence[int], value: float, dtype: DType = DType.F32) -> Tile:
    """`value` everywhere, rounded to `dtype`'s grid; i8 and u8 give an i32 tile, which an array of them takes."""
    tile = constant(value, register_type(dtype), tuple(shape))
    return tile.cast(dtype) if dtype in (DType.F16, DType.BF16) else tile


def zeros(shape: Sequence[int], dtype: DType = DType.F32) -> Tile:
    return full(shape, 0, dtype)


# --- changes of shape; the type stays


def broadcast(x: TileLike, shape: Sequence[int]) -> Tile:
    tile, sizes = lift(x, DType.F32), tuple(shape)
    if broadcast_shape(tile.shape, sizes) != sizes:
        raise refused(f"a tile of shape {list(tile.shape)} does not broadcast to {list(sizes)}")
    return tile if tile.shape == sizes else emit(Op.COPY, tile.dtype, sizes, (tile,))


def reshape(x: Tile, shape: Sequence[int]) -> Tile:
    """The same elements in row-major order; one size may be -1."""
    sizes = tuple(shape)
    if -1 in sizes:
        known = -math.prod(sizes)
        sizes = tuple(math.prod(x.shape) // known if size == -1 and known else size for size in sizes)
    if math.prod(sizes) != math.prod(x.shape) or -1 in sizes:
        raise refused(f"a tile of shape {list(x.shape)} has {math.prod(x.shape)} elements, not those of {list(shape)}")
    return x if sizes == x.shape else emit(Op.RESHAPE, x.dtype, sizes, (x,))


def transpose(x: Tile, permutation: Sequence[int]) -> Tile:
    """Dimension d of the result is dimension permutation[d] of `x`."""
    order = tuple(permutation)
    if sorted(order) != list(builtins.range(x.rank)):
        raise refused(f"{list(order)} is not a permutation of the {x.rank} dimensions of the tile")
    imm = builtins.sum(place << (2 * i) for i, place in enumerate(order))
    return emit(Op.TRANSPOSE, x.dtype, tuple(x.shape[d] for d in order), (x,), imm=imm)


def concat(tiles: Sequence[Tile], axis: int) -> Tile:
    """Tiles one after the other along `axis`."""
    out = tiles[0]
    position = _axis(out, axis)
    for tile in tiles[1:]:
        others = [shape[:position] + shape[position + 1 :] for shape in (out.shape, tile.shape)]
        if others[0] != others[1] or out.dtype is not tile.dtype:
            raise refused(f"concat along {axis} needs equal types and other sizes, got {out!r} and {tile!r}")
        shape = (*out.shape[:position], out.shape[position] + tile.shape[position], *out.shape[position + 1 :])
        out = emit(Op.CONCAT, out.dtype, shape, (out, tile), axis=position)
    return out


def take(x: Tile, rows: Tile) -> Tile:
    """out[r, ...] = x[rows[r], ...] within a tile; a row number outside gives zeros. rows: i32, rank 1."""
    if rows.dtype is not DType.I32 or rows.rank != 1:
        raise refused(f"take needs an i32 tile of rank 1 as rows, got {rows!r}")
    return emit(Op.TAKE, x.dtype, (rows.shape[0], *x.shape[1:]), (x, rows))


def _axis(x: Tile, axis: int) -> int:
    if not -x.rank <= axis < x.rank:
        raise refused(f"axis {axis} is not in a tile of shape {list(x.shape)}")
    return axis % x.rank
