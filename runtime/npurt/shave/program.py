"""Reads and verifies a SHAVE program: what `parse` returns stays in its views and ends, within known work and memory.

The bytes are untrusted: every size is checked before it is used, every field has a legal value and unused fields are
zero, types and shapes follow the rule of their opcode, and registers are written before they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from npurt.abi.bytecode import ARG, HEADER, INSTRUCTION, MAGIC, REGISTER, ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.errors import BytecodeError
from npurt.shave.rules import LETTER, RULES, Rule, ShapeRule, expected_shape, register_type, unpacked_type

MAX_TRIP = 1 << 16
MAX_ARGS = 256
MAX_REGISTERS = MAX_INSTRUCTIONS = 1 << 14
MAX_WORK = 1 << 32  # elements written or read by all instructions of one run
MAX_LIVE_BYTES = 1 << 28  # registers alive at once, in float32
MAX_RANK = 4


@dataclass(frozen=True)
class ArgSpec:
    """An argument's view: shape in elements, strides in bytes, `step` bytes further on each pass.

    low, high: first byte and one past the last byte that any pass can touch, relative to the pointer.
    """

    mode: ArgMode
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    step: int
    low: int
    high: int

    @property
    def reads(self) -> bool:
        return self.mode in (ArgMode.IN, ArgMode.INOUT)

    @property
    def writes(self) -> bool:
        return self.mode in (ArgMode.OUT, ArgMode.INOUT)


@dataclass(frozen=True)
class RegisterSpec:
    """Type (F32, I32 or BOOL) and static shape of a register."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.label}{list(self.shape)}"


@dataclass(frozen=True)
class Instruction:
    """One instruction; fields that the opcode does not use are zero."""

    op: Op
    axis: int
    dst: int
    a: int
    b: int
    c: int
    imm: int

    @property
    def registers(self) -> tuple[int, ...]:
        """The register operands, in order."""
        fields = zip((self.a, self.b, self.c), RULES[self.op].operands, strict=False)
        return tuple(number for number, kind in fields if kind == "r")

    @property
    def touched(self) -> tuple[int, ...]:
        """The register operands, then the register written if there is one."""
        return (*self.registers, self.dst) if RULES[self.op].has_dst else self.registers


@dataclass(frozen=True)
class Program:
    """A verified program. releases: for each instruction the registers that nothing after it needs.

    work: elements that one run writes and reads, all passes together.
    """

    trip: int
    args: tuple[ArgSpec, ...]
    registers: tuple[RegisterSpec, ...]
    instructions: tuple[Instruction, ...]
    releases: tuple[tuple[int, ...], ...]
    work: int


def parse(code: bytes) -> Program:
    """The verified program. Errors: BytecodeError, one line that names the instruction or argument."""
    trip, arg_rows, register_rows, instruction_rows = _tables(code)
    args = tuple(_arg(i, row, trip) for i, row in enumerate(arg_rows.tolist()))
    registers = tuple(_register(i, row) for i, row in enumerate(register_rows.tolist()))
    instructions = tuple(_instruction(i, row) for i, row in enumerate(instruction_rows.tolist()))
    written: set[int] = set()
    for place, instruction in enumerate(instructions):
        wrong = _check(instruction, args, registers, written)
        if wrong is not None:
            raise BytecodeError(f"instruction {place}, {instruction.op.name}: {wrong}")
        if RULES[instruction.op].has_dst:
            written.add(instruction.dst)
    work = _work(trip, registers, instructions)
    return Program(trip, args, registers, instructions, _releases(instructions, registers), work)


def _tables(code: bytes) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    if len(code) < HEADER.itemsize:
        raise BytecodeError(f"{len(code)} bytes, a program's header has {HEADER.itemsize}")
    header = np.frombuffer(code, HEADER, 1)[0]
    if header["magic"] != MAGIC:
        raise BytecodeError(f"magic {int(header['magic']):#010x} where {MAGIC:#010x} is due: no SHAVE program")
    if header.tobytes()[HEADER.fields["reserved"][1] :].strip(b"\0"):  # type: ignore[index]
        raise BytecodeError("reserved bytes of the header are not zero")
    trip = int(header["trip"])
    limits = {
        "args": (ARG, MAX_ARGS),
        "registers": (REGISTER, MAX_REGISTERS),
        "instructions": (INSTRUCTION, MAX_INSTRUCTIONS),
    }
    if not 1 <= trip <= MAX_TRIP:
        raise BytecodeError(f"trip {trip}, 1 to {MAX_TRIP} passes are allowed")
    for name, (_, limit) in limits.items():
        if header[name] > limit:
            raise BytecodeError(f"{int(header[name])} {name}, at most {limit} are allowed")
    size = HEADER.itemsize + sum(int(header[name]) * dtype.itemsize for name, (dtype, _) in limits.items())
    if len(code) != size:
        raise BytecodeError(f"{len(code)} bytes, the header's counts need {size}")
    tables, offset = [], HEADER.itemsize
    for name, (dtype, _) in limits.items():
        tables.append(np.frombuffer(code, dtype, int(header[name]), offset))
        offset += tables[-1].nbytes
    return trip, tables[0], tables[1], tables[2]


