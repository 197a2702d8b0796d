"""The Tile that kernel authors hold: operators, indexing and conversions over values of the trace."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from npuc.tile.affine import Affine
from npuc.tile.errors import KernelError, caller, refused
from npuc.tile.trace import Scalar, Value, Vector, current
from npuc.tile.types import MAX_RANK, register_type
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType

COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
LOGIC = (Op.AND, Op.OR, Op.XOR)
FLOAT_ONLY = (Op.DIV, Op.POW, Op.FMOD)


class Tile:
    """An immutable block of numbers of a static shape, rank <= 4. Arithmetic gives f32 (or i32, bool) tiles."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy scalars on the left leave the operation to this class

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def rank(self) -> int:
        return len(self.value.shape)

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The numbers (f32, i32 or bool), in eager execution only."""
        data: np.ndarray[Any, np.dtype[Any]] = current().data(self.value)
        return data

    def cast(self, dtype: DType) -> Tile:
        """The tile in another type: to f16 and bf16 it rounds to the grid; float to i32 truncates toward zero."""
        return cast(self, dtype)

    def __repr__(self) -> str:
        return f"Tile({self.dtype.label}[{', '.join(map(str, self.shape))}])"

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Tile:
        """A part of the tile: one slice with static bounds and step 1 for each of the first dimensions."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.rank or not all(isinstance(k, slice) and k.step in (None, 1) for k in keys):
            raise refused(f"a tile of rank {self.rank} takes up to {self.rank} slices of step 1, such as x[:, 0:4]")
        out = self
        for axis, part in enumerate(keys):
            start, stop, _ = part.indices(self.shape[axis])
            if (start, stop) != (0, self.shape[axis]):
                shape = (*out.shape[:axis], max(stop - start, 0), *out.shape[axis + 1 :])
                out = emit(Op.SLICE, out.dtype, shape, (out,), axis=axis, imm=start)
        return out

    def __add__(self, other: TileLike) -> Tile:
        return binary(Op.ADD, self, other)

    def __radd__(self, other: TileLike) -> Tile:
        return binary(Op.ADD, other, self)

    def __sub__(self, other: TileLike) -> Tile:
        return binary(Op.SUB, self, other)

    def __rsub__(self, other: TileLike) -> Tile:
        return binary(Op.SUB, other, self)

    def __mul__(self, other: TileLike) -> Tile:
        return binary(Op.MUL, self, other)

    def __rmul__(self, other: TileLike) -> Tile:
        return binary(Op.MUL, other, self)

    def __truediv__(self, other: TileLike) -> Tile:
        return binary(Op.DIV, self, other)

    def __rtruediv__(self, other: TileLike) -> Tile:
        return binary(Op.DIV, other, self)

    def __mod__(self, other: TileLike) -> Tile:
        return binary(Op.MOD, self, other)

    def __pow__(self, other: TileLike) -> Tile:
        return binary(Op.POW, self, other)

    def __neg__(self) -> Tile:
        return unary(Op.NEG, self)

    def __abs__(self) -> Tile:
        return unary(Op.ABS, self)

    def __and__(self, other: TileLike) -> Tile:
        return binary(Op.AND, self, other)

    def __or__(self, other: TileLike) -> Tile:
        return binary(Op.OR, self, other)

    def __xor__(self, other: TileLike) -> Tile:
        return binary(Op.XOR, self, other)

    def __invert__(self) -> Tile:
        return unary(Op.NOT, self)

    def __lt__(self, other: TileLike) -> Tile:
        return binary(Op.LT, self, other)

    def __le__(self, other: TileLike) -> Tile:
        return binary(Op.LE, self, other)

    def __gt__(self, other: TileLike) -> Tile:
        return binary(Op.GT, self, other)

    def __ge__(self, other: TileLike) -> Tile:
        return binary(Op.GE, self, other)

    def __eq__(self, other: TileLike) -> Tile:  # type: ignore[override]
        return binary(Op.EQ, self, other)

    def __ne__(self, other: TileLike) -> Tile:  # type: ignore[override]
        return binary(Op.NE, self, other)

    def __bool__(self) -> bool:
        raise refused("a tile has no truth value while the kernel is traced; use where(), or when() on t.step")

    def __index__(self) -> int:
        raise refused(
            "a tile is no number of Python's, such as a loop bound: its numbers are only known when the device runs; "
            "loop over the most turns there can be, each in a when(flag) block"
        )

    __int__ = __index__


TileLike = Tile | Affine | int | float | bool


def emit(
    op: Op, dtype: DType, shape: tuple[int, ...], args: tuple[Tile, ...] = (), *, axis: int = 0, imm: int = 0
) -> Tile:
    """One vector instruction and its result."""
    loc = caller()
    if len(shape) > MAX_RANK:
        raise KernelError(f"a tile of shape {list(shape)} has rank {len(shape)}; tiles have rank <= {MAX_RANK}", loc)
    if any(arg.dtype is DType.I64 for arg in args):
        raise KernelError(f"i64 tiles are only loaded and stored, there is no {op.name.lower()} of them", loc)
    executor = current()
    out = executor.value(dtype, shape)
    executor.emit(Vector(out, op, tuple(arg.value for arg in args), axis, imm, loc))
    return Tile(out)


