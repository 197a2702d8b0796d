"""Codes in the tile language and in the library's kernels: float64 references, eager against tasks, exact messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuc import tile as t
from npukernels import codes
from npukernels.codes import Row
from npurt import numerics
from tests.support.codes import picks, random_rows
from tests.support.kernels import run_both, types_of

RNG = np.random.default_rng(11)

FORMS = {
    "u4 a channel": Row(96, t.u4, 96, 8, t.f32),
    "i4 a channel": Row(34, t.i4, 34, 0, t.f16),
    "u8 a channel": Row(33, t.u8, 33, 128, t.f32),
    "i8 a channel": Row(96, t.i8, 96, 0, t.f16),
    "u4 groups of 32": Row(96, t.u4, 32, 8, t.f32),
    "u4 a short last group": Row(70, t.u4, 32, 8, t.f16),
    "u4 shifted groups": Row(96, t.u4, 32, 8, t.f32, t.f16),
    "u8 shifted groups": Row(48, t.u8, 16, 128, t.f16, t.f32),
    "u2 groups": Row(64, t.u2, 16, 2, t.f32),
    "mxfp4": Row(96, t.e2m1, 32, 0, t.e8m0),
    "nvfp4": Row(96, t.e2m1, 16, 0, t.e4m3),
    "mxfp8": Row(96, t.e4m3, 32, 0, t.e8m0),
    "fp8 e5m2": Row(64, t.e5m2, 32, 0, t.f32),
}
forms = pytest.mark.parametrize("row", FORMS.values(), ids=FORMS.keys())


def close(got: np.ndarray, want: np.ndarray, terms: float) -> None:
    part = {np.float32: 1e-6, np.float16: 2e-3}[got.dtype.type]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=part, atol=part * terms)


@forms
@pytest.mark.parametrize("widen", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 37), (15, 16), (17, 15), (16, 17)])
def test_products_with_codes(row: Row, m: int, n: int, widen: bool) -> None:
    rows, numbers = random_rows(n, row)
    x, out = RNG.standard_normal((m, row.k)).astype(np.float32), np.zeros((m, n), np.float32)
    ones = None if row.shifts is None else picks(row)
    got = run_both(codes.matmul_codes, [x, rows, out, ones], bm=16, bn=16, row=row, widen=widen)[2]
    size = np.abs(x).astype(np.float64) @ np.abs(numbers).T
    close(got, x.astype(np.float64) @ numbers.T, size.max() * (2 if row.shifts is None else 1000))


@forms
def test_products_in_half_precision_round_once(row: Row) -> None:
    rows, numbers = random_rows(20, row)
    x, out = RNG.standard_normal((3, row.k)).astype(np.float16), np.zeros((3, 20), np.float16)
    ones = None if row.shifts is None else picks(row)
    got = run_both(codes.matmul_codes, [x, rows, out, ones], memory=["cmx", "ddr", "cmx", "ddr"], bm=3, bn=16, row=row)
    close(got[2], x.astype(np.float64) @ numbers.T, float(np.abs(numbers).max()) * 4)


def test_a_gated_layer_of_codes() -> None:
    row = FORMS["u4 groups of 32"]
    (gate, g), (up, u) = random_rows(21, row, 1), random_rows(21, row, 2)
    x, out = RNG.standard_normal((5, row.k)).astype(np.float32), np.zeros((5, 21), np.float32)

    def gated(a: t.Tile, b: t.Tile) -> t.Tile:
        return a * t.sigmoid(a) * b

    got = run_both(codes.matmul_codes_pair, [x, gate, up, out], bm=4, bn=16, row=row, epilogue=gated)[3]
    a, b = x.astype(np.float64) @ g.T, x.astype(np.float64) @ u.T
    close(got, a / (1 + np.exp(-a)) * b, 100)


@forms
@pytest.mark.parametrize("count", [1, 3, 4, 5, 7])
def test_rows_of_a_quantised_table(row: Row, count: int) -> None:
    rows, numbers = random_rows(19, row)
    ids = RNG.integers(0, 19, count).astype(np.int32)
    ids[-1] = 19  # outside
    got = run_both(codes.gather_codes, [rows, ids, np.ones((count, row.k), np.float32)], bt=4, row=row)[2]
    close(got[:-1], numbers[ids[:-1]], 1)
    assert not got[-1].any()


@t.kernel
def both_scaled(a: t.Array, b: t.Array, a_scale: t.Array, scale: t.Array, out: t.Array, *, dtype: t.DType,
                group: int) -> None:  # fmt: skip
    tiles = [t.load(array, (0, 0), array.shape) for array in (a, b, a_scale, scale)]
    left = t.unpack(tiles[0], dtype) if a.dtype is t.u8 else tiles[0]
    y = t.mma_scaled(left, tiles[1], t.unpack(tiles[3], t.e8m0), dtype=dtype, group=group, a_scale=tiles[2])
    t.store(out, (0, 0), y)


@pytest.mark.parametrize("k", [64, 80])
def test_scales_on_both_sides(k: int) -> None:
    """Microscaled activations and weights: blocks of 32 with scales that are powers of two."""
    count = -(-k // 32)
    a, b = (RNG.integers(0, 256, (rows, k)).astype(np.uint8) & 0xBF for rows in (3, 5))
    a_scale = (2.0 ** RNG.integers(-3, 3, (3, count))).astype(np.float32)
    scale = RNG.integers(120, 130, (5, count)).astype(np.uint8)
    out = np.zeros((3, 5), np.float32)
    got = run_both(both_scaled, [a, b, a_scale, scale, out], dtype=t.e4m3, group=32)[4]
    group = np.arange(k) // 32
    left = numerics.decode(a, t.e4m3).astype(np.float64) * a_scale[:, group]
    right = numerics.decode(b, t.e4m3).astype(np.float64) * numerics.decode(scale, t.e8m0).astype(np.float64)[:, group]
    close(got, left @ right.T, float((np.abs(left) @ np.abs(right).T).max()))


@t.kernel
def integers(a: t.Array, b: t.Array, out: t.Array, *, dtype: t.DType) -> None:
    left, right = (t.load(array, (0, 0), array.shape) for array in (a, b))
    t.store(
        out,
        (0, 0),
        t.mma(left, right).cast(t.f32) if dtype is t.i8 else t.mma_scaled(left, right, None, dtype=dtype).cast(t.f32),
    )


@pytest.mark.parametrize("dtype", [t.i8, t.i4, t.u4])
def test_products_of_integers_are_exact(dtype: t.DType) -> None:
    k = 2050
    a = np.full((2, k), 127, np.int8)
    b = np.full((3, k * dtype.bits // 8), 0x77, np.uint8)
    b = b.view(np.int8) if dtype is t.i8 else b
    got = run_both(integers, [a, b, np.zeros((2, 3), np.float32)], dtype=dtype)[2]
    value = 0x77 if dtype is t.i8 else 7
    assert (got == np.float32(127 * value * k)).all()


@t.kernel
def unpacked(data: t.Array, out: t.Array, *, dtype: t.DType) -> None:
    tile = t.unpack(t.load(data, (0, 0), data.shape), dtype)
    t.store(out, (0, 0), tile if out.dtype is t.i32 else tile.cast(t.f32))


@pytest.mark.parametrize("dtype", [t.i4, t.u4, t.u2, t.i8, t.u8, t.e2m1, t.e4m3, t.e5m2, t.e8m0, t.f16, t.bf16, t.f32])
def test_unpack(dtype: t.DType) -> None:
    data = RNG.integers(0, 256, (3, 8)).astype(np.uint8)
    out = np.zeros((3, 64 // dtype.bits), np.float32 if dtype.is_float else np.int32)
    got = run_both(unpacked, [data, out], dtype=dtype)[1]
    np.testing.assert_array_equal(got, numerics.unpack(data, dtype))


def test_scales_are_read_where_the_row_lies() -> None:
    """No vector code stands between the load of a row and the product."""
    row = FORMS["u4 groups of 32"]
    rows, _ = random_rows(16, row)
    arrays = [np.zeros((1, 96), np.float16), rows, np.zeros((1, 16), np.float16)]
    plan = codes.matmul_codes.trace(types_of(arrays, ["cmx", "ddr", "cmx"]), {"bm": 1, "bn": 16, "row": row}).plan()
    assert [task.engine for task in plan.tasks] == ["dma.in", "dpu"]
    shifted = replace(row, shifts=t.f16)
    arrays = [*arrays[:1], np.zeros((16, shifted.nbytes), np.uint8), *arrays[2:], picks(shifted)]
    sizes = {"bm": 1, "bn": 16, "row": shifted}
    plan = codes.matmul_codes.trace(types_of(arrays, ["cmx", "ddr", "cmx", "ddr"]), sizes).plan()
    assert [task.engine for task in plan.tasks] == ["dma.in", "dma.in", "dpu", "dpu", "dpu", "dma.out"]


@t.kernel
def wrong(a: t.Array, b: t.Array, scale: t.Array, out: t.Array, **params: object) -> None:
    tiles = [t.load(array, (0, 0), array.shape) for array in (a, b, scale)]
    t.store(out, (0, 0), t.mma_scaled(*tiles, **params))


MISTAKES = [
    ((2, 33), (3, 16), (3, 1), {"dtype": t.u4}, "33 codes of u4 end within a byte; give k a multiple of 2"),
    ((2, 32), (3, 17), (3, 1), {"dtype": t.u4},
     "mma_scaled sums over k: a [2, 32] has 32, 17 bytes of b [3, 17] hold 34 codes of u4"),
    ((2, 64), (3, 32), (3, 3), {"dtype": t.u4, "group": 32},
     "scale [3, 3] must be [3, 2]: one for each channel of b and each group of 32 of k = 64"),
    ((2, 32), (3, 16), (3, 1), {"dtype": t.e2m1, "zero": 8},
     "zero 8 is no code of e2m1; only integer codes have a zero point"),
    ((2, 32), (3, 16), (3, 1), {"dtype": t.e8m0},
     "mma_scaled takes codes of i4, u4, u2, e2m1, i8, u8, e4m3 or e5m2, not e8m0"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "scale", "params", "message"), MISTAKES)
def test_mistakes(a: tuple[int, int], b: tuple[int, int], scale: tuple[int, int], params: dict, message: str) -> None:
    types = [t.dense(t.f16, a), t.dense(t.u8, b), t.dense(t.f32, scale), t.dense(t.f32, (a[0], b[0]))]
    with pytest.raises(t.KernelError) as found:
        wrong.trace(types, params)
    assert found.value.reason == message


def test_codes_that_do_not_fill_whole_elements() -> None:
    with pytest.raises(t.KernelError) as found:
        unpacked.trace([t.dense(t.u8, (2, 7)), t.dense(t.f32, (2, 3))], {"dtype": t.f16})
    assert found.value.reason == "7 bytes are no whole number of f16 elements of 2 bytes"
