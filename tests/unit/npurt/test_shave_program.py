"""The bytecode verifier: exact messages for each rule, and the listing."""

import numpy as np
import pytest

from npurt.abi.bytecode import ARG, HEADER, INSTRUCTION, REGISTER, ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.errors import BytecodeError
from npurt.shave import ProgramBuilder, listing, parse


def scaled_rows() -> ProgramBuilder:
    """y = f16(x * rsqrt(sum(x * x))), two arguments, six registers, seven instructions."""
    b = ProgramBuilder()
    x = b.arg(ArgMode.IN, DType.F16, (2, 8))
    y = b.arg(ArgMode.OUT, DType.F16, (2, 8), stride=(32, 2))
    v = b.load(x)
    s = b.reduce(Op.SUM, b.op(Op.MUL, v, v), 1)
    b.store(y, b.op(Op.MUL, v, b.op(Op.RSQRT, b.op(Op.ADD, s, b.const(0.1, DType.F32)))))
    return b


def changed(table: np.dtype, row: int, **fields: object) -> bytes:
    """The program with fields of one row of a table changed."""
    code = bytearray(scaled_rows().bytes())
    sizes = {HEADER: 0, ARG: HEADER.itemsize, REGISTER: HEADER.itemsize + 2 * ARG.itemsize}
    sizes[INSTRUCTION] = sizes[REGISTER] + 7 * REGISTER.itemsize
    rows = np.frombuffer(code, table, 1 if table is HEADER else -1 if table is INSTRUCTION else row + 1, sizes[table])
    for name, value in fields.items():
        rows[row][name] = value
    return bytes(code)


REFUSALS = [
    (changed(HEADER, 0, magic=5), "magic 0x00000005 where 0x4b56484e is due: no SHAVE program"),
    (changed(HEADER, 0, trip=0), "trip 0, 1 to 65536 passes are allowed"),
    (changed(HEADER, 0, reserved=1), "reserved bytes of the header are not zero"),
    (changed(HEADER, 0, registers=60000), "60000 registers, at most 16384 are allowed"),
    (changed(HEADER, 0, instructions=9), "428 bytes, the header's counts need 444"),
    (scaled_rows().bytes()[:20], "20 bytes, a program's header has 32"),
    (changed(ARG, 0, mode=9), "argument 0: mode 9 or element type 2 is unknown"),
    (changed(ARG, 0, rank=5), "argument 0: rank 5, at most 4 is allowed"),
    (changed(ARG, 0, rank=1), "argument 0: shape places beyond rank 1 are not zero"),
    (changed(ARG, 1, stride=(14, 2, 0, 0)), "argument 1: elements of the written view [2, 8], strides [14, 2] overlap"),
    (changed(ARG, 1, stride=(32, 0, 0, 0)), "argument 1: elements of the written view [2, 8], strides [32, 0] overlap"),
    (changed(ARG, 0, mode=4), "argument 0: a scalar is one i32 without shape and step"),
    (changed(ARG, 0, mode=2), "instruction 0, LOAD: argument 0 has mode OUT"),
    (changed(ARG, 0, dtype=8), "instruction 0, LOAD: argument 0 is i64[2, 8] and the register f32[2, 8]"),
    (changed(REGISTER, 0, dtype=2), "register 0: type 2 is none of f32, i32, bool, or padding is not zero"),
    (changed(REGISTER, 1, shape=(2, 7, 0, 0)), "instruction 1, MUL: operand [2, 8] does not broadcast to [2, 7]"),
    (changed(REGISTER, 1, dtype=4), "instruction 1, MUL: types iff (result first) are none of fff iii"),
    (changed(REGISTER, 2, shape=(2, 8, 0, 0)), "instruction 2, SUM: [2, 8] where [2, 1] is due"),
    (changed(INSTRUCTION, 2, op=200), "instruction 2: opcode 200 is unknown"),
    (changed(INSTRUCTION, 2, axis=2), "instruction 2, SUM: axis 2 of rank 2"),
    (changed(INSTRUCTION, 2, axis=-1), "instruction 2, SUM: axis -1 of rank 2"),
    (changed(INSTRUCTION, 2, c=1), "instruction 2, SUM: an unused field is not zero"),
    (changed(INSTRUCTION, 2, imm=1), "instruction 2, SUM: an unused field is not zero"),
    (changed(INSTRUCTION, 1, b=3), "instruction 1, MUL: register 3 is read before it is written"),
    (changed(INSTRUCTION, 1, b=70), "instruction 1, MUL: register 70 does not exist"),
    (changed(INSTRUCTION, 1, dst=70), "instruction 1, MUL: register 70 does not exist"),
    (changed(INSTRUCTION, 0, a=2), "instruction 0, LOAD: argument 2 does not exist"),
    (changed(INSTRUCTION, 7, dst=1), "instruction 7, STORE: dst of a store is not zero"),
]


