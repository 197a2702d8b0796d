"""Random SHAVE programs of every opcode, damage to their bytes, and a run between guards."""

from __future__ import annotations

import numpy as np

from npurt.abi.bytecode import ARG, HEADER, INSTRUCTION, REGISTER, ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.errors import BytecodeError
from npurt.numerics import elements
from npurt.shave import ArgSpec, Program, ProgramBuilder, Register, listing, parse, prepare
from npurt.shave.rules import LETTER, RULES, ShapeRule, register_type, unpacked_type

GUARD = 64  # bytes around every view
STEPS = (0, 2, 16, -4)
MEMORY_TYPES = tuple(dtype for dtype in DType if not dtype.packed and register_type(dtype) is not None)
PACKED_TYPES = tuple(dtype for dtype in DType if unpacked_type(dtype) is not None)
_OF_LETTER = {letter: dtype for dtype, letter in LETTER.items()}
_MOST = 4096  # elements of one register


class ProgramWriter:
    """Adds random instructions to one program. rng: decides everything."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.builder = ProgramBuilder(trip=int(rng.integers(1, 4)))
        self.values: list[Register] = []
        shape = self._shape()
        for _ in range(int(rng.integers(1, 4))):
            self._load(shape)

    def add(self, op: Op) -> None:
        """One instruction of `op`, and those that make its operands: casts, constants and changes of shape."""
        before = len(self.values)
        self._add(op)
        for value in self.values[before:]:
            assert int(np.prod(value.shape)) <= _MOST

    def store(self) -> None:
        """Stores one of the registers, the last one half of the time."""
        value = self.values[-1] if self.rng.random() < 0.5 else self._any()
        kinds = [dtype for dtype in MEMORY_TYPES if register_type(dtype) is value.dtype]
        mode = ArgMode.OUT if self.rng.random() < 0.7 else ArgMode.INOUT
        dtype = kinds[int(self.rng.integers(len(kinds)))]
        self.builder.store(self.builder.arg(mode, dtype, value.shape, step=int(self.rng.choice([0, 64]))), value)

    def _add(self, op: Op) -> None:
        b, rule = self.builder, RULES[op]
        if op is Op.LOAD:
            self._load(self._shape())
        elif op is Op.STORE:
            self.store()
        elif op is Op.SCALAR:
            self.values.append(b.scalar(b.scalar_arg()))
        elif op is Op.CONST:
            self.values.append(self._constant(self._letter(rule.signatures)[0], self._shape()))
        elif op is Op.IOTA:
            shape = self._shape()
            self.values.append(b.iota(shape, int(self.rng.integers(len(shape)))))
        elif rule.shape is ShapeRule.BROADCAST:
            self._elementwise(op)
        else:
            self.values.append(self._shaped(op))

    def _elementwise(self, op: Op) -> None:
        signature = self._letter(RULES[op].signatures)
        operands = [self._of(letter) for letter in signature[1:]]
        try:
            shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        except ValueError:  # shapes that do not meet: the last operand becomes one number
            operands = [operands[0], *(self._constant(letter, ()) for letter in signature[2:])]
            shape = operands[0].shape
        if int(np.prod(shape)) > _MOST:
            return
        if op is Op.COPY:
            lead = (2,) if len(shape) < 4 and int(np.prod(shape)) * 2 <= _MOST else ()
            self.values.append(self.builder.copy(operands[0], (*lead, *shape)))
        elif op is Op.CAST:
            self.values.append(self.builder.cast(operands[0], _OF_LETTER[signature[0]]))
        else:
            self.values.append(self.builder.op(op, *operands))

    def _shaped(self, op: Op) -> Register:
        b, signature = self.builder, self._letter(RULES[op].signatures)
        x = self._ranked(self._of(signature[1]))
        axis = int(self.rng.integers(len(x.shape)))
        extent = x.shape[axis]
        if op is Op.RESHAPE:
            return b.reshape(x, (int(np.prod(x.shape)), 1))
        if op is Op.TRANSPOSE:
            return b.transpose(x, tuple(int(i) for i in self.rng.permutation(len(x.shape))))
        if op is Op.SLICE:
            start = int(self.rng.integers(extent + 1))
            return b.slice(x, axis, start, int(self.rng.integers(extent - start + 1)))
        if op is Op.CONCAT:
            return b.concat(x, b.slice(x, axis, 0, extent // 2), axis) if extent * 2 <= 64 else x
        if op is Op.TAKE:
            count = int(self.rng.integers(4))
            return b.take(x, b.op(Op.SUB, b.iota((count,), 0), b.const(int(self.rng.integers(-3, 3)), DType.I32)))
        if op is Op.UNPACK:
            return self._unpacked(x, signature[0])
        if op in (Op.TOPK, Op.TOPK_INDEX):
            return b.topk(op, x, axis, int(self.rng.integers(extent + 1)))
        if op is Op.CUMSUM:
            return b.cumsum(x, axis)
        return b.reduce(op, x, axis) if extent or not RULES[op].nonempty else x

    def _unpacked(self, x: Register, letter: str) -> Register:
        """The last axis read as codes of a type whose elements it holds whole."""
        kinds = [
            dtype
            for dtype in PACKED_TYPES
            if unpacked_type(dtype) is _OF_LETTER[letter] and elements(x.shape[-1], dtype) is not None
        ]
        small = int(np.prod(x.shape)) * 4 <= _MOST
        return self.builder.unpack(x, kinds[int(self.rng.integers(len(kinds)))]) if kinds and small else x

    def _load(self, shape: tuple[int, ...]) -> None:
        dtype = MEMORY_TYPES[int(self.rng.integers(len(MEMORY_TYPES)))]
        mode = ArgMode.IN if self.rng.random() < 0.8 else ArgMode.INOUT
        step = int(self.rng.choice(STEPS))
        self.values.append(self.builder.load(self.builder.arg(mode, dtype, shape, step=step)))

    def _shape(self) -> tuple[int, ...]:
        extents = self.rng.choice([0, 1, 2, 3, 4, 5, 7], int(self.rng.integers(1, 4)), p=[0.03, *[0.97 / 6] * 6])
        return tuple(int(extent) for extent in extents)

    def _letter(self, signatures: tuple[str, ...]) -> str:
        return signatures[int(self.rng.integers(len(signatures)))]

    def _any(self) -> Register:
        return self.values[int(self.rng.integers(len(self.values)))]

    def _of(self, letter: str) -> Register:
        """A value of a type; another one converted where the chosen one has another type."""
        value = self._any()
        return value if LETTER[value.dtype] == letter else self.builder.cast(value, _OF_LETTER[letter])

    def _ranked(self, value: Register) -> Register:
        """A value with at least one axis."""
        return value if value.shape else self.builder.reshape(value, (1,))

    def _constant(self, letter: str, shape: tuple[int, ...]) -> Register:
        numbers = {"f": (0.0, -0.0, 1.5, -3.0, np.inf, np.nan, 3e38), "i": (0, 1, -1, 7, -(2**31)), "b": (0, 1)}[letter]
        return self.builder.const(numbers[int(self.rng.integers(len(numbers)))], _OF_LETTER[letter], shape)


def random_program(rng: np.random.Generator) -> bytes:
    """A valid program of one to a dozen random opcodes."""
    writer = ProgramWriter(rng)
    ops = list(RULES)
    for _ in range(int(rng.integers(1, 13))):
        writer.add(ops[int(rng.integers(len(ops)))])
    writer.store()
    return writer.builder.bytes()


def mutated(code: bytes, rng: np.random.Generator) -> bytes:
    """A few fields of random table rows changed to small or random numbers."""
    data = bytearray(code)
    counts = np.frombuffer(code, HEADER, 1)[0]
    starts = [(HEADER, 0, 1)]
    offset = HEADER.itemsize
    for name, dtype in (("args", ARG), ("registers", REGISTER), ("instructions", INSTRUCTION)):
        starts.append((dtype, offset, int(counts[name])))
        offset += int(counts[name]) * dtype.itemsize
    for _ in range(int(rng.integers(1, 4))):
        dtype, start, rows = starts[int(rng.choice([0, 1, 2, 3], p=[0.1, 0.3, 0.2, 0.4]))]
        at = start + int(rng.integers(rows)) * dtype.itemsize + int(rng.integers(dtype.itemsize))
        data[at] = int(rng.integers(8)) if rng.random() < 0.7 else int(rng.integers(256))
    return bytes(data)


def run_in_bounds(program: Program, rng: np.random.Generator) -> None:
    """Runs on memory of just the declared extents with guards around; guards and inputs must stay as they are."""
    pointers, before = [], []
    for arg in program.args:
        memory = rng.integers(0, 256, arg.high - arg.low + 2 * GUARD, np.uint8)
        pointers.append((memory, GUARD - arg.low))
        before.append(memory.copy())
    prepare(program).bind(pointers)()
    for arg, (memory, _), old in zip(program.args, pointers, before, strict=True):
        untouched = not arg.writes or 0 in arg.shape
        kept = np.ones(memory.size, bool) if untouched else _outside(arg, memory.size, program.trip)
        np.testing.assert_array_equal(memory[kept], old[kept])


def try_bytes(code: bytes, rng: np.random.Generator) -> bool | None:
    """Verifies and runs a program. True: it ran, False: it was refused in one line, None: too large to run here."""
    try:
        program = parse(code)
    except BytecodeError as error:
        assert str(error) and "\n" not in str(error)
        return False
    assert listing(program)
    if program.work >= 1 << 22 or any(arg.high - arg.low >= 1 << 22 for arg in program.args):
        return None
    run_in_bounds(program, rng)
    return True


def _outside(arg: ArgSpec, size: int, trip: int) -> np.ndarray:
    """Mask of the bytes outside the view on every pass."""
    outside = np.ones(size, np.uint8)
    for turn in range(trip):
        at = GUARD - arg.low + turn * arg.step
        view = np.ndarray((*arg.shape, arg.dtype.nbytes), np.uint8, outside, at, (*arg.stride, 1))
        view[...] = 0
    return outside.astype(bool)
