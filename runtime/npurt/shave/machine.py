"""Runs verified SHAVE programs on NumPy views of device memory, in exact mode.

`prepare` turns the instructions into one list of calls; `run` executes it on the views of one task. A register is a
NumPy array that nothing changes after its instruction, so operations may return views of their operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from npurt import numerics
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.shave.program import ArgSpec, Instruction, Program
from npurt.shave.rules import RULES, ShapeRule, permutation

Array = np.ndarray
Registers = list[Any]
Views = Sequence[Array]
Call = Callable[[Registers, Views], None]


def _integer_div(a: Array, b: Array) -> Array:
    """Truncates toward zero; x / 0 = 0; the one overflow wraps."""
    wide, divisor = np.asarray(a, np.int64), np.asarray(b, np.int64)
    quotient = np.abs(wide) // np.abs(np.where(divisor == 0, 1, divisor))
    signed = np.where((wide < 0) != (divisor < 0), -quotient, quotient)
    return np.where(divisor == 0, 0, signed).astype(np.int32)


def _integer_mod(a: Array, b: Array) -> Array:
    return np.mod(np.asarray(a, np.int64), np.asarray(b, np.int64)).astype(np.int32)


def _integer_fmod(a: Array, b: Array) -> Array:
    return np.fmod(np.asarray(a, np.int64), np.asarray(b, np.int64)).astype(np.int32)


def _max(a: Array, b: Array) -> Array:
    return numerics.plain_zero(np.maximum(a, b))


def _min(a: Array, b: Array) -> Array:
    return numerics.plain_zero(np.minimum(a, b))


def _take(table: Array, index: Array) -> Array:
    inside = (index >= 0) & (index < table.shape[0])
    if not table.shape[0]:
        return np.zeros((index.size, *table.shape[1:]), table.dtype)
    rows: Array = table[np.where(inside, index, 0)]
    rows[~inside] = 0
    return rows


_FLOAT_OR_BOTH: dict[Op, Callable[..., Any]] = {
    Op.ROUND_F16: numerics.round_f16,
    Op.ROUND_BF16: numerics.round_bf16,
    Op.TAKE: _take,
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.MIN: _min,
    Op.MAX: _max,
    Op.POW: numerics.pow,
    Op.MOD: np.mod,
    Op.FMOD: np.fmod,
    Op.AND: np.logical_and,
    Op.OR: np.logical_or,
    Op.XOR: np.logical_xor,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.GT: np.greater,
    Op.GE: np.greater_equal,
    Op.WHERE: np.where,
    Op.NEG: np.negative,
    Op.ABS: np.absolute,
    Op.EXP: numerics.exp,
    Op.LOG: numerics.log,
    Op.SQRT: np.sqrt,
    Op.RSQRT: numerics.rsqrt,
    Op.RECIP: numerics.recip,
    Op.TANH: numerics.tanh,
    Op.SIGMOID: numerics.sigmoid,
    Op.ERF: numerics.erf,
    Op.SIN: numerics.sin,
    Op.COS: numerics.cos,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.ROUND: np.rint,
    Op.SIGN: np.sign,
    Op.NOT: np.logical_not,
    Op.ISNAN: np.isnan,
    Op.ISINF: np.isinf,
    Op.EXP2: numerics.exp2,
}
_INTEGER: dict[Op, Callable[..., Any]] = {Op.DIV: _integer_div, Op.MOD: _integer_mod, Op.FMOD: _integer_fmod}
_ALONG_AXIS: dict[Op, Callable[..., Any]] = {
    Op.SUM: numerics.sum_exact,
    Op.RMAX: numerics.reduce_max,
    Op.RMIN: numerics.reduce_min,
    Op.PROD: numerics.prod,
    Op.ARGMAX: numerics.argmax,
    Op.ARGMIN: numerics.argmin,
    Op.CUMSUM: numerics.cumsum,
}
_SELECTIONS: dict[Op, Callable[..., Any]] = {Op.TOPK: numerics.topk, Op.TOPK_INDEX: numerics.topk_index}
_CASTS: dict[DType, Callable[[Any], Any]] = {
    DType.F32: lambda x: x.astype(np.float32),
    DType.I32: lambda x: numerics.store(np.trunc(x), DType.I32) if x.dtype.kind == "f" else x.astype(np.int32),
    DType.BOOL: lambda x: x != 0,
}


@dataclass(frozen=True)
class Prepared:
    """A program as calls. run: executes all passes on the memory of `pointers`."""

    program: Program
    calls: tuple[Call, ...]

    def bind(self, pointers: Sequence[tuple[Array, int]]) -> Callable[[], None]:
        """A call that runs the program on arguments given as (uint8 memory, byte offset of the first element).

        ValueError from NumPy if a view would leave its memory: the image verifier has excluded that.
        """
        program, calls, count = self.program, self.calls, len(self.program.registers)
        first = [_view(arg, *pointer, 0) for arg, pointer in zip(program.args, pointers, strict=True)]

        def run() -> None:
            views = first
            with np.errstate(all="ignore"):
                for turn in range(program.trip):
                    if turn:
                        views = [_view(arg, *at, turn) for arg, at in zip(program.args, pointers, strict=True)]
                    registers: Registers = [None] * count
                    for call in calls:
                        call(registers, views)

        return run


def _view(arg: ArgSpec, memory: Array, offset: int, turn: int) -> Array:
    """The argument's elements on one pass. Without elements it has no place, wherever `step` would take it."""
    if 0 in arg.shape:
        return np.empty(arg.shape, arg.dtype.storage)
    return np.ndarray(arg.shape, arg.dtype.storage, memory, offset + turn * arg.step, arg.stride)


