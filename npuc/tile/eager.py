"""Eager execution: a kernel runs as plain Python on NumPy arrays, so that print and a debugger work.

Vector operations run on the device's own SHAVE machine, one instruction at a time; products and conversions use
npurt.numerics. So eager results are the device's, bit for bit, in exact mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice, product
from typing import Any

import numpy as np

from npuc.tile.affine import Affine, Index
from npuc.tile.arrays import Array
from npuc.tile.errors import KernelError, Loc, author_faults, refused
from npuc.tile.fragment import add_instruction
from npuc.tile.trace import (
    AnyCondition,
    Fill,
    FlagCondition,
    Gather,
    Load,
    Memory,
    Mma,
    Scalar,
    Scatter,
    Store,
    TraceOp,
    Value,
    Vector,
    executing,
)
from npuc.tile.types import ArrayType, register_type
from npuc.tile.watch import Watch
from npurt import numerics
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave import Prepared, ProgramBuilder, parse, prepare

NDArray = np.ndarray[Any, np.dtype[Any]]

_TYPES = {
    "float32": DType.F32, "float16": DType.F16, "uint16": DType.BF16, "int32": DType.I32, "int8": DType.I8,
    "uint8": DType.U8, "bool": DType.BOOL, "int64": DType.I64,
}  # fmt: skip


def run(
    function: Callable[..., None],
    arrays: Sequence[NDArray | None],
    params: Mapping[str, Any],
    step: Mapping[str, int],
) -> None:
    """Runs all programs of a kernel in grid order."""
    handles = [None if a is None else Array(Memory(array_type(a), slot, False)) for slot, a in enumerate(arrays)]
    storage = [None if a is None else a.view(np.uint8) if a.dtype == np.bool_ else a for a in arrays]

    def body() -> None:
        with author_faults():
            function(*handles, **params)

    first = EagerExecutor(storage, None, step)
    try:
        with executing(first):
            body()
    except EmptyGrid:
        return
    for pids in islice(product(*map(range, first.grid or ())), 1, None):
        with executing(EagerExecutor(storage, pids, step)):
            body()


def array_type(array: NDArray) -> ArrayType:
    """The type of a NumPy array as a kernel argument; uint16 stands for bf16."""
    if array.dtype.name not in _TYPES:
        raise KernelError(f"no device type for a NumPy array of {array.dtype}; known: {', '.join(_TYPES)}")
    return ArrayType(_TYPES[array.dtype.name], array.shape, array.strides)


class EmptyGrid(Exception):
    """The kernel asked for a grid without programs."""


class EagerExecutor:
    """One program, the first where pids is None. Values are f32, i32 or bool arrays; local arrays start as NaN."""

    def __init__(self, arrays: Sequence[NDArray | None], pids: tuple[int, ...] | None, step: Mapping[str, int]) -> None:
        self.grid: tuple[int, ...] | None = None
        self._arrays, self._pids, self._step = arrays, pids or (), step
        self._locals: list[NDArray] = []
        self._values: dict[int, NDArray] = {}
        self._count = 0
        self._watch = Watch()
        self._acts = True
        self._predicated = False

    def programs(self, extents: tuple[int, ...]) -> tuple[Index, ...]:
        self.grid = extents
        if 0 in extents:
            raise EmptyGrid
        self._pids = self._pids or (0,) * len(extents)
        return self._pids

    @property
    def started(self) -> bool:
        return bool(self._count or self._locals)

    def step(self, field: str) -> Index:
        if field not in self._step:
            raise refused(f"the kernel reads step.{field}; pass it: kernel.eager(..., step={{'{field}': 0}})")
        return Affine(0, ((field, 1),))

    def value(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        self._count += 1
        return Value(self._count - 1, dtype, shape)

    def allocate(self, type_: ArrayType, loc: Loc) -> Memory:
        raw = np.full(type_.elements * type_.dtype.nbytes, 0xFF, np.uint8)  # NaN in every float type
        self._locals.append(raw.view(type_.dtype.storage).reshape(type_.shape))
        return Memory(type_, len(self._locals) - 1, True, loc)

    def data(self, value: Value) -> NDArray:
        return self._values[value.id]

    @property
    def predicated(self) -> bool:
        return self._predicated

    @contextmanager
    def predicate(self, condition: AnyCondition) -> Iterator[None]:
        """The block always runs in Python; where the condition fails, what it stores and adds is dropped."""
        if isinstance(condition, FlagCondition):
            self._acts = bool(self._values[condition.flag.id].any()) == condition.taken
        else:
            self._acts = condition.holds(self._pids, self._step)
        self._predicated = True
        yield
        self._acts, self._predicated = True, False

    def emit(self, op: TraceOp) -> None:
        self._watch.see(op)
        match op:
            case Load():
                self._values[op.out.id] = self._load(op)
            case Store():
                self._store(op)
            case Gather():
                self._values[op.out.id] = self._gather(op)
            case Scatter():
                self._scatter(op)
            case Mma():
                self._mma(op)
            case Fill():
                if self._acts:
                    self._memory(op.memory)[...] = op.value
            case Scalar():
                self._values[op.out.id] = np.array(op.value.at(self._pids, self._step), np.int32)
            case Vector():
                self._values[op.out.id] = evaluate(op, [self._values[arg.id] for arg in op.args])

    def _memory(self, memory: Memory) -> NDArray:
        array = self._locals[memory.slot] if memory.local else self._arrays[memory.slot]
        assert array is not None  # an absent array has no handle that a kernel could use
        return array

    def _part(self, op: Load | Store, shape: tuple[int, ...]) -> tuple[NDArray, int]:
        """The memory that a transfer may touch, and its valid extent along op.axis."""
        extent = shape[op.axis] if shape else 0
        if op.valid is not None:
            extent = min(max(op.valid.at(self._pids, self._step), 0), extent)
        sizes = [extent if d == op.axis else size for d, size in enumerate(shape)]
        starts = [first.at(self._pids, self._step) for first in op.index]
        array = self._memory(op.memory)
        for d, (start, size, limit) in enumerate(zip(starts, sizes, array.shape, strict=True)):
            if start + size > limit and self._acts:
                raise KernelError(f"rows {start} to {start + size} leave dimension {d} of {op.memory.type}", op.loc)
        return array[tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))], extent

    def _load(self, op: Load) -> NDArray:
        part, _ = self._part(op, op.out.shape)
        whole = np.zeros(op.out.shape, numerics.COMPUTE[op.out.dtype])
        whole[tuple(slice(0, size) for size in part.shape)] = numerics.load(part, op.out.dtype)
        return whole

    def _store(self, op: Store) -> None:
        part, extent = self._part(op, op.value.shape)
        values = self._values[op.value.id]
        if self._acts:
            kept = values[(slice(None),) * op.axis + (slice(0, extent),)] if op.value.shape else values
            part[...] = numerics.store(kept, op.memory.type.dtype)

    def _rows(self, op: Gather | Scatter, shape: tuple[int, ...]) -> tuple[NDArray, NDArray, NDArray]:
        """The part of the array with all its rows, row numbers [n], and which of them exist [n]; rows come first."""
        starts = [first.at(self._pids) for first in op.index]
        part = tuple(
            slice(None) if d == op.axis else slice(start, start + size)
            for d, (start, size) in enumerate(zip(starts, shape, strict=True))
        )
        table = np.moveaxis(self._memory(op.memory)[part], op.axis, 0)
        rows = self._values[op.rows.id].reshape(-1)
        return table, rows, (rows >= 0) & (rows < table.shape[0])

    def _gather(self, op: Gather) -> NDArray:
        table, rows, inside = self._rows(op, op.out.shape)
        out = np.zeros(op.out.shape, numerics.COMPUTE[op.out.dtype])
        np.moveaxis(out, op.axis, 0)[inside] = numerics.load(table[rows[inside]], op.out.dtype)
        return out

    def _scatter(self, op: Scatter) -> None:
        table, rows, inside = self._rows(op, op.value.shape)
        values = np.moveaxis(numerics.store(self._values[op.value.id], op.memory.type.dtype), op.axis, 0)
        for place in np.flatnonzero(inside) if self._acts else ():
            table[rows[place]] = values[place]

    def _mma(self, op: Mma) -> None:
        table = None if op.table is None else self._values[op.table.id]
        scales = None if op.scales is None else self._values[op.scales.id]
        result = product_of(self._values[op.a.id], self._values[op.b.id], op, table, scales)
        if op.out is not None:
            self._values[op.out.id] = result
        elif self._acts:
            assert op.acc is not None
            destination = self._memory(op.acc)
            destination[...] = destination + result if op.accumulate else result


def product_of(a: NDArray, b: NDArray, op: Mma, table: NDArray | None, scales: NDArray | None) -> NDArray:
    """What the DPU computes before it stores: clamp(table(scale * exact sum)), each step rounded to f32."""
    if op.codes is not None:
        numbers = numerics.unpack(b, op.codes)
        b = numbers.astype(np.float64) - op.zero if a.dtype.kind == "f" else numbers - np.int32(op.zero)
    if scales is not None:
        return numerics.mma_scaled(a, b, scales, op.group or max(a.shape[-1], 1))
    result: NDArray = numerics.mma_exact(a, b, op.b_kn)
    if result.dtype != np.float32:
        return numerics.store(result, DType.I32)
    with np.errstate(all="ignore"):
        if op.scale != 1.0:
            result = result * np.float32(op.scale)
        if table is not None:
            result = result * table[:, 0] + table[:, 1]
        if op.clamp is not None:
            result = np.clip(result, np.float32(op.clamp[0]), np.float32(op.clamp[1]))
    return result


def evaluate(op: Vector, operands: Sequence[NDArray]) -> NDArray:
    """One vector operation on the SHAVE machine."""
    out = np.empty(op.out.shape, register_type(op.out.dtype).storage)
    pointers = [(_bytes(np.ascontiguousarray(x)), 0) for x in operands] + [(_bytes(out), 0)]
    _single(op.op, op.out.dtype, op.out.shape, tuple(arg.dtype for arg in op.args), tuple(arg.shape for arg in op.args),
            op.axis, op.imm).bind(pointers)()  # fmt: skip
    return out.view(np.bool_) if op.out.dtype is DType.BOOL else out


def _bytes(array: NDArray) -> NDArray:
    return array.reshape(-1).view(np.uint8)


@lru_cache(maxsize=4096)
def _single(
    op: Op, dtype: DType, shape: tuple[int, ...], types: tuple[DType, ...], shapes: tuple[tuple[int, ...], ...],
    axis: int, imm: int,
) -> Prepared:  # fmt: skip
    """The program that loads the operands, does one instruction and stores its result."""
    values = tuple(Value(number, *operand) for number, operand in enumerate(zip(types, shapes, strict=True)))
    vector = Vector(Value(len(values), dtype, shape), op, values, axis, imm, Loc("", 0, 1, 1))
    program = ProgramBuilder()
    args = [program.arg(ArgMode.IN, register_type(value.dtype), value.shape) for value in values]
    out = program.arg(ArgMode.OUT, register_type(dtype), shape)
    program.store(out, add_instruction(program, vector, [program.load(arg) for arg in args]))
    return prepare(parse(program.bytes()))