def constant(value: float, dtype: DType, shape: tuple[int, ...] = ()) -> Tile:
    """An f32, i32 or bool tile that holds one number everywhere."""
    if dtype is DType.F32:
        return emit(Op.CONST, dtype, shape, imm=int(np.float32(value).view(np.uint32)))
    if not -(2**31) <= int(value) < 2**31 or dtype not in (DType.I32, DType.BOOL):
        raise refused(f"the number {value} does not fit a tile of {dtype.label}")
    return emit(Op.CONST, dtype, shape, imm=int(value) & 0xFFFFFFFF)


def scalar(value: Affine) -> Tile:
    """An i32 tile of shape [] that holds an expression of program ids and step fields."""
    executor = current()
    out = executor.value(DType.I32, ())
    executor.emit(Scalar(out, value, caller()))
    return Tile(out)


def lift(value: TileLike, like: DType) -> Tile:
    """`value` as a tile; plain numbers take the register type of `like`."""
    if isinstance(value, Tile):
        return value
    register = register_type(like)
    if isinstance(value, Affine):
        return cast(scalar(value), DType.F32) if register is DType.F32 else scalar(value)
    if isinstance(value, (float, np.floating)) and register is not DType.F32:
        raise refused(f"the number {value} does not fit a tile of {like.label}; cast the tile to f32 first")
    if not isinstance(value, (bool, int, float, np.number, np.bool_)):
        raise refused(f"expected a tile or a number, got {type(value).__name__}")
    return constant(float(value) if register is DType.F32 else int(value), register)


@overload
def common(a: TileLike, b: TileLike) -> tuple[Tile, Tile]: ...
@overload
def common(a: TileLike, b: TileLike, default: DType) -> tuple[Tile, Tile]: ...
def common(a: TileLike, b: TileLike, default: DType = DType.F32) -> tuple[Tile, Tile]:
    """Two operands as tiles of one register type; two plain numbers take `default`."""
    like = a.dtype if isinstance(a, Tile) else b.dtype if isinstance(b, Tile) else default
    first, second = lift(a, like), lift(b, like)
    if register_type(first.dtype) is not register_type(second.dtype):
        raise refused(
            f"operands of {first.dtype.label} and {second.dtype.label} do not mix; "
            f"cast one of them: .cast(t.{like.label})"
        )
    return first, second


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The NumPy broadcast of shapes."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        texts = " and ".join(str(list(shape)) for shape in shapes)
        raise refused(f"shapes {texts} do not broadcast: from the right, sizes must be equal or 1") from None


def binary(op: Op, a: TileLike, b: TileLike) -> Tile:
    """An elementwise operation of two operands."""
    first, second = common(a, b)
    register = register_type(first.dtype)
    if op in LOGIC and register is not DType.BOOL:
        raise refused(f"{op.name.lower()} takes bool tiles, got {first.dtype.label}; compare first, as in x > 0")
    if register is DType.BOOL and op not in LOGIC and op not in (Op.EQ, Op.NE):
        raise refused(f"{op.name.lower()} takes numbers, got bool; cast first: .cast(t.f32) or .cast(t.i32)")
    dtype = DType.BOOL if op in COMPARISONS else register
    return emit(op, dtype, broadcast_shape(first.shape, second.shape), (first, second))


def unary(op: Op, x: Tile) -> Tile:
    """An elementwise operation of one operand; those that only floats have convert nothing by themselves."""
    if not isinstance(x, Tile):
        raise refused(f"{op.name.lower()} takes a tile, got {type(x).__name__}")
    register = register_type(x.dtype)
    wanted = (
        (DType.BOOL,) if op is Op.NOT else (DType.F32, DType.I32) if op in (Op.NEG, Op.ABS, Op.SIGN) else (DType.F32,)
    )
    if register not in wanted:
        names = " or ".join(dtype.label for dtype in wanted)
        raise refused(f"{op.name.lower()} takes {names}, got {x.dtype.label}; cast first: .cast(t.{wanted[0].label})")
    return emit(op, DType.BOOL if op in (Op.ISNAN, Op.ISINF) else register, x.shape, (x,))


def cast(x: Tile, dtype: DType) -> Tile:
    """See Tile.cast. Types that only memory has (i8, u8, i64) are made by storing into an array of that type."""
    if not isinstance(x, Tile):
        raise refused(f"cast takes a tile, got {type(x).__name__}")
    if dtype is x.dtype:
        return x
    if dtype not in (DType.F32, DType.F16, DType.BF16, DType.I32, DType.BOOL):
        raise refused(f"a tile cannot be cast to {dtype.label}; store it into an array of {dtype.label}")
    if dtype in (DType.F16, DType.BF16):
        wide = x if register_type(x.dtype) is DType.F32 else emit(Op.CAST, DType.F32, x.shape, (x,))
        return emit(Op.ROUND_F16 if dtype is DType.F16 else Op.ROUND_BF16, dtype, x.shape, (wide,))
    return emit(Op.CAST, dtype, x.shape, (x,))
