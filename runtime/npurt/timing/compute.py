"""What matrix products and vector programs cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.errors import TargetError
from npurt.shave.program import Instruction, Program
from npurt.shave.rules import permutation
from npurt.target.model import Engine, MatrixRules, Memory
from npurt.timing.banks import store_cycles
from npurt.timing.transfers import ITEM_BITS, ITEM_BYTES

OP_CLASS: Mapping[Op, str] = {
    Op.LOAD: "load",
    Op.STORE: "store",
    **dict.fromkeys((Op.COPY, Op.TRANSPOSE, Op.SLICE, Op.CONCAT, Op.TAKE), "move"),
    **dict.fromkeys((Op.SUM, Op.RMAX, Op.RMIN, Op.PROD, Op.ARGMAX, Op.ARGMIN, Op.CUMSUM, Op.TOPK, Op.TOPK_INDEX),
                    "reduce"),
    **dict.fromkeys(
        (Op.EXP, Op.EXP2, Op.LOG, Op.SQRT, Op.RSQRT, Op.RECIP, Op.TANH, Op.SIGMOID, Op.ERF, Op.SIN, Op.COS, Op.POW,
         Op.DIV), "special",
    ),
}  # fmt: skip
"""Class of each opcode; those that are not here are simple."""
FREE = (Op.CONST, Op.SCALAR, Op.RESHAPE)
"""Opcodes that name a value and touch no element."""
_BYTE_FLOATS = (DType.E4M3, DType.E5M2)
ROUNDINGS = (Op.ROUND_F16, Op.ROUND_BF16)
"""Free in 16-bit lanes, whose results are rounded anyway."""


@dataclass(frozen=True)
class Products:
    """Matrix products by columns, [n] int64 each. a, b, c: codes of the operands' types.

    group: places along k whose sum is scaled and added on its own, 0 where the whole sum is one.
    """

    batch: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    group: np.ndarray


def record_products(records: np.ndarray) -> Products:
    """records: [n] DPU."""
    names = ("batch", "m", "n", "k", "a_type", "b_type", "c_type", "group")
    return Products(*(records[name].astype(np.int64) for name in names))


def product_seconds(products: Products, engine: Engine, rules: MatrixRules) -> np.ndarray:
    """The larger of the MACs, with m, n and k padded to the engine's steps, and of the operands. Groups are products of
    their own that add to c, which each but the first reads again. Errors: TargetError where the engine does not
    multiply a type."""
    _check_codes(products, engine)
    rows = _padded(products.m, rules.row_multiple)
    group = np.where(products.group > 0, products.group, np.maximum(products.k, 1))
    whole, rest = products.k // group, products.k % group
    depth = whole * _padded(group, rules.channel_multiple) + _padded(rest, rules.channel_multiple)
    channels = _padded(products.n, rules.channel_multiple) * depth
    macs = np.zeros(max(DType) + 1)
    for code in np.unique(products.a).tolist():
        label = DType(code).label
        if label not in engine.macs_per_cycle:
            raise TargetError(
                f"engine {engine.name} multiplies no {label}; it takes {', '.join(engine.macs_per_cycle)}"
            )
        macs[code] = engine.macs_per_cycle[label]
    compute = products.batch * rows * channels / macs[products.a] / engine.clock
    if not engine.operand_rate:
        return np.asarray(compute)
    operands = products.m * products.k * ITEM_BYTES[products.a] + products.n * products.k * ITEM_BITS[products.b] // 8
    again = 2 * (np.maximum(whole + (rest > 0), 1) - 1) * DType.F32.nbytes  # sums of groups, written and read again
    operands = operands + products.m * products.n * (ITEM_BYTES[products.c] + again)
    return np.asarray(np.maximum(compute, products.batch * operands / engine.operand_rate))


def _check_codes(products: Products, engine: Engine) -> None:
    """TargetError where b holds codes that the engine does not widen for the type of a."""
    for a, b in np.unique(np.stack([products.a, products.b], axis=1), axis=0).tolist():
        left, right = DType(a), DType(b)
        narrow = right in _BYTE_FLOATS and left not in _BYTE_FLOATS
        codes = right.packed or narrow or (left.is_float and not right.is_float)
        if codes and right.label not in engine.codes:
            taken = f"takes codes of {', '.join(engine.codes)}" if engine.codes else "takes no codes"
            raise TargetError(
                f"engine {engine.name} multiplies no {left.label} with codes of {right.label}; it {taken}. Vector code "
                "can dequantise them (dequant), at several times the cost of the product"
            )


@dataclass(frozen=True)
class ProgramTime:
    """Seconds of one run of a vector program without its launch; conflicts: the part that bank conflicts cost."""

    seconds: float
    conflicts: float


def program_time(program: Program, engine: Engine, memory: Memory) -> ProgramTime:
    """One run of a vector program on the units of the engine. memory: of its operands.

    Each instruction takes its class's cycles for every `bytes_per_cycle` of its result (of its operand, where it
    reduces; once for each element that TOPK finds), and the engine's instruction latency until its result is there.
    Arithmetic goes in lanes as wide as the widest float that the program loads or stores: f16 programs compute in f16
    lanes (assumed: the published slopes are those of f16 programs). Where the memory has bank groups, a store puts the
    pieces of its vectors where they belong, so a transposition before it is free, and conflicts count.
    """
    width = max((arg.dtype.nbytes for arg in program.args if arg.dtype.is_float), default=DType.I32.nbytes)
    scattered = _scattered(program) if memory.bank_groups > 1 else {}
    cycles = lost = latencies = 0.0
    for place, instruction in enumerate(program.instructions):
        alone = _instruction_cycles(program, instruction, width, engine)
        if place in scattered.values() or not alone:
            continue
        if place in scattered:
            turn = program.instructions[scattered[place]]
            lost += (_conflicts(program, instruction, turn, memory, engine) - 1) * alone
        cycles += alone
        latencies += engine.instruction_latency
    per_cycle = program.trip / engine.units / engine.clock
    return ProgramTime((cycles + lost) * per_cycle + program.trip * latencies, lost * per_cycle)


def _instruction_cycles(program: Program, instruction: Instruction, width: int, engine: Engine) -> float:
    op = instruction.op
    passes = program.registers[instruction.dst].shape[instruction.axis] if op in (Op.TOPK, Op.TOPK_INDEX) else 1
    if op in FREE or (op in ROUNDINGS and width == DType.F16.nbytes):
        return 0.0
    kind = OP_CLASS.get(op, "simple")
    if op in (Op.LOAD, Op.STORE):
        arg = program.args[instruction.a]
        shape, item = arg.shape, arg.dtype.nbytes
    else:
        shape, item = program.registers[instruction.a if kind == "reduce" else instruction.dst].shape, width
    return passes * engine.cycles[kind] * ceil(prod(shape) * item / engine.bytes_per_cycle)


def _scattered(program: Program) -> dict[int, int]:
    """Places of the stores of a register that is transposed for them alone, with that of the transposition."""
    readers: dict[int, list[int]] = {}
    for place, instruction in enumerate(program.instructions):
        for register in instruction.registers:
            readers.setdefault(register, []).append(place)
    found = {}
    for place, instruction in enumerate(program.instructions):
        users = readers.get(instruction.dst, [])
        if instruction.op is Op.TRANSPOSE and len(users) == 1 and program.instructions[users[0]].op is Op.STORE:
            found[users[0]] = place
    return found


def _conflicts(program: Program, store: Instruction, turn: Instruction, memory: Memory, engine: Engine) -> int:
    arg = program.args[store.a]
    shape, item = program.registers[turn.a].shape, arg.dtype.nbytes
    strides = [item * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    source = [strides[axis] for axis in permutation(turn.imm, len(shape))]
    return store_cycles(arg.shape, source, arg.stride, item, memory, engine.bytes_per_cycle)


def _padded(values: np.ndarray, step: int) -> np.ndarray:
    return np.asarray(-(-values // step) * step)
