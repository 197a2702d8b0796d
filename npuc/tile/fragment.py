"""One SHAVE run: vector operations between loads, products and transfers, as bytecode and the task that runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from npuc.tile.affine import Affine
from npuc.tile.encode import Program
from npuc.tile.errors import Loc
from npuc.tile.trace import Scalar, Value, Vector
from npuc.tile.types import DType, register_type
from npuc.tile.views import View
from npurt.abi.bytecode import ArgMode, Op

Key = tuple[object, ...]


@dataclass
class Fragment:
    """Vector code under construction. Equal computations share a register, loads included."""

    loc: Loc
    program: Program = field(default_factory=Program)
    registers: dict[int, int] = field(default_factory=dict)  # value id -> register
    values: dict[int, Value] = field(default_factory=dict)  # what this fragment computes or has loaded
    reads: list[View] = field(default_factory=list)
    writes: list[View] = field(default_factory=list)
    args: list[tuple[str, int | str | Affine]] = field(default_factory=list)
    known: dict[Key, int] = field(default_factory=dict)

    def load(self, value: Value, view: View) -> int:
        """The register that holds `value`, read from memory."""
        register = self.program.register(register_type(view.dtype), view.shape)
        self.program.instruction(Op.LOAD, register, a=self._pointer(ArgMode.IN, view))
        self.registers[value.id] = register
        return register

    def scalar(self, op: Scalar) -> None:
        """An affine number: its program-id part is an argument of the task, a step field is read from the step block."""
        parts = []
        ids, step = op.value.without_step(), op.value.step_field
        if step is not None:
            parts.append(self._scalar_argument("s", step))
        if ids.terms:
            parts.append(self._scalar_argument("i", ids))
        elif ids.const or step is None:
            parts.append(self._compute(Op.CONST, DType.I32, (), (), 0, ids.const & 0xFFFFFFFF))
        total = parts[0]
        for part in parts[1:]:
            total = self._compute(Op.ADD, DType.I32, (), (total, part), 0, 0)
        self.registers[op.out.id] = total

    def compute(self, op: Vector) -> None:
        """Adds one operation; its operands are in registers already."""
        operands = tuple(self.registers[arg.id] for arg in op.args)
        register = register_type(op.out.dtype)
        if op.op is Op.CAST and register is register_type(op.args[0].dtype):
            self.registers[op.out.id] = operands[0]  # widening happened at the load
        else:
            self.registers[op.out.id] = self._compute(op.op, register, op.out.shape, operands, op.axis, op.imm)
        self.values[op.out.id] = op.out

    def store(self, value: Value, view: View) -> None:
        """Writes a register to memory, rounded to the view's type."""
        self.program.instruction(Op.STORE, 0, a=self._pointer(ArgMode.OUT, view), b=self.registers[value.id])

    def _compute(
        self, op: Op, dtype: DType, shape: tuple[int, ...], operands: tuple[int, ...], axis: int, imm: int
    ) -> int:
        key = (op, dtype, shape, operands, axis, imm)
        if key not in self.known:
            register = self.program.register(dtype, shape)
            a, b, c = (*operands, 0, 0, 0)[:3]
            self.program.instruction(op, register, a, b, c, axis, imm)
            self.known[key] = register
        return self.known[key]

    def _pointer(self, mode: ArgMode, view: View) -> int:
        side = self.reads if mode is ArgMode.IN else self.writes
        side.append(view)
        self.args.append(("r" if mode is ArgMode.IN else "w", len(side) - 1))
        return self.program.argument(mode, view.dtype, view.shape, view.stride)

    def _scalar_argument(self, kind: str, value: str | Affine) -> int:
        key = (kind, str(value))
        if key not in self.known:
            self.args.append((kind, value))
            register = self.program.register(DType.I32, ())
            self.program.instruction(Op.SCALAR, register, a=self.program.argument(ArgMode.SCALAR, DType.I32))
            self.known[key] = register
        return self.known[key]
