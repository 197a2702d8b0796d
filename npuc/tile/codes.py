"""Codes of a few bits in the tile language: unpacking, dequantising, and products with them."""

from __future__ import annotations

from npuc.tile.arrays import Accumulator
from npuc.tile.errors import KernelError, Loc, caller, refused
from npuc.tile.tile import Tile, TileLike, cast, emit
from npuc.tile.trace import Memory, Mma, Value, current
from npuc.tile.types import register_type
from npuc.tile.vector import concat, reshape
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.numerics import elements

WIDENED = (DType.I4, DType.U4, DType.U2, DType.E2M1, DType.I8, DType.U8)
"""Types of codes that a matrix engine may widen on the way in; the target file says which ones it does."""
SCALES = (DType.F32, DType.F16, DType.BF16, DType.E8M0, DType.E4M3)


def unpack(data: Tile, dtype: DType) -> Tile:
    """The elements of `dtype` that the bytes of a u8 tile hold along its last axis, low bits first.

    Integers of less than a byte give an i32 tile, floats of less than a byte f32, others a tile of their type. Elements
    of whole bytes are another view of the same memory where the bytes have a place there.
    """
    if data.dtype is not DType.U8 or not data.rank:
        raise refused(f"unpack takes a u8 tile of bytes, got {data!r}")
    if dtype in (DType.BOOL, DType.I64):
        raise refused(f"no bytes unpack to {dtype.label}; load an array of that type")
    count = elements(data.shape[-1], dtype)
    if count is None:
        raise refused(f"{data.shape[-1]} bytes are no whole number of {dtype.label} elements of {dtype.nbytes} bytes")
    made = dtype if not dtype.packed else DType.F32 if dtype.is_float else DType.I32
    return emit(Op.UNPACK, made, (*data.shape[:-1], count), (data,), imm=int(dtype))


