"""Matrix products of the kernel library: against float64, and eager against tasks bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from npuc import tile as t
from npukernels import matmul
from tests.support.kernels import run_both, types_of

RNG = np.random.default_rng(7)
TOLERANCE = {np.float32: 2e-6, np.float16: 2e-3}


def normal(*shape: int, dtype: type = np.float16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def close(got: np.ndarray, want: np.ndarray, scale: float) -> None:
    """Within a few roundings of the storage type."""
    np.testing.assert_allclose(wide(got), want, rtol=TOLERANCE[got.dtype.type], atol=TOLERANCE[got.dtype.type] * scale)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("m,n,k", [(1, 1, 1), (1, 31, 7), (15, 16, 16), (16, 17, 33), (17, 37, 8)])
@pytest.mark.parametrize("memory", ["ddr", "cmx"])
def test_matmul_over_shapes(m: int, n: int, k: int, dtype: type, memory: str) -> None:
    x, w, out = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype), np.zeros((m, n), dtype)
    got = run_both(matmul.matmul, [x, w, out], memory=[memory, "ddr", memory], bm=16, bn=16, bk=k)[2]
    close(got, wide(x) @ wide(w).T, k**0.5)


@pytest.mark.parametrize("outer", ["n", "m"])
@pytest.mark.parametrize("bk", [8, 5, 32])
def test_matmul_in_steps_along_k_with_a_table(bk: int, outer: str) -> None:
    x, w, table, out = normal(9, 24), normal(19, 24), normal(19, 2, dtype=np.float32), np.zeros((9, 19), np.float32)
    got = run_both(matmul.matmul, [x, w, out, table], bm=4, bn=8, bk=bk, outer=outer)[2]
    close(got, wide(x) @ wide(w).T * wide(table[:, 0]) + wide(table[:, 1]), 5)


def test_matmul_epilogue_with_extra_arrays() -> None:
    x, w, out = normal(9, 24), normal(19, 24), np.zeros((9, 19), np.float16)
    residual, column = normal(9, 19), normal(19)

    def epilogue(product: t.Tile, a: t.Tile, b: t.Tile) -> t.Tile:
        return product * t.sigmoid(product) + a * b

    got = run_both(matmul.matmul, [x, w, out, None, residual, column], bm=4, bn=8, bk=24, epilogue=epilogue)[2]
    p = wide(x) @ wide(w).T
    close(got, p / (1 + np.exp(-p)) + wide(residual) * wide(column), 5)


def test_matmul_pair_is_a_gated_layer() -> None:
    x, gate, up, out = normal(5, 16), normal(21, 16), normal(21, 16), np.zeros((5, 21), np.float16)

    def gated(g: t.Tile, u: t.Tile) -> t.Tile:
        return g * t.sigmoid(g) * u

    got = run_both(matmul.matmul_pair, [x, gate, up, out], bm=4, bn=16, bk=16, epilogue=gated)[3]
    g, u = wide(x) @ wide(gate).T, wide(x) @ wide(up).T
    close(got, g / (1 + np.exp(-g)) * u, 20)


@pytest.mark.parametrize("batch", [1, 3])
def test_batched_products(batch: int) -> None:
    a, out = normal(3, 5, 8), np.zeros((3, 5, 7), np.float32)
    nk, kn = normal(batch, 7, 8), normal(batch, 8, 7)
    sizes = {"bb": 2, "bm": 2, "bn": 4, "scale": 0.25}
    close(run_both(matmul.bmm_nk, [a, nk, out], **sizes)[2], 0.25 * wide(a) @ np.swapaxes(wide(nk), 1, 2), 3)
    close(run_both(matmul.bmm_kn, [a, kn, out], memory="cmx", **sizes)[2], 0.25 * wide(a) @ wide(kn), 3)


def test_operands_and_result_may_be_strided_views() -> None:
    x, w, out = normal(20, 32)[::2, 4:20], normal(9, 40)[:, 3:19], np.zeros((10, 30), np.float16)[:, 5:14]
    got = run_both(matmul.matmul, [x, w, out], memory=["cmx", "ddr", "cmx"], bm=4, bn=4, bk=16)[2]
    close(got, wide(x) @ wide(w).T, 4)


def test_integer_products_are_exact() -> None:
    a, b = (RNG.integers(-128, 128, (5, 300)).astype(np.int8) for _ in range(2))
    out = np.zeros((5, 5), np.int32)
    got = run_both(matmul.matmul, [a, b, out], bm=4, bn=4, bk=300)[2]
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64).T)


def test_the_product_goes_straight_to_its_on_chip_destination() -> None:
    arrays = [normal(8, 16), normal(8, 16), np.zeros((8, 8), np.float16)]
    trace = matmul.matmul.trace(types_of(arrays, ["cmx", "cmx", "cmx"]), {"bm": 8, "bn": 8, "bk": 16})
    plan = trace.plan()
    assert [task.engine for task in plan.tasks] == ["dpu"]
    assert plan.bytes == 0 and plan.buffers == ()


def test_a_block_of_the_outer_operand_is_loaded_once() -> None:
    types = types_of([normal(12, 16), normal(8, 16), np.zeros((12, 8), np.float16)])
    for outer, loads in (("n", {"load x": 3, "load w": 1}), ("m", {"load x": 1, "load w": 2})):
        plan = matmul.matmul.trace(types, {"bm": 4, "bn": 4, "bk": 16, "outer": outer}).plan()
        stages = [task.stage.partition("#")[0] for task in plan.tasks if task.engine == "dma.in"]
        assert {stage: stages.count(stage) for stage in stages} == loads


def test_equal_signatures_share_one_trace_and_equal_code_one_text() -> None:
    @dataclass(frozen=True)
    class Twice:
        def __call__(self, product: t.Tile) -> t.Tile:
            return product * 2.0

    types = types_of([normal(8, 16), normal(8, 16), np.zeros((8, 8), np.float16)])
    cache = t.TraceCache()
    first = matmul.matmul.trace(types, {"bm": 4, "bn": 4, "bk": 16, "epilogue": Twice()}, cache=cache)
    second = matmul.matmul.trace(list(types), {"bk": 16, "bm": 4, "bn": 4, "epilogue": Twice()}, cache=cache)
    assert first is second and cache.traces == 1
    matmul.matmul.trace(types, {"bm": 8, "bn": 4, "bk": 16, "epilogue": Twice()}, cache=cache)
    assert cache.traces == 2


@t.kernel
def postprocessed(a: t.Array, b: t.Array, table: t.Array, out: t.Array) -> None:
    """Scale, then the table, then the clamp; one matrix b for all batches of a."""
    rows = t.load(table, (0, 0), table.shape)
    tile = t.mma(t.load(a, (0, 0, 0), a.shape), t.load(b, (0, 0), b.shape), table=rows, scale=0.5, clamp=(-1.0, 2.0))
    t.store(out, (0, 0, 0), tile)


@pytest.mark.parametrize("memory", ["ddr", "cmx"])
def test_scale_table_and_clamp_in_that_order(memory: str) -> None:
    a, b, table = normal(3, 4, 8), normal(6, 8), normal(6, 2, dtype=np.float32)
    got = run_both(postprocessed, [a, b, table, np.zeros((3, 4, 6), np.float32)], memory=memory)[3]
    want = np.clip(0.5 * (wide(a) @ wide(b).T) * wide(table[:, 0]) + wide(table[:, 1]), -1, 2)
    close(got, want, 2)


@t.kernel
def halved(x: t.Array, out: t.Array) -> None:
    t.store(out, (0, 0), t.load(x, (0, 0), x.shape) * 0.5)


@t.kernel
def halved_product(x: t.Array, w: t.Array, out: t.Array) -> None:
    half = t.scratch(x.shape, x.dtype)
    halved(x, half)
    t.store(out, (0, 0), t.mma(t.load(half, (0, 0), x.shape), t.load(w, (0, 0), w.shape)))


def test_a_kernel_called_in_a_kernel_is_traced_there() -> None:
    x, w = normal(4, 8), normal(6, 8)
    got = run_both(halved_product, [x, w, np.zeros((4, 6), np.float32)], memory="cmx")[2]
    close(got, wide(x) / 2 @ wide(w).T, 3)
    trace = halved_product.trace(types_of([x, w, got], "cmx"), {})
    assert [task.engine for task in trace.plan().tasks] == ["shave", "dpu"]
