"""Where a SHAVE run ends by the author's word, and accumulators that begin with a tile."""

from __future__ import annotations

import numpy as np

from npuc import tile as t
from tests.support.kernels import run_both, types_of


@t.kernel
def two_sums(x: t.Array, narrow: t.Array, wide: t.Array, *, split: bool) -> None:
    rows = t.load(x, (0, 0), x.shape)
    top = t.max(rows, 1).cast(t.f16)
    t.store(narrow, (0, 0), rows - top)
    if split:
        t.end_run()
    t.store(wide, (0, 0), top.cast(t.f32) * 2.0)


def test_end_run_splits_a_run_and_changes_no_value() -> None:
    x = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float16)
    arrays = [x, np.zeros((4, 8), np.float16), np.zeros((4, 1), np.float32)]
    whole, parts = (run_both(two_sums, arrays, memory="cmx", split=split) for split in (False, True))
    for first, second in zip(whole[1:], parts[1:], strict=True):
        np.testing.assert_array_equal(first, second)
    types = types_of(arrays, "cmx")
    tasks = two_sums.trace(types, {"split": True}).templates[0].tasks
    assert [task.engine for task in two_sums.trace(types, {"split": False}).templates[0].tasks] == ["shave"]
    assert [task.engine for task in tasks] == ["shave", "shave"]
    assert all(view.dtype is t.f16 for view in (*tasks[0].reads, *tasks[0].writes))


@t.kernel
def added(x: t.Array, w: t.Array, base: t.Array, out: t.Array) -> None:
    acc = t.accumulator(out.shape, init=t.load(base, (0, 0), base.shape))
    t.mma(t.load(x, (0, 0), x.shape), t.load(w, (0, 0), w.shape), acc=acc)
    t.store(out, (0, 0), acc)


def test_an_accumulator_begins_with_a_tile_and_no_vector_code() -> None:
    rng = np.random.default_rng(4)
    x, w, base = (rng.standard_normal(shape).astype(np.float16) for shape in ((4, 16), (8, 16), (4, 8)))
    arrays = [x, w, base, np.zeros((4, 8), np.float16)]
    got = run_both(added, arrays, memory="cmx")[3]
    want = base.astype(np.float64) + x.astype(np.float64) @ w.astype(np.float64).T
    assert got is not None
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-3, atol=1e-3)
    tasks = added.trace(types_of(arrays, "cmx"), {}).templates[0].tasks
    assert [task.engine for task in tasks] == ["dma.out", "dpu", "dma.out"]
