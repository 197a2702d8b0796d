"""One SHAVE run: vector operations between loads, products and transfers, as bytecode and the task that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuc.tile.affine import Affine
from npuc.tile.errors import Loc
from npuc.tile.trace import Scalar, Store, Value, Vector
from npuc.tile.types import register_type
from npuc.tile.views import View
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave.builder import Arg, ProgramBuilder, Register
from npurt.shave.rules import permutation

Key = tuple[object, ...]


REDUCTIONS = (Op.SUM, Op.RMAX, Op.RMIN, Op.PROD, Op.ARGMAX, Op.ARGMIN)


@dataclass
class Fragment:
    """Vector code under construction. Equal computations share a register, loads included.

    registers: value id -> register. values: what has been computed here, or has no home in memory any more.
    reads, writes: the views behind the pointer arguments. args: as in CallOp, program-id parts still affine.
    """

    loc: Loc
    program: ProgramBuilder = field(default_factory=ProgramBuilder)
    registers: dict[int, Register] = field(default_factory=dict)
    values: dict[int, Value] = field(default_factory=dict)
    locs: dict[int, Loc] = field(default_factory=dict)
    reads: list[View] = field(default_factory=list)
    writes: list[View] = field(default_factory=list)
    args: list[tuple[str, int | str | Affine]] = field(default_factory=list)
    known: dict[Key, Register] = field(default_factory=dict)

    def load(self, value: Value, view: View) -> None:
        """Reads `value` from its home."""
        self.registers[value.id] = self.program.load(self._pointer(ArgMode.IN, view))

    def store(self, value: Value, view: View) -> None:
        """Writes a register to memory, rounded to the view's type."""
        self.program.store(self._pointer(ArgMode.OUT, view), self.registers[value.id])

    def scalar(self, op: Scalar) -> None:
        """An affine number: its program-id part is an argument of the task, a step field the device reads."""
        ids, step = op.value.without_step(), op.value.step_field
        total = self._argument("i", ids) if ids.terms else self._integer(ids.const)
        if step is not None:
            field = self._argument("s", step)
            factor = dict(op.value.terms)[step]
            field = field if factor == 1 else self._both(Op.MUL, field, self._integer(factor))
            total = field if not ids.terms and not ids.const else self._both(Op.ADD, field, total)
        self.registers[op.out.id] = total

    def _integer(self, value: int) -> Register:
        return self._once((Op.CONST, value), lambda: self.program.const(value, DType.I32))

    def _both(self, op: Op, a: Register, b: Register) -> Register:
        return self._once((op, a.index, b.index), lambda: self.program.op(op, a, b))

    def compute(self, op: Vector) -> None:
        """Adds one operation; its operands are in registers already."""
        operands = [self.registers[arg.id] for arg in op.args]
        if op.op is Op.CAST and operands[0].dtype is register_type(op.out.dtype):
            self.registers[op.out.id] = operands[0]  # widening happened at the load
        else:
            key = (op.op, register_type(op.out.dtype), op.out.shape, *(r.index for r in operands), op.axis, op.imm)
            self.registers[op.out.id] = self._once(key, lambda: add_instruction(self.program, op, operands))
        self.values[op.out.id] = op.out
        self.locs[op.out.id] = op.loc

    def _once(self, key: Key, make: Callable[[], Register]) -> Register:
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def _pointer(self, mode: ArgMode, view: View) -> Arg:
        side, kind = (self.reads, "r") if mode is ArgMode.IN else (self.writes, "w")
        side.append(view)
        self.args.append((kind, len(side) - 1))
        return self.program.arg(mode, view.dtype, view.shape, view.stride)

    def _argument(self, kind: str, value: str | Affine) -> Register:
        def make() -> Register:
            self.args.append((kind, value))
            return self.program.scalar(self.program.scalar_arg())

        return self._once((kind, str(value)), make)


@dataclass(frozen=True, slots=True)
class PendingStore:
    """A transfer that waits for the open fragment to write its source."""

    value: Value
    destination: View
    store: Store


def add_instruction(program: ProgramBuilder, op: Vector, operands: Sequence[Register]) -> Register:
    """Appends one vector operation to a program."""
    shape, dtype = op.out.shape, register_type(op.out.dtype)
    match op.op:
        case Op.CONST:
            word = np.uint32(op.imm)
            return program.const(
                (word.view(np.float32) if dtype is DType.F32 else word.view(np.int32)).item(), dtype, shape
            )
        case Op.IOTA:
            return program.iota(shape, op.axis)
        case Op.COPY:
            return program.copy(operands[0], shape)
        case Op.RESHAPE:
            return program.reshape(operands[0], shape)
        case Op.TRANSPOSE:
            return program.transpose(operands[0], permutation(op.imm, len(shape)))
        case Op.SLICE:
            return program.slice(operands[0], op.axis, op.imm, shape[op.axis])
        case Op.CONCAT:
            return program.concat(operands[0], operands[1], op.axis)
        case Op.TAKE:
            return program.take(operands[0], operands[1])
        case Op.UNPACK:
            return program.unpack(operands[0], DType(op.imm))
        case Op.CAST:
            return program.cast(operands[0], dtype)
        case Op.CUMSUM:
            return program.cumsum(operands[0], op.axis)
        case Op.TOPK | Op.TOPK_INDEX:
            return program.topk(op.op, operands[0], op.axis, shape[op.axis])
    if op.op in REDUCTIONS:
        return program.reduce(op.op, operands[0], op.axis)
    return program.op(op.op, *operands)
