"""Writes SHAVE bytecode (npurt.abi.bytecode)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuc.tile.types import DType
from npurt.abi.bytecode import ARG, HEADER, INSTRUCTION, MAGIC, REGISTER, ArgMode, Op


@dataclass
class Program:
    """Arguments, registers and instructions of one kernel, in the order in which they were added."""

    args: list[tuple[ArgMode, DType, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    registers: list[tuple[DType, tuple[int, ...]]] = field(default_factory=list)
    instructions: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)

    def argument(self, mode: ArgMode, dtype: DType, shape: tuple[int, ...] = (), stride: tuple[int, ...] = ()) -> int:
        self.args.append((mode, dtype, shape, stride))
        return len(self.args) - 1

    def register(self, dtype: DType, shape: tuple[int, ...]) -> int:
        self.registers.append((dtype, shape))
        return len(self.registers) - 1

    def instruction(self, op: Op, dst: int, a: int = 0, b: int = 0, c: int = 0, axis: int = 0, imm: int = 0) -> None:
        self.instructions.append((op, axis, dst, a, b, c, imm))

    def encode(self) -> bytes:
        """The program's bytes, for one pass over its arguments."""
        header = np.zeros((), HEADER)
        header["magic"], header["trip"] = MAGIC, 1
        header["args"], header["registers"], header["instructions"] = map(
            len, (self.args, self.registers, self.instructions)
        )
        args = np.zeros(len(self.args), ARG)
        for row, (mode, dtype, shape, stride) in zip(args, self.args, strict=True):
            row["mode"], row["dtype"], row["rank"] = mode, dtype, len(shape)
            row["shape"][: len(shape)] = shape
            row["stride"][: len(shape)] = stride
        registers = np.zeros(len(self.registers), REGISTER)
        for row, (dtype, shape) in zip(registers, self.registers, strict=True):
            row["dtype"], row["rank"] = dtype, len(shape)
            row["shape"][: len(shape)] = shape
        instructions = np.array(self.instructions, INSTRUCTION)
        return b"".join((header.tobytes(), args.tobytes(), registers.tobytes(), instructions.tobytes()))
