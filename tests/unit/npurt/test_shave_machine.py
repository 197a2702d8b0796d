"""Each opcode of the SHAVE machine against NumPy in float64, and the rules of loads, stores and passes."""

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from npurt import numerics
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder, Register, parse, prepare
from npurt.shave.rules import RULES

F32, I32, BOOL = DType.F32, DType.I32, DType.BOOL
X = np.float32([[1.5, -2.25, 0.0, 7.0], [-0.5, 3.0, np.inf, -9.75]])
Y = np.float32([[2.0, 0.5, -3.0, 1.25], [4.0, -3.0, 1.0, 2.5]])
P = np.float32([[0.25, 1.0, 2.0, 30.0], [0.5, 3.0, 0.75, 9.75]])
W = np.float32([[np.nan, 1, np.inf, 0]])
K = np.int32([[7, -7, 0, 2**31 - 1], [5, -(2**31), 3, -9]])
L = np.int32([[2, 2, 0, -1], [-3, -1, 3, 4]])
M = np.array([[True, False, True, True], [False, False, True, False]])
N = np.array([[True, True, False, True], [False, True, True, False]])
DTYPES = {np.dtype(np.float32): F32, np.dtype(np.int32): I32, np.dtype(bool): BOOL}


def run(build: Callable[..., Register], *inputs: np.ndarray) -> np.ndarray:
    """Runs the program that `build` writes for the given inputs; the result's register becomes the one output."""
    b = ProgramBuilder()
    arrays = [np.ascontiguousarray(x) for x in inputs]
    registers = [b.load(b.arg(ArgMode.IN, DTYPES[x.dtype], x.shape)) for x in arrays]
    result = build(b, *registers)
    b.store(b.arg(ArgMode.OUT, result.dtype, result.shape), result)
    storage = {F32: np.float32, I32: np.int32, BOOL: np.bool_}[result.dtype]
    out = np.zeros(result.shape, storage)
    pointers = [(x.reshape(-1).view(np.uint8), 0) for x in (*arrays, out)]
    prepare(parse(b.bytes())).bind(pointers)()
    return out


def f64(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *operands: function(*(x.astype(np.float64) for x in operands)).astype(np.float32)


ELEMENTWISE = [
    (Op.ADD, np.add, (X, Y)),
    (Op.SUB, np.subtract, (X, Y)),
    (Op.MUL, np.multiply, (X, Y)),
    (Op.DIV, np.divide, (X, Y)),
    (Op.MIN, np.minimum, (X, Y)),
    (Op.MAX, np.maximum, (X, Y)),
    (Op.MOD, np.mod, (Y, P)),
    (Op.FMOD, np.fmod, (Y, P)),
    (Op.POW, f64(np.power), (P, Y)),
    (Op.ADD, lambda a, b: (a.astype(np.int64) + b).astype(np.int32), (K, L)),
    (Op.SUB, lambda a, b: (a.astype(np.int64) - b).astype(np.int32), (K, L)),
    (Op.MUL, lambda a, b: (a.astype(np.int64) * b).astype(np.int32), (K, L)),
    (Op.DIV, lambda a, b: np.int32([[3, -3, 0, -(2**31) + 1], [-1, -(2**31), 1, -2]]), (K, L)),
    (Op.MOD, lambda a, b: np.int32([[1, 1, 0, 0], [-1, 0, 0, 3]]), (K, L)),
    (Op.FMOD, lambda a, b: np.int32([[1, -1, 0, 0], [2, 0, 0, -1]]), (K, L)),
    (Op.MIN, np.minimum, (K, L)),
    (Op.MAX, np.maximum, (K, L)),
    (Op.AND, np.logical_and, (M, N)),
    (Op.OR, np.logical_or, (M, N)),
    (Op.XOR, np.logical_xor, (M, N)),
    (Op.EQ, np.equal, (X, Y)),
    (Op.NE, np.not_equal, (M, N)),
    (Op.LT, np.less, (K, L)),
    (Op.LE, np.less_equal, (X, Y)),
    (Op.GT, np.greater, (X, Y)),
    (Op.GE, np.greater_equal, (K, L)),
    (Op.WHERE, np.where, (M, X, Y)),
    (Op.WHERE, np.where, (M, K, L)),
    (Op.NEG, np.negative, (X,)),
    (Op.ABS, np.abs, (X,)),
    (Op.SIGN, np.sign, (K,)),
    (Op.EXP, f64(np.exp), (Y,)),
    (Op.EXP2, f64(np.exp2), (Y,)),
    (Op.LOG, f64(np.log), (P,)),
    (Op.SQRT, np.sqrt, (P,)),
    (Op.RSQRT, f64(lambda x: 1 / np.sqrt(x)), (P,)),
    (Op.RECIP, f64(lambda x: 1 / x), (P,)),
    (Op.TANH, f64(np.tanh), (Y,)),
    (Op.SIGMOID, f64(lambda x: 1 / (1 + np.exp(-x))), (Y,)),
    (Op.ERF, f64(np.vectorize(math.erf)), (P,)),
    (Op.SIN, f64(np.sin), (Y,)),
    (Op.COS, f64(np.cos), (Y,)),
    (Op.FLOOR, np.floor, (X,)),
    (Op.CEIL, np.ceil, (X,)),
    (Op.ROUND, np.rint, (X,)),
    (Op.NOT, np.logical_not, (M,)),
    (Op.ISNAN, np.isnan, (W,)),
    (Op.ISINF, np.isinf, (X,)),
    (Op.ROUND_F16, lambda x: x.astype(np.float16).astype(np.float32), (P / 3,)),
    (Op.ROUND_BF16, lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), (P / 3,)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "reference", "operands"), ELEMENTWISE, ids=[f"{c[0].name}-{i}" for i, c in enumerate(ELEMENTWISE)]
)
def test_elementwise(op: Op, reference: Callable[..., np.ndarray], operands: tuple[np.ndarray, ...]):
    with np.errstate(all="ignore"):
        want = reference(*operands)
    got = run(lambda b, *r: b.op(op, *r), *operands)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