def prepare(program: Program) -> Prepared:
    """The calls of a verified program, in order; each drops the registers that nothing needs after it."""
    calls: list[Call] = []
    for instruction, released in zip(program.instructions, program.releases, strict=True):
        if "a" in RULES[instruction.op].operands:
            calls.append(_memory_call(instruction, program))
        else:
            calls.append(_value_call(instruction, compute_of(instruction, program)))
        dropped = [number for number in released if program.registers[number].shape]
        if dropped:
            calls.append(_drop_call(dropped))
    return Prepared(program, tuple(calls))


def _drop_call(numbers: list[int]) -> Call:
    def drop(registers: Registers, views: Views) -> None:
        for number in numbers:
            registers[number] = None

    return drop


def _memory_call(instruction: Instruction, program: Program) -> Call:
    """LOAD, STORE or SCALAR."""
    arg, dst, source = instruction.a, instruction.dst, instruction.b
    dtype = program.args[arg].dtype

    def load(registers: Registers, views: Views) -> None:
        registers[dst] = numerics.load(views[arg], dtype)

    def store(registers: Registers, views: Views) -> None:
        views[arg][...] = numerics.store(registers[source], dtype)

    return store if instruction.op is Op.STORE else load


def _value_call(instruction: Instruction, compute: Callable[..., Any]) -> Call:
    """Applies `compute` to the register operands."""
    dst, operands = instruction.dst, instruction.registers
    if len(operands) == 1:
        only = operands[0]

        def unary(registers: Registers, views: Views) -> None:
            registers[dst] = compute(registers[only])

        return unary
    if len(operands) == 2:
        a, b = operands

        def binary(registers: Registers, views: Views) -> None:
            registers[dst] = compute(registers[a], registers[b])

        return binary

    def general(registers: Registers, views: Views) -> None:
        registers[dst] = compute(*(registers[number] for number in operands))

    return general


def compute_of(instruction: Instruction, program: Program) -> Callable[..., Any]:
    """The function of the register operands that one instruction computes."""
    op, axis, imm = instruction.op, instruction.axis, instruction.imm
    dst = program.registers[instruction.dst]
    shape = dst.shape
    if op is Op.CONST:
        constant = np.broadcast_to(_immediate(imm, dst.dtype), shape)
        return lambda: constant
    if op is Op.IOTA:
        index = np.arange(shape[axis], dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return lambda: np.broadcast_to(index, shape)
    if op in _ALONG_AXIS:
        along = _ALONG_AXIS[op]
        return lambda x: along(x, axis)
    if op in _SELECTIONS:
        select, most = _SELECTIONS[op], shape[axis]
        return lambda x: select(x, most, axis)
    if op is Op.RESHAPE:
        return lambda x: np.reshape(x, shape)
    if op is Op.TRANSPOSE:
        axes = permutation(imm, len(shape))
        return lambda x: np.transpose(x, axes)
    if op is Op.SLICE:
        part = (slice(None),) * axis + (slice(imm, imm + shape[axis]),)
        return lambda x: x[part]
    if op is Op.UNPACK:
        return partial(numerics.unpack, dtype=DType(imm))
    if op is Op.CONCAT:
        return lambda a, b: np.concatenate((a, b), axis)
    operand_shapes = [program.registers[number].shape for number in instruction.registers]
    integer = dst.dtype is DType.I32
    function: Callable[..., Any]
    if op is Op.COPY:
        return lambda x: np.broadcast_to(x, shape)
    if op is Op.CAST:
        function = _CASTS[dst.dtype]
    else:
        function = _INTEGER[op] if integer and op in _INTEGER else _FLOAT_OR_BOTH[op]
    if RULES[op].shape is ShapeRule.BROADCAST and np.broadcast_shapes(*operand_shapes) != shape:
        return lambda *operands: np.broadcast_to(function(*operands), shape)
    return function


def _immediate(bits: int, dtype: DType) -> Any:
    word = np.uint32(bits)
    return {DType.F32: word.view(np.float32), DType.I32: word.view(np.int32), DType.BOOL: np.bool_(bits)}[dtype]
