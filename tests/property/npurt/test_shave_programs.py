"""Random and mutated SHAVE programs are either refused with one line or run inside their views."""

import numpy as np

from npurt.abi.bytecode import ARG, HEADER, INSTRUCTION, REGISTER, ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.errors import BytecodeError
from npurt.shave import ArgSpec, Program, ProgramBuilder, listing, parse, prepare
from npurt.shave.rules import RULES, ShapeRule

PROGRAMS = 1000  # random ones, and as many mutated ones
GUARD = 64  # bytes around every view


def random_program(rng: np.random.Generator) -> bytes:
    """A valid program of up to twelve operations over a few registers."""
    b = ProgramBuilder(trip=int(rng.integers(1, 4)))
    shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4))))
    memory_types = [DType.F32, DType.F16, DType.BF16, DType.I32, DType.I8, DType.U8, DType.BOOL]
    steps = [0, 2, 16, -4]
    values = []
    for _ in range(int(rng.integers(1, 4))):
        dtype = memory_types[int(rng.integers(len(memory_types)))]
        values.append(b.load(b.arg(ArgMode.IN, dtype, shape, step=int(rng.choice(steps)))))
    elementwise = [
        op for op, rule in RULES.items() if rule.shape is ShapeRule.BROADCAST and op not in (Op.COPY, Op.CAST)
    ]
    for _ in range(int(rng.integers(1, 12))):
        x = values[int(rng.integers(len(values)))]
        choice = rng.random()
        axis = int(rng.integers(len(x.shape)))
        if choice < 0.6:
            op = elementwise[int(rng.integers(len(elementwise)))]
            operands = [values[int(rng.integers(len(values)))] for _ in RULES[op].operands]
            try:
                values.append(b.op(op, *operands))
            except BytecodeError:
                values.append(b.cast(x, DType.F32))
        elif choice < 0.75 and x.dtype is not DType.BOOL:
            values.append(b.reduce([Op.SUM, Op.RMAX, Op.ARGMIN, Op.PROD][int(rng.integers(4))], x, axis))
        elif choice < 0.85:
            values.append(b.transpose(x, tuple(int(i) for i in rng.permutation(len(x.shape)))))
        else:
            values.append(b.slice(x, axis, 0, x.shape[axis]))
    out = {DType.F32: DType.F16, DType.I32: DType.I8, DType.BOOL: DType.BOOL}
    last = values[-1]
    b.store(b.arg(ArgMode.OUT, out[last.dtype], last.shape, step=int(rng.choice([0, 64]))), last)
    return b.bytes()


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
    pointers, guards = [], []
    for arg in program.args:
        memory = rng.integers(0, 256, arg.high - arg.low + 2 * GUARD, np.uint8)
        pointers.append((memory, GUARD - arg.low))
        guards.append(memory.copy())
    prepare(program).bind(pointers)()
    for arg, (memory, _), before in zip(program.args, pointers, guards, strict=True):
        kept = np.ones(memory.size, bool) if not arg.writes else touched(arg, memory.size, program.trip)
        np.testing.assert_array_equal(memory[kept], before[kept])


def touched(arg: ArgSpec, size: int, trip: int) -> np.ndarray:
    """Mask of the bytes outside the view on every pass."""
    outside = np.ones(size, np.uint8)
    for turn in range(trip):
        at = GUARD - arg.low + turn * arg.step
        view = np.ndarray((*arg.shape, arg.dtype.nbytes), np.uint8, outside, at, (*arg.stride, 1))
        view[...] = 0
    return outside.astype(bool)


def test_random_and_mutated_programs_run_in_bounds_or_are_refused():
    rng = np.random.default_rng(2024)
    ran = refused = 0
    for _ in range(PROGRAMS):
        code = random_program(rng)
        program = parse(code)
        listing(program)
        run_in_bounds(program, rng)
        try:
            program = parse(mutated(code, rng))
        except BytecodeError as error:
            assert "\n" not in str(error)
            refused += 1
            continue
        if program.work < 1 << 22 and all(arg.high - arg.low < 1 << 22 for arg in program.args):
            listing(program)
            run_in_bounds(program, rng)
            ran += 1
    assert refused > PROGRAMS // 4
    assert ran > PROGRAMS // 20


def test_random_bytes_are_refused():
    rng = np.random.default_rng(5)
    for _ in range(300):
        code = rng.integers(0, 256, int(rng.integers(0, 400)), np.uint8).tobytes()
        if rng.random() < 0.5:
            code = np.array(0x4B56484E, "<u4").tobytes() + code[4:]
        try:
            parse(code)
        except BytecodeError as error:
            assert "\n" not in str(error)
        else:
            raise AssertionError(code)