def _shape(what: str, rank: int, shape: list[int]) -> tuple[int, ...]:
    """The first `rank` places as Python integers, whose products cannot overflow."""
    if rank > MAX_RANK:
        raise BytecodeError(f"{what}: rank {rank}, at most {MAX_RANK} is allowed")
    if any(shape[rank:]):
        raise BytecodeError(f"{what}: shape places beyond rank {rank} are not zero")
    return tuple(map(int, shape[:rank]))


def _arg(index: int, row: tuple[int, int, int, int, int, list[int], list[int], int], trip: int) -> ArgSpec:
    mode, dtype, rank, pad, reserved, extents, strides, step = row
    what = f"argument {index}"
    if mode not in ArgMode._value2member_map_ or dtype not in DType._value2member_map_ or DType(dtype).packed:
        raise BytecodeError(f"{what}: mode {mode} or element type {dtype} is unknown")
    shape = _shape(what, rank, extents)
    if pad or reserved or any(strides[rank:]):
        raise BytecodeError(f"{what}: reserved fields or strides beyond rank {rank} are not zero")
    if mode == ArgMode.SCALAR:
        if rank or step or dtype != DType.I32:
            raise BytecodeError(f"{what}: a scalar is one i32 without shape and step")
        return ArgSpec(ArgMode.SCALAR, DType.I32, (), (), 0, 0, 4)
    stride = tuple(map(int, strides[:rank]))
    reach = [(extent - 1) * pace for extent, pace in zip(shape, stride, strict=True)] + [step * (trip - 1)]
    low, high = sum(min(part, 0) for part in reach), sum(max(part, 0) for part in reach) + DType(dtype).nbytes
    if 0 in shape:
        low = high = 0
    if mode != ArgMode.IN and _overlaps_itself(shape, stride, DType(dtype).nbytes):
        raise BytecodeError(f"{what}: elements of the written view {list(shape)}, strides {list(stride)} overlap")
    return ArgSpec(ArgMode(mode), DType(dtype), shape, stride, step, low, high)


def _overlaps_itself(shape: tuple[int, ...], stride: tuple[int, ...], itemsize: int) -> bool:
    """Whether a view may hold one byte twice: each stride must pass all that the smaller strides span."""
    if 0 in shape:
        return False
    ordered = sorted((abs(pace), extent) for pace, extent in zip(stride, shape, strict=True) if extent > 1)
    reach = itemsize
    for pace, extent in ordered:
        if pace < reach:
            return True
        reach += pace * (extent - 1)
    return False


def _register(index: int, row: tuple[int, int, int, list[int]]) -> RegisterSpec:
    dtype, rank, pad, extents = row
    what = f"register {index}"
    if dtype not in LETTER or pad:
        raise BytecodeError(f"{what}: type {dtype} is none of f32, i32, bool, or padding is not zero")
    return RegisterSpec(DType(dtype), _shape(what, rank, extents))


def _instruction(index: int, row: tuple[int, ...]) -> Instruction:
    op, axis, dst, a, b, c, imm = row
    if op not in Op._value2member_map_:
        raise BytecodeError(f"instruction {index}: opcode {op} is unknown")
    return Instruction(Op(op), axis, dst, a, b, c, imm)