REDUCTIONS = [
    (Op.SUM, lambda x, axis: np.sum(x, axis, keepdims=True)),
    (Op.RMAX, lambda x, axis: np.max(x, axis, keepdims=True)),
    (Op.RMIN, lambda x, axis: np.min(x, axis, keepdims=True)),
    (Op.PROD, lambda x, axis: np.prod(x, axis, keepdims=True, dtype=x.dtype)),
    (Op.ARGMAX, lambda x, axis: np.argmax(x, axis, keepdims=True).astype(np.int32)),
    (Op.ARGMIN, lambda x, axis: np.argmin(x, axis, keepdims=True).astype(np.int32)),
]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("x", [Y, L], ids=["f32", "i32"])
@pytest.mark.parametrize(("op", "reference"), REDUCTIONS, ids=[case[0].name for case in REDUCTIONS])
def test_reductions(op: Op, reference: Callable[..., np.ndarray], x: np.ndarray, axis: int):
    np.testing.assert_array_equal(run(lambda b, r: b.reduce(op, r, axis), x), reference(x, axis))


def test_cumsum():
    np.testing.assert_array_equal(run(lambda b, r: b.cumsum(r, 1), Y), np.cumsum(Y, 1))


def test_every_opcode_is_tested_or_moves_data():
    seen = {case[0] for case in ELEMENTWISE} | {case[0] for case in REDUCTIONS}
    rest = {Op.LOAD, Op.STORE, Op.CONST, Op.IOTA, Op.SCALAR, Op.COPY, Op.RESHAPE, Op.TRANSPOSE, Op.SLICE, Op.CONCAT}
    assert set(RULES) == set(Op)
    assert seen | rest | {Op.CAST, Op.TAKE, Op.CUMSUM, Op.UNPACK, Op.TOPK, Op.TOPK_INDEX} == set(Op)


