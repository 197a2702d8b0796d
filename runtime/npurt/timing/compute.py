"""What matrix products and vector programs cost."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

import numpy as np

from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.errors import TargetError
from npurt.shave.program import Instruction, Program
from npurt.target.model import Engine, MatrixRules
from npurt.timing.transfers import ITEM_BYTES

OP_CLASS: Mapping[Op, str] = {
    Op.LOAD: "load",
    Op.STORE: "store",
    **dict.fromkeys((Op.COPY, Op.TRANSPOSE, Op.SLICE, Op.CONCAT, Op.TAKE), "move"),
    **dict.fromkeys((Op.SUM, Op.RMAX, Op.RMIN, Op.PROD, Op.ARGMAX, Op.ARGMIN, Op.CUMSUM), "reduce"),
    **dict.fromkeys(
        (Op.EXP, Op.EXP2, Op.LOG, Op.SQRT, Op.RSQRT, Op.RECIP, Op.TANH, Op.SIGMOID, Op.ERF, Op.SIN, Op.COS, Op.POW,
         Op.DIV), "special",
    ),
}  # fmt: skip
"""Class of each opcode; those that are not here are simple."""
FREE = (Op.CONST, Op.SCALAR, Op.RESHAPE)
"""Opcodes that name a value and touch no element."""


def product_seconds(records: np.ndarray, engine: Engine, rules: MatrixRules) -> np.ndarray:
    """[n] DPU records: the larger of the MACs, with m, n and k padded to the engine's steps, and of the operands."""
    rows = _padded(records["m"], rules.row_multiple)
    channels = _padded(records["n"], rules.channel_multiple) * _padded(records["k"], rules.channel_multiple)
    batch = records["batch"].astype(np.int64)
    macs = np.zeros(len(DType) + 1)
    for code in np.unique(records["a_type"]).tolist():
        label = DType(code).label
        if label not in engine.macs_per_cycle:
            raise TargetError(
                f"engine {engine.name} multiplies no {label}; it takes {', '.join(engine.macs_per_cycle)}"
            )
        macs[code] = engine.macs_per_cycle[label]
    compute = batch * rows * channels / macs[records["a_type"]] / engine.clock
    if not engine.operand_rate:
        return np.asarray(compute)
    m, n, k = (records[name].astype(np.int64) for name in "mnk")
    operands = m * k * ITEM_BYTES[records["a_type"]] + n * k * ITEM_BYTES[records["b_type"]]
    operands += m * n * ITEM_BYTES[records["c_type"]]
    return np.asarray(np.maximum(compute, batch * operands / engine.operand_rate))


def program_seconds(program: Program, engine: Engine) -> float:
    """One run of a vector program on the units of the engine, without its launch.

    Each instruction takes its class's cycles for every `bytes_per_cycle` of its result (of its operand, where it
    reduces). Arithmetic goes in lanes as wide as the widest float that the program loads or stores: f16 programs
    compute in f16 lanes (assumed: the published slopes are those of f16 programs).
    """
    width = max((arg.dtype.nbytes for arg in program.args if arg.dtype.is_float), default=DType.I32.nbytes)
    cycles = sum(_instruction_cycles(program, instruction, width, engine) for instruction in program.instructions)
    return program.trip * cycles / engine.units / engine.clock


def _instruction_cycles(program: Program, instruction: Instruction, width: int, engine: Engine) -> float:
    op = instruction.op
    if op in FREE:
        return 0.0
    kind = OP_CLASS.get(op, "simple")
    if op in (Op.LOAD, Op.STORE):
        arg = program.args[instruction.a]
        shape, item = arg.shape, arg.dtype.nbytes
    else:
        shape, item = program.registers[instruction.a if kind == "reduce" else instruction.dst].shape, width
    return engine.cycles[kind] * ceil(prod(shape) * item / engine.bytes_per_cycle)


def _padded(values: np.ndarray, step: int) -> np.ndarray:
    return np.asarray(-(-values.astype(np.int64) // step) * step)
