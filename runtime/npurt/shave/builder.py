"""Writes the bytes of a SHAVE program from typed calls.

    b = ProgramBuilder()
    x = b.arg(ArgMode.IN, DType.F16, (16, 64))
    y = b.arg(ArgMode.OUT, DType.F16, (16, 64))
    v = b.load(x)
    s = b.reduce(Op.SUM, b.op(Op.MUL, v, v), axis=1)
    b.store(y, b.op(Op.MUL, v, b.op(Op.RSQRT, s)))
    code = b.bytes()

Every call derives the type and shape of its result from the opcode's rule and returns the register. A call that the
verifier would refuse raises BytecodeError at once, so `bytes()` is always a program that verifies (but for the caps on
size and work, which only the verifier knows).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npurt.abi.bytecode import ARG, HEADER, INSTRUCTION, MAGIC, REGISTER, ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.abi.rows import fill
from npurt.errors import BytecodeError
from npurt.numerics.packed import elements
from npurt.shave.rules import LETTER, RULES, expected_shape, pack_permutation, register_type, unpacked_type

_TYPE = {letter: dtype for dtype, letter in LETTER.items()}


@dataclass(frozen=True)
class Register:
    """A value of the program under construction. shape: elements; dtype: F32, I32 or BOOL."""

    index: int
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Arg:
    """An argument of the program under construction, in the order of the records that call it."""

    index: int
    mode: ArgMode
    dtype: DType
    shape: tuple[int, ...]


@dataclass
class ProgramBuilder:
    """A program under construction. trip: how often the instruction list runs."""

    trip: int = 1
    _args: list[tuple[Any, ...]] = field(default_factory=list)
    _registers: list[Register] = field(default_factory=list)
    _instructions: list[tuple[int, ...]] = field(default_factory=list)

    def arg(
        self,
        mode: ArgMode,
        dtype: DType,
        shape: tuple[int, ...],
        stride: tuple[int, ...] | None = None,
        step: int = 0,
    ) -> Arg:
        """A pointer argument: a view of `shape` elements, moved `step` bytes on each pass.

        stride: bytes, None for row-major without gaps.
        """
        if stride is None:
            stride = contiguous(shape, dtype.nbytes)
        if len(shape) > 4 or len(stride) != len(shape):
            raise BytecodeError(
                f"argument {len(self._args)}: shape {list(shape)} and stride {list(stride)}, rank 4 at most"
            )
        pad = (0,) * (4 - len(shape))
        self._args.append((mode, dtype, len(shape), 0, 0, shape + pad, stride + pad, step))
        return Arg(len(self._args) - 1, mode, dtype, shape)

    def scalar_arg(self) -> Arg:
        """An int32 argument: a number of the call's record or a field of the step block."""
        return self.arg(ArgMode.SCALAR, DType.I32, ())

    def load(self, arg: Arg) -> Register:
        """The argument's view, widened to f32, i32 or bool."""
        dtype = register_type(arg.dtype)
        if dtype is None:
            raise BytecodeError(f"LOAD of argument {arg.index}: no kernel computes with {arg.dtype.label}")
        return self._emit(Op.LOAD, dtype, arg.shape, (arg.index,))

    def store(self, arg: Arg, value: Register) -> None:
        """Rounds the register into the argument's view; types of one family, shapes equal."""
        if register_type(arg.dtype) is not value.dtype or arg.shape != value.shape:
            raise BytecodeError(
                f"STORE of {_text(value)} into argument {arg.index}, {arg.dtype.label}{list(arg.shape)}: "
                "cast and broadcast the value first"
            )
        self._instructions.append((Op.STORE, 0, 0, arg.index, value.index, 0, 0))

    def scalar(self, arg: Arg) -> Register:
        """The value of a scalar argument, an i32 of shape []."""
        return self._emit(Op.SCALAR, DType.I32, (), (arg.index,))

    def const(self, value: float, dtype: DType, shape: tuple[int, ...] = ()) -> Register:
        """`value` everywhere; dtype F32, I32 or BOOL."""
        bits = np.array(value, np.float32 if dtype is DType.F32 else np.int32).view(np.uint32)
        return self._emit(Op.CONST, dtype, shape, imm=int(bits))

    def iota(self, shape: tuple[int, ...], axis: int) -> Register:
        """i32 index along `axis`."""
        return self._emit(Op.IOTA, DType.I32, shape, axis=axis)

    def op(self, op: Op, *operands: Register) -> Register:
        """An elementwise operation; dst has the operands' broadcast shape. For CAST see `cast`."""
        return self._emit(op, self._result_type(op, operands), _broadcast(op, operands), _indices(operands), operands)

    def cast(self, value: Register, dtype: DType) -> Register:
        """Converts to F32, I32 or BOOL."""
        return self._emit(Op.CAST, dtype, value.shape, (value.index,), (value,))

    def copy(self, value: Register, shape: tuple[int, ...]) -> Register:
        """`value` broadcast to `shape`."""
        return self._emit(Op.COPY, value.dtype, shape, (value.index,), (value,))

    def reshape(self, value: Register, shape: tuple[int, ...]) -> Register:
        """The same elements in row-major order."""
        return self._emit(Op.RESHAPE, value.dtype, shape, (value.index,), (value,))

    def transpose(self, value: Register, axes: tuple[int, ...]) -> Register:
        """dst axis i is operand axis axes[i]."""
        shape = tuple(value.shape[axis] for axis in axes)
        return self._emit(Op.TRANSPOSE, value.dtype, shape, (value.index,), (value,), imm=pack_permutation(axes))

    def slice(self, value: Register, axis: int, start: int, extent: int) -> Register:
        """`extent` indices of `axis`, from `start`."""
        shape = (*value.shape[:axis], extent, *value.shape[axis + 1 :])
        return self._emit(Op.SLICE, value.dtype, shape, (value.index,), (value,), axis, start)

    def concat(self, first: Register, second: Register, axis: int) -> Register:
        """first, then second along `axis`."""
        extent = first.shape[axis] + second.shape[axis]
        shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
        return self._emit(Op.CONCAT, first.dtype, shape, _indices((first, second)), (first, second), axis)

    def take(self, table: Register, index: Register) -> Register:
        """Rows of `table` by an i32 vector; a row outside is zero."""
        shape = (*index.shape, *table.shape[1:])
        return self._emit(Op.TAKE, table.dtype, shape, _indices((table, index)), (table, index))

    def unpack(self, value: Register, dtype: DType) -> Register:
        """The elements of `dtype` in bytes (i32, the last axis), widened."""
        made, count = unpacked_type(dtype), elements(value.shape[-1], dtype) if value.shape else None
        if made is None or count is None:
            raise BytecodeError(f"UNPACK of {_text(value)} as {dtype.label}: no whole number of elements it can widen")
        return self._emit(Op.UNPACK, made, (*value.shape[:-1], count), (value.index,), (value,), imm=int(dtype))

    def topk(self, op: Op, value: Register, axis: int, count: int) -> Register:
        """TOPK or TOPK_INDEX: `count` elements along `axis`."""
        shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
        return self._emit(op, self._result_type(op, (value,)), shape, (value.index,), (value,), axis)

    def reduce(self, op: Op, value: Register, axis: int) -> Register:
        """SUM, RMAX, RMIN, PROD, ARGMAX or ARGMIN along `axis`, which stays with size 1."""
        shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
        return self._emit(op, self._result_type(op, (value,)), shape, (value.index,), (value,), axis)

    def cumsum(self, value: Register, axis: int) -> Register:
        """Inclusive running sum along `axis`."""
        return self._emit(Op.CUMSUM, value.dtype, value.shape, (value.index,), (value,), axis)

    def bytes(self) -> bytes:
        """The program as npurt.abi.bytecode lays it out."""
        header = np.zeros((), HEADER)
        header["magic"], header["trip"], header["args"] = MAGIC, self.trip, len(self._args)
        header["registers"], header["instructions"] = len(self._registers), len(self._instructions)
        registers = [
            (register.dtype, len(register.shape), 0, register.shape + (0,) * (4 - len(register.shape)))
            for register in self._registers
        ]
        tables = (fill(ARG, self._args), fill(REGISTER, registers), fill(INSTRUCTION, self._instructions))
        return header.tobytes() + b"".join(table.tobytes() for table in tables)

    def _emit(
        self,
        op: Op,
        dtype: DType,
        shape: tuple[int, ...],
        indices: tuple[int, ...] = (),
        operands: tuple[Register, ...] = (),
        axis: int = 0,
        imm: int = 0,
    ) -> Register:
        rule = RULES[op]
        signature = LETTER.get(dtype, "?") + "".join(LETTER[operand.dtype] for operand in operands)
        if len(shape) > 4 or (rule.signatures and signature not in rule.signatures):
            raise BytecodeError(
                f"{op.name} of {', '.join(map(_text, operands)) or 'nothing'} to {dtype.label}{list(shape)}: "
                f"types (result first) may be {' '.join(rule.signatures)}, rank at most 4"
            )
        along = operands[0].shape if operands else shape
        if rule.axis and not 0 <= axis < len(along):
            raise BytecodeError(f"{op.name} along axis {axis} of {list(along)}: axes count from 0")
        wrong = expected_shape(rule.shape, tuple(operand.shape for operand in operands), shape, axis, imm)
        if wrong is not None:
            raise BytecodeError(f"{op.name}: {wrong}")
        register = Register(len(self._registers), dtype, shape)
        self._registers.append(register)
        a, b, c = (*indices, 0, 0, 0)[:3]
        self._instructions.append((op, axis, register.index, a, b, c, imm))
        return register

    def _result_type(self, op: Op, operands: tuple[Register, ...]) -> DType:
        given = "".join(LETTER[operand.dtype] for operand in operands)
        found = next((signature[0] for signature in RULES[op].signatures if signature[1:] == given), None)
        if found is None:
            raise BytecodeError(
                f"{op.name} does not take {', '.join(map(_text, operands)) or 'nothing'}: "
                f"types (result first) may be {' '.join(RULES[op].signatures)}"
            )
        return _TYPE[found]


def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


def _indices(operands: tuple[Register, ...]) -> tuple[int, ...]:
    return tuple(operand.index for operand in operands)


def _broadcast(op: Op, operands: tuple[Register, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(operand.shape for operand in operands))
    except ValueError:
        raise BytecodeError(f"{op.name}: {', '.join(map(_text, operands))} do not broadcast") from None


def _text(register: Register) -> str:
    return f"{register.dtype.label}{list(register.shape)}"