@pytest.mark.parametrize("dtype", [d for d in DType if d not in (DType.BOOL, DType.I64)], ids=lambda d: d.label)
def test_unpack_reads_bytes_as_load_does(dtype: DType):
    data = np.random.default_rng(3).integers(0, 256, (3, 8)).astype(np.int32)
    got = run(lambda b, r: b.unpack(r, dtype), data)
    np.testing.assert_array_equal(got, numerics.unpack(data, dtype).astype(got.dtype))
    assert got.shape == (3, 64 // dtype.bits)


def test_topk_takes_the_largest_in_falling_order():
    nan, inf = np.nan, np.inf
    x = np.array([[1, 3, 3, -inf], [nan, 2, inf, nan], [-0.0, 0.0, -1, 5]], np.float32)
    index = np.array([[1, 2, 0], [0, 3, 2], [3, 0, 1]], np.int32)
    np.testing.assert_array_equal(run(lambda b, r: b.topk(Op.TOPK_INDEX, r, 1, 3), x), index)
    np.testing.assert_array_equal(run(lambda b, r: b.topk(Op.TOPK, r, 1, 3), x), np.take_along_axis(x, index, 1))
    whole = np.array([[5, -(2**31), 2**31 - 1]], np.int32).T
    np.testing.assert_array_equal(run(lambda b, r: b.topk(Op.TOPK, r, 0, 2), whole), [[2**31 - 1], [5]])


def test_moves():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(lambda b, r: b.transpose(r, (2, 0, 1)), x), x.transpose(2, 0, 1))
    np.testing.assert_array_equal(run(lambda b, r: b.reshape(r, (6, 4)), x), x.reshape(6, 4))
    np.testing.assert_array_equal(run(lambda b, r: b.slice(r, 1, 1, 2), x), x[:, 1:3])
    np.testing.assert_array_equal(run(lambda b, r: b.concat(r, r, 2), x), np.concatenate([x, x], 2))
    np.testing.assert_array_equal(
        run(lambda b, r: b.copy(b.slice(r, 0, 0, 1), (5, 3, 4)), x), np.broadcast_to(x[:1], (5, 3, 4))
    )
    np.testing.assert_array_equal(run(lambda b, r: b.op(Op.ADD, r, b.slice(r, 0, 0, 1)), x), x + x[:1])
    np.testing.assert_array_equal(
        run(lambda b, r: b.op(Op.ADD, b.iota((2, 3), 1), r), np.ones((), np.int32)), [[1, 2, 3]] * 2
    )


def test_take_gives_zeros_outside():
    got = run(lambda b, t, i: b.take(t, i), X, np.int32([1, -1, 0, 2, 1]))
    np.testing.assert_array_equal(got, [X[1], X[0] * 0, X[0], X[0] * 0, X[1]])


def test_casts():
    x = np.float32([1.9, -1.9, np.nan, np.inf, -np.inf, 0.0])
    assert run(lambda b, r: b.cast(r, I32), x).tolist() == [1, -1, 0, 2**31 - 1, -(2**31), 0]
    assert run(lambda b, r: b.cast(r, BOOL), x).tolist() == [True] * 5 + [False]
    assert run(lambda b, r: b.cast(r, F32), np.int32([16777217, -3])).tolist() == [16777216.0, -3.0]
    assert run(lambda b, r: b.cast(r, I32), np.array([True, False])).tolist() == [1, 0]


def test_constants_keep_their_bits():
    assert run(lambda b: b.const(-1.5, F32, (2,))).tolist() == [-1.5, -1.5]
    assert run(lambda b: b.const(-7, I32, (1, 1))).tolist() == [[-7]]
    assert run(lambda b: b.const(True, BOOL, (1,))).tolist() == [True]


def test_narrow_memory_strides_scalars_and_passes():
    """y[p, i] = f16(x[p, 2 i] * scalar + p-th u8), three passes over one program."""
    b = ProgramBuilder(trip=3)
    x = b.arg(ArgMode.IN, DType.F16, (4,), stride=(4,), step=16)
    y = b.arg(ArgMode.OUT, DType.F16, (4,), step=8)
    n = b.scalar_arg()
    u = b.arg(ArgMode.IN, DType.U8, (1,), step=1)
    product = b.op(Op.MUL, b.load(x), b.cast(b.scalar(n), F32))
    b.store(y, b.op(Op.ADD, product, b.cast(b.load(u), F32)))
    memory = np.zeros(128, np.uint8)
    values = np.linspace(-3, 3, 24, dtype=np.float16)
    memory[2:50] = values.view(np.uint8)
    memory[96:99] = [0, 7, 250]
    memory[100:104] = np.frombuffer(np.int32(-3).tobytes(), np.uint8)
    prepare(parse(b.bytes())).bind([(memory, 2), (memory, 60), (memory, 100), (memory, 96)])()
    want = values.reshape(3, 8)[:, ::2].astype(np.float32) * -3 + np.float32([[0], [7], [250]])
    np.testing.assert_array_equal(memory[60:84].view(np.float16).reshape(3, 4), want.astype(np.float16))
    assert not memory[84:96].any()


def test_a_result_may_overwrite_its_operand():
    b = ProgramBuilder()
    x = b.arg(ArgMode.INOUT, DType.F32, (3,))
    value = b.load(x)
    b.store(x, b.op(Op.ADD, value, b.const(1.0, F32)))
    b.store(x, b.op(Op.MUL, value, b.load(x)))
    memory = np.float32([1, 2, 3]).view(np.uint8)
    prepare(parse(b.bytes())).bind([(memory, 0)])()
    assert memory.view(np.float32).tolist() == [2.0, 6.0, 12.0]
