"""The intermediate form of a kernel: typed operations on values, each with the author's source line.

A value is written once. Arrays are memory: the kernel's arguments, and local on-chip arrays (scratch, accumulators).
An executor receives the operations: `npuc.tile.record` keeps them for the compiler, `npuc.tile.eager` computes them at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from npuc.tile.affine import Affine, Condition, Index
from npuc.tile.errors import Loc, refused
from npuc.tile.types import ArrayType
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType


@dataclass(frozen=True, slots=True)
class Value:
    """A tile of a static shape. dtype f16, bf16, i8 or u8 says that the value lies on that type's grid."""

    id: int
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """An array: argument number `slot` of the kernel, or local array number `slot`."""

    type: ArrayType
    slot: int
    local: bool
    loc: Loc | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """out <- the part of `memory` that starts at `index`. valid: runtime extent of `axis`, zeros beyond it."""

    out: Value
    memory: Memory
    index: tuple[Affine, ...]
    axis: int
    valid: Affine | None
    loc: Loc


@dataclass(frozen=True, slots=True)
class Store:
    """The part of `memory` that starts at `index` <- value, rounded to the array's type; rows past `valid` are kept."""

    value: Value
    memory: Memory
    index: tuple[Affine, ...]
    axis: int
    valid: Affine | None
    loc: Loc


@dataclass(frozen=True, slots=True)
class Gather:
    """out <- the part of `memory` at `index`, whose index r of dimension `axis` is the array's rows[r].

    A row number outside the array gives zeros. rows: i32, of as many elements as out has along `axis`.
    """

    out: Value
    memory: Memory
    rows: Value
    axis: int
    index: tuple[Affine, ...]
    loc: Loc


@dataclass(frozen=True, slots=True)
class Scatter:
    """The part of `memory` at `index`, whose index r of dimension `axis` is the array's rows[r], <- value.

    A row number outside the array is skipped; of equal ones the last stays.
    """

    value: Value
    memory: Memory
    rows: Value
    axis: int
    index: tuple[Affine, ...]
    loc: Loc


@dataclass(frozen=True, slots=True)
class Mma:
    """[batch?, m, n] <- a [batch?, m, k] x b [batch?, n, k] (b_kn: [k, n]); into `out`, or added to the array `acc`.

    codes, zero, scales, group: of `mma_scaled`, as in npuc.tasks.MmaOp; b is then a tile of bytes [n, bytes].
    """

    out: Value | None
    a: Value
    b: Value
    acc: Memory | None
    accumulate: bool
    table: Value | None
    scale: float
    clamp: tuple[float, float] | None
    b_kn: bool
    loc: Loc
    codes: DType | None = None
    zero: int = 0
    scales: Value | None = None
    group: int = 0


@dataclass(frozen=True, slots=True)
class Fill:
    """Every element of a local array <- value."""

    memory: Memory
    value: float
    loc: Loc


@dataclass(frozen=True, slots=True)
class Vector:
    """One instruction of the SHAVE bytecode. imm: as the bytecode reads it (bits, permutation, start index)."""

    out: Value
    op: Op
    args: tuple[Value, ...]
    axis: int
    imm: int
    loc: Loc


@dataclass(frozen=True, slots=True)
class Scalar:
    """out (i32, shape []) <- an affine expression of program ids and step fields."""

    out: Value
    value: Affine
    loc: Loc


@dataclass(frozen=True, slots=True)
class EndRun:
    """Vector code behind this belongs to another run than the code before it."""

    loc: Loc


TraceOp = Load | Store | Gather | Scatter | Mma | Fill | Vector | Scalar | EndRun


@dataclass(frozen=True, slots=True, eq=False)
class FlagCondition:
    """The i32 tile `flag` of one element is other than 0 (is 0: not taken) when the block is reached."""

    flag: Value
    taken: bool


AnyCondition = Condition | FlagCondition


@dataclass(frozen=True, slots=True)
class Recorded:
    """An operation with the condition under which it acts."""

    op: TraceOp
    when: AnyCondition | None


class Executor(Protocol):
    """Who receives the operations of a kernel while its function runs."""

    grid: tuple[int, ...] | None  # as programs() was told, None before

    @property
    def started(self) -> bool: ...  # whether anything has been loaded or computed
    def programs(self, extents: tuple[int, ...]) -> tuple[Index, ...]: ...
    def step(self, field: str) -> Index: ...
    def value(self, dtype: DType, shape: tuple[int, ...]) -> Value: ...
    def allocate(self, type_: ArrayType, loc: Loc) -> Memory: ...
    def emit(self, op: TraceOp) -> None: ...
    @property
    def predicated(self) -> bool: ...
    def predicate(self, condition: AnyCondition) -> AbstractContextManager[None]: ...
    def data(self, value: Value) -> Any: ...


_CURRENT: ContextVar[Executor] = ContextVar("npuc.tile executor")


def current() -> Executor:
    """The executor of the kernel that is running in this context."""
    executor = _CURRENT.get(None)
    if executor is None:
        raise refused("tile functions work only inside a kernel that is being traced or run")
    return executor


@contextmanager
def executing(executor: Executor) -> Iterator[None]:
    """Makes `executor` the current one for the block."""
    token = _CURRENT.set(executor)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def operands(op: TraceOp) -> Sequence[Value]:
    """The values that an operation reads."""
    match op:
        case Store(value=value):
            return (value,)
        case Gather(rows=rows):
            return (rows,)
        case Scatter(value=value, rows=rows):
            return (value, rows)
        case Mma(a=a, b=b, table=table, scales=scales):
            return (a, b, *(value for value in (table, scales) if value is not None))
        case Vector(args=args):
            return args
    return ()


def touched(op: TraceOp) -> Memory | None:
    """The array that an operation reads or writes."""
    match op:
        case Load(memory=memory) | Store(memory=memory) | Gather(memory=memory) | Scatter(memory=memory):
            return memory
        case Fill(memory=memory):
            return memory
        case Mma(acc=acc):
            return acc
    return None