def _check(
    instruction: Instruction, args: tuple[ArgSpec, ...], registers: tuple[RegisterSpec, ...], written: set[int]
) -> str | None:
    """What is wrong with one instruction, or None."""
    rule = RULES[instruction.op]
    fields = (instruction.a, instruction.b, instruction.c)
    if any(fields[len(rule.operands) :]) or (instruction.imm and not rule.imm) or (instruction.axis and not rule.axis):
        return "an unused field is not zero"
    for kind, number in zip(rule.operands, fields, strict=False):
        if number >= len(args if kind == "a" else registers):
            return f"{'argument' if kind == 'a' else 'register'} {number} does not exist"
        if kind == "r" and number not in written:
            return f"register {number} is read before it is written"
    if not rule.has_dst:
        return "dst of a store is not zero" if instruction.dst else _check_memory(instruction, args, registers)
    if instruction.dst >= len(registers):
        return f"register {instruction.dst} does not exist"
    if instruction.op in (Op.LOAD, Op.SCALAR):
        return _check_memory(instruction, args, registers)
    return _check_values(instruction, rule, registers)


def _check_memory(
    instruction: Instruction, args: tuple[ArgSpec, ...], registers: tuple[RegisterSpec, ...]
) -> str | None:
    """LOAD, STORE and SCALAR: the argument's mode, and its type and shape against the register's."""
    arg = args[instruction.a]
    op = instruction.op
    register = registers[instruction.b if op is Op.STORE else instruction.dst]
    allowed = {Op.LOAD: arg.reads, Op.STORE: arg.writes, Op.SCALAR: arg.mode is ArgMode.SCALAR}
    if not allowed[op]:
        return f"argument {instruction.a} has mode {arg.mode.name}"
    if register_type(arg.dtype) is not register.dtype or arg.shape != register.shape:
        return f"argument {instruction.a} is {arg.dtype.label}{list(arg.shape)} and the register {register}"
    return None


def _check_values(instruction: Instruction, rule: Rule, registers: tuple[RegisterSpec, ...]) -> str | None:
    """Types, axis and shapes of an instruction whose operands are registers."""
    dst = registers[instruction.dst]
    operands = [registers[number] for number in instruction.registers]
    signature = "".join(LETTER[register.dtype] for register in (dst, *operands))
    if signature not in rule.signatures:
        return f"types {signature} (result first) are none of {' '.join(rule.signatures)}"
    if rule.axis:
        rank = len(operands[0].shape if operands else dst.shape)
        if not 0 <= instruction.axis < rank or (rule.shape is ShapeRule.SLICE and rank != len(dst.shape)):
            return f"axis {instruction.axis} of rank {rank}"
        if rule.nonempty and operands[0].shape[instruction.axis] == 0:
            return f"axis {instruction.axis} of {operands[0]} is empty"
    if instruction.op is Op.CONST and dst.dtype is DType.BOOL and instruction.imm > 1:
        return f"the bool {instruction.imm} is neither 0 nor 1"
    if instruction.op is Op.UNPACK and unpacked_type(instruction.imm) not in (None, dst.dtype):
        return f"elements of {DType(instruction.imm).label} do not widen to {dst.dtype.label}"
    shapes = tuple(register.shape for register in operands)
    return expected_shape(rule.shape, shapes, dst.shape, instruction.axis, instruction.imm)


def _releases(
    instructions: tuple[Instruction, ...], registers: tuple[RegisterSpec, ...]
) -> tuple[tuple[int, ...], ...]:
    """The registers that no later instruction touches; checks the bytes alive at once."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, instruction in enumerate(instructions):
        for number in instruction.touched:
            first.setdefault(number, place)
            last[number] = place
    releases: list[list[int]] = [[] for _ in instructions]
    begins: list[list[int]] = [[] for _ in instructions]
    for number, place in last.items():
        releases[place].append(number)
        begins[first[number]].append(number)
    alive = 0
    for place, (new, done) in enumerate(zip(begins, releases, strict=True)):
        alive += sum(4 * prod(registers[number].shape) for number in new)
        if alive > MAX_LIVE_BYTES:
            raise BytecodeError(
                f"instruction {place}: {alive} bytes of registers alive at once, {MAX_LIVE_BYTES} are allowed"
            )
        alive -= sum(4 * prod(registers[number].shape) for number in done)
    return tuple(map(tuple, releases))


def _work(trip: int, registers: tuple[RegisterSpec, ...], instructions: tuple[Instruction, ...]) -> int:
    """Elements of registers written and read by a run; 16 more per instruction stand for its issue."""
    per_pass = 0
    for instruction in instructions:
        per_pass += 16 + sum(prod(registers[number].shape) for number in instruction.touched)
    work = trip * per_pass
    if work > MAX_WORK:
        raise BytecodeError(f"{trip} passes of {per_pass} elements are {work}, {MAX_WORK} are allowed")
    return work
