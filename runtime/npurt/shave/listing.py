"""The stable text of a program, one line per argument and instruction."""

from __future__ import annotations

import numpy as np

from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave.program import ArgSpec, Instruction, Program
from npurt.shave.rules import RULES, permutation


def listing(program: Program) -> str:
    """Text of a verified program: equal programs give equal texts, a change of one instruction changes one line.

    program trip 1
      arg 0 in f16[16,64] stride [128,2]
      %0 f32[16,64] = load arg0
      %1 f32[16,1] = sum %0 axis 1
    """
    lines = [f"program trip {program.trip}"]
    lines += [f"  arg {i} {_arg_text(arg)}" for i, arg in enumerate(program.args)]
    lines += [f"  {_instruction_text(instruction, program)}" for instruction in program.instructions]
    return "\n".join(lines) + "\n"


def _extents(values: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, values)) + "]"


def _arg_text(arg: ArgSpec) -> str:
    if arg.mode is ArgMode.SCALAR:
        return "scalar i32"
    step = f" step {arg.step}" if arg.step else ""
    return f"{arg.mode.name.lower()} {arg.dtype.label}{_extents(arg.shape)} stride {_extents(arg.stride)}{step}"


def _instruction_text(instruction: Instruction, program: Program) -> str:
    rule = RULES[instruction.op]
    operands = zip(rule.operands, (instruction.a, instruction.b, instruction.c), strict=False)
    words = [instruction.op.name.lower(), *(f"arg{n}" if kind == "a" else f"%{n}" for kind, n in operands)]
    if rule.axis:
        words.append(f"axis {instruction.axis}")
    if not rule.has_dst:
        return " ".join(words)
    dst = program.registers[instruction.dst]
    if instruction.op is Op.CONST:
        words.append(_immediate_text(instruction.imm, dst.dtype))
    elif instruction.op is Op.TRANSPOSE:
        words.append(f"axes {_extents(permutation(instruction.imm, len(dst.shape)))}")
    elif instruction.op is Op.UNPACK:
        words.append(f"as {DType(instruction.imm).label}")
    elif rule.imm:
        words.append(f"from {instruction.imm}")
    return f"%{instruction.dst} {dst.dtype.label}{_extents(dst.shape)} = {' '.join(words)}"


def _immediate_text(bits: int, dtype: DType) -> str:
    if dtype is DType.F32:
        return str(np.uint32(bits).view(np.float32))  # the shortest text that reads back to the same bits
    if dtype is DType.I32:
        return str(np.uint32(bits).view(np.int32))
    return "true" if bits else "false"