@pytest.mark.parametrize(("code", "message"), REFUSALS, ids=[m[:40] for _, m in REFUSALS])
def test_refusals(code: bytes, message: str):
    with pytest.raises(BytecodeError) as caught:
        parse(code)
    assert str(caught.value) == message


def test_caps_on_work_and_memory():
    b = ProgramBuilder(trip=60_000)
    b.op(Op.NEG, b.iota((1 << 18, 1), 0))
    with pytest.raises(BytecodeError, match=r"60000 passes of 786464 elements are 47187840000, 4294967296 are allowed"):
        parse(b.bytes())
    b = ProgramBuilder()
    big = b.iota((1 << 26, 1), 0)
    b.op(Op.ADD, big, b.op(Op.NEG, big))
    with pytest.raises(
        BytecodeError, match=r"instruction 1: 536870912 bytes of registers alive at once, 268435456 are allowed"
    ):
        parse(b.bytes())


def test_empty_axis_has_no_maximum():
    b = ProgramBuilder()
    b.reduce(Op.RMAX, b.const(0, DType.F32, (2, 0)), 1)
    with pytest.raises(BytecodeError, match=r"instruction 1, RMAX: axis 1 of f32\[2, 0\] is empty"):
        parse(b.bytes())


def test_extents_cover_every_pass_and_negative_strides():
    b = ProgramBuilder(trip=3)
    b.arg(ArgMode.IN, DType.F16, (4, 5), stride=(-20, 2), step=100)
    b.arg(ArgMode.OUT, DType.F32, (2,), step=-8)
    b.arg(ArgMode.IN, DType.F32, (0, 7))
    b.scalar_arg()
    assert [(arg.low, arg.high) for arg in parse(b.bytes()).args] == [(-60, 210), (-16, 8), (0, 0), (0, 4)]


def test_listing():
    assert listing(parse(scaled_rows().bytes())) == (
        "program trip 1\n"
        "  arg 0 in f16[2,8] stride [16,2]\n"
        "  arg 1 out f16[2,8] stride [32,2]\n"
        "  %0 f32[2,8] = load arg0\n"
        "  %1 f32[2,8] = mul %0 %0\n"
        "  %2 f32[2,1] = sum %1 axis 1\n"
        "  %3 f32[] = const 0.1\n"
        "  %4 f32[2,1] = add %2 %3\n"
        "  %5 f32[2,1] = rsqrt %4\n"
        "  %6 f32[2,8] = mul %0 %5\n"
        "  store arg1 %6\n"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda b, x: b.op(Op.AND, x, x),
            r"AND does not take f32\[2, 3\], f32\[2, 3\]: types \(result first\) may be bbb",
        ),
        (lambda b, x: b.op(Op.ADD, x, b.const(0, DType.F32, (4,))), r"ADD: f32\[2, 3\], f32\[4\] do not broadcast"),
        (lambda b, x: b.reduce(Op.SUM, x, 2), r"SUM along axis 2 of \[2, 3\]: axes count from 0"),
        (lambda b, x: b.reshape(x, (5,)), r"RESHAPE: \[5\] has 5 elements, the operand 6"),
        (lambda b, x: b.slice(x, 1, 2, 2), r"SLICE: \[2, 2\] where a part of \[2, 3\] from 2 along axis 1 is due"),
        (
            lambda b, x: b.store(b.arg(ArgMode.OUT, DType.I8, (2, 3)), x),
            r"STORE of f32\[2, 3\] into argument 1, i8\[2, 3\]",
        ),
        (lambda b, x: b.load(b.arg(ArgMode.IN, DType.I64, (2,))), r"LOAD of argument 1: no kernel computes with i64"),
    ],
)
def test_the_builder_refuses_at_once(call, message: str):
    b = ProgramBuilder()
    x = b.load(b.arg(ArgMode.IN, DType.F32, (2, 3)))
    with pytest.raises(BytecodeError, match=message):
        call(b, x)