def dequant(codes: Tile, dtype: DType, scale: TileLike, *, zero: TileLike | None = None, group: int = 0) -> Tile:
    """f32 numbers (code - zero) * scale of codes [.., K] of `dtype`, or of the u8 bytes that hold them.

    scale, zero: a number, or a tile that broadcasts against [.., groups]; group: codes along the last axis that share
    one (0: all). The last group may be short. Vector code: a product with codes is cheaper by `mma_scaled`.
    """
    packed = codes.dtype is DType.U8 and dtype is not DType.U8
    numbers = cast(unpack(codes, dtype) if packed else codes, DType.F32)
    k = numbers.shape[-1]
    size = group or k
    count = -(-k // size) if size else 0
    for name, given in (("scale", scale), ("zero", zero)):
        if isinstance(given, Tile) and (not given.rank or given.shape[-1] not in (1, count)):
            raise refused(
                f"{name} {list(given.shape)} must have {count} columns, one for each group of {size} of {k} codes"
            )
    whole = k - k % size if size else 0
    parts = [_scaled(_columns(numbers, 0, whole), scale, zero, size, 0)] if whole else []
    if k > whole:
        parts.append(_scaled(_columns(numbers, whole, k), scale, zero, k - whole, whole // size))
    return concat(parts, -1) if parts else numbers


def _scaled(numbers: Tile, scale: TileLike, zero: TileLike | None, size: int, first: int) -> Tile:
    """Groups of one size, of which the first is number `first`."""
    shape = numbers.shape
    groups = shape[-1] // size
    split = reshape(numbers, (*shape[:-1], groups, size)) if groups > 1 else numbers

    def spread(given: TileLike) -> TileLike:
        if not isinstance(given, Tile):
            return given
        wide = cast(given, DType.F32)
        part = wide if wide.shape[-1] == 1 else _columns(wide, first, first + groups)
        return reshape(part, (*part.shape, 1)) if groups > 1 else part

    shifted = split if zero is None else split - spread(zero)
    result = shifted * spread(scale)
    return reshape(result, shape) if groups > 1 else result


def _columns(tile: Tile, first: int, last: int) -> Tile:
    """A part of the last axis."""
    return tile[(*(slice(None),) * (tile.rank - 1), slice(first, last))]


def mma_scaled(
    a: Tile,
    b: Tile,
    scale: Tile | None,
    *,
    dtype: DType,
    group: int = 0,
    zero: int = 0,
    a_scale: Tile | None = None,
    acc: Accumulator | None = None,
) -> Tile:
    """Product of a [m, k] and codes b [n, k] with a scale for each `group` of k (0: one for all) of each channel.

    b: u8 bytes [n, bytes], whose codes are of `dtype`; code x stands for number(x) - zero. scale: [n, groups], or None
    for the plain product. The sum over a group is exact, then times its scale, and groups are added in order, each step
    rounded to f32. a_scale: f32 [m, groups], scales of a; each group then passes through vector code. acc: as in mma.
    """
    loc = caller()
    size = group or max(a.shape[-1], 1)
    _check(a, b, scale, dtype, size, zero, loc)
    if a_scale is not None and scale is not None:
        return _both_scaled(a, b, scale, dtype, size, zero, a_scale, acc, loc)
    shape = (a.shape[0], b.shape[0])
    executor = current()
    scales = None if scale is None else scale.value
    shared = size if size < a.shape[-1] else 0

    def operation(out: Value | None, memory: Memory | None, adds: bool) -> Mma:
        return Mma(out, a.value, b.value, memory, adds, None, 1.0, None, False, loc, dtype, zero, scales, shared)

    if acc is None:
        whole = scale is None and not a.dtype.is_float
        out = executor.value(DType.I32 if whole else DType.F32, shape)
        executor.emit(operation(out, None, False))
        return Tile(out)
    if acc.shape != shape:
        raise KernelError(f"the product has shape {list(shape)}, the accumulator {list(acc.shape)}", loc)
    if not acc.started and executor.predicated:
        raise KernelError(
            "the first mma of this accumulator may be skipped by when(); give accumulator(..., init=0)", loc
        )
    executor.emit(operation(None, acc.array.memory, acc.started))
    acc.started = True
    return acc.read()


def _check(a: Tile, b: Tile, scale: Tile | None, dtype: DType, size: int, zero: int, loc: Loc) -> None:
    if a.rank != 2 or b.rank != 2 or b.dtype is not DType.U8:
        raise KernelError(f"mma_scaled takes a [m, k] and u8 bytes [n, bytes], got {a!r} and {b!r}", loc)
    if dtype not in (*WIDENED, DType.E4M3, DType.E5M2):
        raise KernelError(f"mma_scaled takes codes of i4, u4, u2, e2m1, i8, u8, e4m3 or e5m2, not {dtype.label}", loc)
    k, groups = a.shape[1], -(-a.shape[1] // size)
    if k * dtype.bits % 8:
        raise KernelError(f"{k} codes of {dtype.label} end within a byte; give k a multiple of {8 // dtype.bits}", loc)
    if b.shape[1] != k * dtype.bits // 8:
        raise KernelError(
            f"mma_scaled sums over k: a {list(a.shape)} has {k}, {b.shape[1]} bytes of b {list(b.shape)} hold "
            f"{b.shape[1] * 8 // dtype.bits} codes of {dtype.label}",
            loc,
        )
    if scale is None and groups > 1:
        raise KernelError(f"groups of {size} of k = {k} need a scale for each", loc)
    if scale is not None and scale.shape != (b.shape[0], groups):
        raise KernelError(
            f"scale {list(scale.shape)} must be [{b.shape[0]}, {groups}]: one for each channel of b and each group of "
            f"{size} of k = {k}",
            loc,
        )
    if scale is not None and scale.dtype not in SCALES:
        raise KernelError(f"scales are f32, f16, bf16, e8m0 or e4m3, not {scale.dtype.label}", loc)
    if zero and (dtype.is_float or not -128 <= zero <= 255):
        raise KernelError(f"zero {zero} is no code of {dtype.label}; only integer codes have a zero point", loc)
    if register_type(a.dtype) is DType.BOOL or (dtype.is_float and not a.dtype.is_float):
        raise KernelError(f"mma_scaled of {a.dtype.label} and {dtype.label} codes: cast a to a float", loc)


def _both_scaled(
    a: Tile, b: Tile, scale: Tile, dtype: DType, size: int, zero: int, a_scale: Tile, acc: Accumulator | None, loc: Loc
) -> Tile:
    """Scales on both sides: each group's product is scaled by vector code and added there."""
    k, groups = a.shape[1], -(-a.shape[1] // size)
    if a_scale.shape != (a.shape[0], groups):
        raise KernelError(f"a_scale {list(a_scale.shape)} must be [{a.shape[0]}, {groups}], one for each row and group",
                          loc)  # fmt: skip
    if acc is not None:
        raise KernelError("a product with a_scale is added by vector code: use +, not acc", loc)
    if size * dtype.bits % 8:
        raise KernelError(f"groups of {size} codes of {dtype.label} end within a byte", loc)
    total: Tile | None = None
    for number in range(groups):
        first, last = number * size, min(k, number * size + size)
        columns = b[:, first * dtype.bits // 8 : last * dtype.bits // 8]
        part = mma_scaled(a[:, first:last], columns, scale[:, number : number + 1], dtype=dtype, zero=zero)
        part = part * cast(a_scale[:, number : number + 1], DType.F32)
        total = part if total is None else total + part
    assert total is not None
    return total
