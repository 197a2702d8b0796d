"""Row, elementwise and movement kernels: against float64 formulas, and eager against tasks bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import tile as t
from npukernels import elementwise, normalise, reduce, rotary, rows
from tests.support.kernels import run_both, types_of

RNG = np.random.default_rng(11)
TOLERANCE = {np.float32: 2e-6, np.float16: 1.5e-3}


def normal(*shape: int, dtype: type = np.float16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def close(got: np.ndarray, want: np.ndarray) -> None:
    tolerance = TOLERANCE[got.dtype.type]
    np.testing.assert_allclose(wide(got), want, rtol=tolerance, atol=tolerance)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# --- elementwise


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (4, 8), (5, 9), (13, 17)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_map_broadcasts_its_inputs(shape: tuple[int, int], dtype: type) -> None:
    a, row, column = normal(*shape, dtype=dtype), normal(1, shape[1]), normal(shape[0], 1)
    out = np.zeros(shape, dtype)
    got = run_both(
        elementwise.elementwise, [a, row, column, out], fn=lambda x, y, z: x * y + t.exp(z), tile=(4, 8),
    )[3]  # fmt: skip
    close(got, wide(a) * wide(row) + np.exp(wide(column)))


def test_map_with_two_outputs_and_bool() -> None:
    a, b = normal(5, 7), normal(5, 7)
    arrays = [a, b, np.zeros((5, 7), np.float16), np.zeros((5, 7), np.bool_)]
    got = run_both(elementwise.elementwise, arrays, fn=lambda x, y: (t.maximum(x, y), x > y), outputs=2, tile=(2, 7))
    np.testing.assert_array_equal(got[2], np.maximum(a, b))
    np.testing.assert_array_equal(got[3], a > b)


def test_map_of_integers_and_rank_four_views() -> None:
    a = RNG.integers(-50, 50, (2, 3, 4, 5)).astype(np.int32).transpose(0, 2, 1, 3)
    out = np.zeros(a.shape, np.int32)
    got = run_both(
        elementwise.elementwise, [a, out], memory=["cmx", "ddr"], fn=lambda x: x * 3 - x % 7, tile=(1, 3, 3, 5)
    )
    np.testing.assert_array_equal(got[1], a * 3 - a % 7)


def test_a_map_may_write_over_its_input() -> None:
    a = normal(5, 8)
    want = np.exp(wide(a))
    got = run_both(elementwise.elementwise, [a, a], memory="cmx", fn=t.exp, tile=(2, 8))
    close(got[1], want)


@pytest.mark.parametrize("memory", [["ddr", "ddr"], ["ddr", "cmx"], ["cmx", "ddr"], ["cmx", "cmx"]])
def test_copy_converts_and_transposes_with_one_transfer_a_block(memory: list[str]) -> None:
    x, out = normal(6, 5, dtype=np.float32).T, np.zeros((5, 6), np.float16)
    got = run_both(elementwise.copy, [x, out], memory=memory, tile=(2, 6))[1]
    np.testing.assert_array_equal(got, x.astype(np.float16))
    plan = elementwise.copy.trace(types_of([x, out], memory), {"tile": (2, 6)}).plan()
    assert [task.engine for task in plan.tasks] == ["dma.in" if memory[0] == "ddr" else "dma.out"]
    assert plan.buffers == ()


@pytest.mark.parametrize("dtype,value", [(np.float16, -1.5), (np.int32, -7), (np.int8, 5), (np.bool_, 1)])
def test_fill(dtype: type, value: float) -> None:
    got = run_both(elementwise.fill, [np.zeros((5, 3), dtype)], memory="cmx", value=value, tile=(2, 3))[0]
    np.testing.assert_array_equal(got, np.full((5, 3), value, dtype))


# --- reductions

FORMULAS = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
    "sum_square": lambda x, **axes: np.sum(x * x, **axes), "l1": lambda x, **axes: np.sum(np.abs(x), **axes),
    "l2": lambda x, **axes: np.sqrt(np.sum(x * x, **axes)),
}  # fmt: skip


@pytest.mark.parametrize("op", FORMULAS)
@pytest.mark.parametrize("axes", [(3,), (0,), (1, 2), (1, 3), (0, 1, 2, 3)])
def test_reduce(op: str, axes: tuple[int, ...]) -> None:
    x = normal(3, 5, 4, 2, dtype=np.float32)
    want = FORMULAS[op](wide(x), axis=axes, keepdims=True)
    got = run_both(reduce.reduce, [x, np.zeros(want.shape, np.float32)], op=op, axes=axes, tile=(2, 2, 3, 2))[1]
    close(got, want)


def test_argmax_and_argmin_take_the_lowest_index_of_ties() -> None:
    x = np.array([[1, 3, 3, 0, 0], [2, 2, 2, 2, 2], [-1, -2, 5, 5, -2]], np.float16)
    for op, want in (("argmax", np.argmax(x, 1)), ("argmin", np.argmin(x, 1))):
        got = run_both(reduce.reduce, [x, np.zeros((3, 1), np.int32)], memory="cmx", op=op, tile=(2, 5))[1]
        np.testing.assert_array_equal(got[:, 0], want)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum(axis: int, reverse: bool, exclusive: bool) -> None:
    x = normal(3, 5, 4)
    flipped = np.flip(wide(x), axis) if reverse else wide(x)
    want = np.cumsum(flipped, axis) - (flipped if exclusive else 0)
    arrays = [x, np.zeros(x.shape, np.float32)]
    got = run_both(reduce.cumsum, arrays, axis=axis, exclusive=exclusive, reverse=reverse, tile=(2, 3, 3))[1]
    close(got, np.flip(want, axis) if reverse else want)


# --- whole rows


@pytest.mark.parametrize("width", [1, 7, 8, 9, 31])
@pytest.mark.parametrize("memory", ["ddr", "cmx"])
def test_softmax(width: int, memory: str) -> None:
    x = normal(5, width) * 4
    close(run_both(normalise.softmax, [x, np.zeros_like(x)], memory=memory, tile=(2, width))[1], softmax(wide(x)))
    got = run_both(normalise.softmax, [x, np.zeros_like(x)], memory=memory, tile=(2, width), log=True)[1]
    np.testing.assert_allclose(wide(got), np.log(softmax(wide(x))), rtol=2e-3, atol=4e-3)


def test_softmax_of_a_row_that_is_masked_everywhere_is_zero() -> None:
    x = normal(3, 6)
    x[1] = -np.inf
    got = run_both(normalise.softmax, [x, np.zeros_like(x)], tile=(3, 6))[1]
    np.testing.assert_array_equal(got[1], np.zeros(6))
    close(got[[0, 2]], softmax(wide(x[[0, 2]])))


@pytest.mark.parametrize("with_residual", [False, True])
def test_rmsnorm(with_residual: bool) -> None:
    x, residual, weight = normal(5, 24), normal(5, 24), normal(24)
    extra = [residual, np.zeros_like(x)] if with_residual else []
    memory = ["cmx", "ddr", "cmx", "cmx", "cmx"][: 3 + len(extra)]
    got = run_both(normalise.rmsnorm, [x, weight, np.zeros_like(x), *extra], memory=memory, eps=1e-5, tile=(2, 24))
    y = wide((wide(x) + wide(residual)).astype(np.float16)) if with_residual else wide(x)
    close(got[2], y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * wide(weight))
    if with_residual:
        np.testing.assert_array_equal(wide(got[4]), y)


def test_residual_and_norm_are_one_run() -> None:
    x = normal(4, 24)
    types = types_of([x, normal(24), x, x, x], ["cmx", "cmx", "cmx", "cmx", "cmx"])
    plan = normalise.rmsnorm.trace(types, {"eps": 1e-5, "tile": (4, 24)}).plan()
    assert [task.engine for task in plan.tasks] == ["shave"]
    assert plan.bytes == 0


@pytest.mark.parametrize("with_bias", [False, True])
def test_layernorm(with_bias: bool) -> None:
    x, weight, bias = normal(2, 5, 24), normal(24), normal(24)
    kernel = normalise.layernorm if with_bias else normalise.layernorm_plain
    arrays = [x, weight, bias, np.zeros_like(x)] if with_bias else [x, weight, np.zeros_like(x)]
    got = run_both(kernel, arrays, eps=1e-5, tile=(1, 2, 24))[-1]
    c = wide(x) - wide(x).mean(-1, keepdims=True)
    close(got, c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * wide(weight) + (wide(bias) if with_bias else 0))


# --- rotary, rows


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [4, 10])
@pytest.mark.parametrize("memory", ["ddr", "cmx"])
def test_rotary(rotary_dim: int, interleaved: bool, memory: str) -> None:
    x = normal(5, 3, 10, dtype=np.float32).transpose(1, 0, 2)  # [H, C, D] as a projection leaves it: [C, H, D]
    cos, sin = normal(5, rotary_dim // 2, dtype=np.float32), normal(5, rotary_dim // 2, dtype=np.float32)
    out = np.zeros((3, 5, 10), np.float32)
    arrays, names = [x, cos, sin, out], [memory, "ddr", "ddr", memory]
    got = run_both(rotary.rotary, arrays, memory=names, rotary_dim=rotary_dim, interleaved=interleaved, bh=2, bc=3)[3]
    half = rotary_dim // 2
    first = slice(0, rotary_dim, 2) if interleaved else slice(0, half)
    second = slice(1, rotary_dim, 2) if interleaved else slice(half, rotary_dim)
    want, a, b = wide(x).copy(), wide(x)[:, :, first], wide(x)[:, :, second]
    want[:, :, first] = a * cos - b * sin
    want[:, :, second] = b * cos + a * sin
    close(got, want)


@pytest.mark.parametrize("memory", [["ddr", "ddr", "ddr"], ["ddr", "cmx", "cmx"], ["cmx", "ddr", "cmx"]])
def test_gather_rows_gives_zeros_outside_the_table(memory: list[str]) -> None:
    table, ids = normal(9, 2, 4), np.array([1, 8, 9, -1, 0, 8, 3], np.int32)
    got = run_both(rows.gather_rows, [table, ids, np.ones((7, 2, 4), np.float16)], memory=memory, bt=3)[2]
    inside = (ids >= 0) & (ids < 9)
    np.testing.assert_array_equal(got[inside], table[ids[inside]])
    np.testing.assert_array_equal(got[~inside], np.zeros((2, 2, 4)))


@pytest.mark.parametrize("n_past,n_new", [(0, 4), (5, 2), (8, 1), (3, 0)])
@pytest.mark.parametrize("memory", ["cmx", "ddr"])
def test_append_rows_writes_the_valid_rows_at_n_past(n_past: int, n_new: int, memory: str) -> None:
    new, state = normal(3, 4, 5), normal(3, 9, 5)
    step = {"n_past": n_past, "n_new": n_new}
    got = run_both(rows.append_rows, [new, state], memory=[memory, "ddr"], step=step, bg=2)[1]
    want = state.copy()
    want[:, n_past : n_past + n_new] = new[:, :n_new]
    np.testing.assert_array_equal(got, want)


def test_step_rows_is_one_transfer_at_n_past() -> None:
    table, out = normal(9, 5), np.zeros((3, 5), np.float16)
    got = run_both(rows.step_rows, [table, out], memory=["ddr", "cmx"], step={"n_past": 4, "n_new": 3})[1]
    np.testing.assert_array_equal(got, table[4:7])
    assert len(rows.step_rows.trace(types_of([table, out], ["ddr", "cmx"]), {}).plan().tasks) == 1


# --- types that memory has and arithmetic has not


def bf16(*shape: int) -> np.ndarray:
    """Raw bf16 numbers as uint16."""
    return (RNG.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_bf16_arrays() -> None:
    x = bf16(5, 9)
    value = (x.astype(np.uint32) << 16).view(np.float32)
    got = run_both(elementwise.copy, [x, np.zeros((5, 9), np.float32)], tile=(2, 9))[1]
    np.testing.assert_array_equal(got, value)
    back = run_both(elementwise.elementwise, [x, np.zeros((5, 9), np.uint16)], memory="cmx", fn=t.exp, tile=(2, 9))[1]
    close_to = (back.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(close_to, np.exp(value.astype(np.float64)), rtol=2.0**-8)


def test_narrow_integers_saturate_at_the_store() -> None:
    x = np.array([[-300, -128, -1, 0, 127, 300]], np.int32)
    got = run_both(elementwise.elementwise, [x, np.zeros(x.shape, np.int8)], fn=lambda a: a + 0, tile=(1, 6))[1]
    np.testing.assert_array_equal(got, np.clip(x, -128, 127))


def test_i64_is_only_copied() -> None:
    ids = np.array([[1, -(2**40), 3]])
    np.testing.assert_array_equal(run_both(elementwise.copy, [ids, np.zeros_like(ids)], tile=(1, 2))[1], ids)
    with pytest.raises(t.KernelError) as caught:
        elementwise.copy.eager(ids, np.zeros((1, 3), np.int32), tile=(1, 3))
    assert caught.value.reason == "a tile of i64 cannot be stored in i32[1, 3]; i64 is only copied"
    with pytest.raises(t.KernelError) as caught:
        elementwise.elementwise.eager(ids, ids, fn=lambda a: a + a, tile=(1, 3))
    assert caught.value.reason == "i64 tiles are only loaded and stored, there is no add of them"
