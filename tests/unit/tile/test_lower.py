"""How traces become tasks: fragments, places, hazards, conditions, classes of programs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from npuc import tile as t
from npuc.tasks import CallOp, CopyOp, GatherOp, Origin, StepValue, When
from tests.support.kernels import run_both, stamp, types_of
from tests.support.taskrun import TaskRunner

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def engines(kernel: t.Kernel, arrays: list[np.ndarray], memory: str | list[str] = "ddr", **params: object) -> list[str]:
    return [task.engine for task in kernel.trace(types_of(arrays, memory), params).plan().tasks]


@t.kernel
def two_stages(x: t.Array, w: t.Array, out: t.Array) -> None:
    """Vector code, a product of its result, vector code again."""
    a = t.load(x, (0, 0), x.shape)
    half = (a * 0.5).cast(t.f16)
    product = t.mma(half, t.load(w, (0, 0), w.shape))
    t.store(out, (0, 0), t.exp(product - a[:, 0:1]) + half[:, 1:2])


def test_a_product_closes_the_fragment_that_made_its_operand() -> None:
    arrays = [normal(4, 8), normal(6, 8), np.zeros((4, 6), np.float32)]
    assert engines(two_stages, arrays) == ["dma.in", "dma.in", "shave", "dpu", "shave", "dma.out"]
    assert engines(two_stages, arrays, "cmx") == ["shave", "dpu", "shave"]
    run_both(two_stages, arrays)
    run_both(two_stages, arrays, memory="cmx")


@t.kernel
def overwritten(x: t.Array, out: t.Array) -> None:
    """Reads scratch, overwrites it, and uses what it has read before."""
    s = t.scratch(x.shape, t.f16)
    t.store(s, (0, 0), t.load(x, (0, 0), x.shape))
    before = t.load(s, (0, 0), x.shape)
    t.store(s, (0, 0), (before * 2.0).cast(t.f16))
    after = t.load(s, (0, 0), x.shape)
    t.store(out, (0, 0), t.mma(before, after))


@pytest.mark.parametrize("memory", ["ddr", "cmx"])
def test_a_tile_keeps_its_value_when_its_array_is_overwritten(memory: str) -> None:
    x = normal(6, 8)
    got = run_both(overwritten, [x, np.zeros((6, 6), np.float32)], memory=memory)[1]
    wide = x.astype(np.float64)
    np.testing.assert_allclose(got, wide @ (2 * wide).T, rtol=1e-6, atol=1e-6)


@t.kernel
def gapped(x: t.Array, out: t.Array) -> None:
    """An operand whose rows are columns of the array."""
    a = t.transpose(t.load(x, (0, 0), x.shape), (1, 0))
    t.store(out, (0, 0), t.mma(a, a))


def test_an_operand_with_gaps_is_copied_visibly() -> None:
    x = normal(8, 6)
    plan = gapped.trace(types_of([x, np.zeros((6, 6), np.float32)], "cmx"), {}).plan()
    assert [(task.engine, task.stage) for task in plan.tasks] == [
        ("dma.out", "copy a"), ("dma.out", "copy b"), ("dpu", "mma")
    ]  # fmt: skip
    got = run_both(gapped, [x, np.zeros((6, 6), np.float32)], memory="cmx")[1]
    np.testing.assert_allclose(got, x.T.astype(np.float64) @ x, rtol=1e-6, atol=1e-6)


@t.kernel
def masked_tail(x: t.Array, out: t.Array, kept: t.Array) -> None:
    """Only the first n_new rows are read and written."""
    rows = t.load(x, (0, 0), x.shape, valid=(0, t.step.n_new))
    t.store(out, (0, 0), t.sum(rows, 0) + 0.0 * t.load(out, (0, 0), out.shape))
    t.store(kept, (0, 0), rows + 1.0, valid=(0, t.step.n_new - 1))


@pytest.mark.parametrize("n_new", [0, 1, 3, 5, 9])
@pytest.mark.parametrize("memory", ["ddr", "cmx"])
def test_runtime_extents_zero_loads_and_leave_stores_alone(n_new: int, memory: str) -> None:
    x, kept = normal(5, 4), normal(5, 4)
    x[n_new:] = np.nan  # 0 x NaN must not leak
    arrays = [x, np.zeros((1, 4), np.float32), kept]
    got = run_both(masked_tail, arrays, memory=memory, step={"n_new": n_new, "n_past": 0})
    np.testing.assert_allclose(got[1][0], x[:n_new].astype(np.float64).sum(0), rtol=1e-6, atol=1e-6)
    want = kept.copy()
    stored = max(min(n_new, 6) - 1, 0)
    want[:stored] = x[:stored] + np.float16(1)
    np.testing.assert_array_equal(got[2], want)


@t.kernel
def shifted(table: t.Array, out: t.Array) -> None:
    """Step values in an index, a condition and arithmetic, with a grid."""
    (i,) = t.programs(t.cdiv(out.shape[0], 2))
    t.store(out, (i * 2, 0), t.zeros(t.clipped(out, (i * 2, 0), (2, 4))))
    with t.when(t.step.n_past >= i + 1):
        rows = t.load(table, (i + t.step.n_past, 0), (1, 4), valid=(0, t.step.n_past - i))
        t.store(out, (i * 2, 0), rows * (2 * t.step.n_past + i))


def test_numbers_of_programs_and_step_are_stamped() -> None:
    arrays = [normal(9, 4), np.zeros((6, 4), np.float32)]
    for n_past in range(4):
        run_both(shifted, arrays, step={"n_past": n_past, "n_new": 1})
    trace = shifted.trace(types_of(arrays), {})
    tasks = stamp(trace, arrays, TaskRunner())
    loads = [task for task in tasks if task.engine == "dma.in"]
    assert [task.when for task in loads] == [When("n_past", 0), When("n_past", 1), When("n_past", 2)]
    assert [task.op for task in loads] == [
        CopyOp(0, StepValue("n_past", -i), shift_src="n_past") for i in range(3)
    ]  # fmt: skip
    assert [task.reads[0].offset for task in loads] == [0, 8, 16]
    calls = [task.op for task in tasks if isinstance(task.op, CallOp) and task.when is not None]
    assert len({call.code for call in calls}) == 1  # one text: what differs are arguments
    assert [[value for kind, value in call.args if kind == "i"] for call in calls] == [[0], [1], [2]]
    assert all(("s", "n_past") in call.args for call in calls)


@t.kernel
def triangle(x: t.Array, out: t.Array) -> None:
    """The shape of the work depends on the program id."""
    (i,) = t.programs(x.shape[0])
    total = t.load(x, (i, 0), (1, x.shape[1]))
    for row in t.range(i):
        total = total + t.load(x, (row, 0), (1, x.shape[1]))
    t.store(out, (i, 0), total)


def test_programs_that_differ_in_shape_are_traced_apart() -> None:
    x = normal(7, 3)
    got = run_both(triangle, [x, np.zeros((7, 3), np.float32)])[1]
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64), 0), rtol=1e-6, atol=1e-6)
    trace = triangle.trace(types_of([x, got]), {})
    assert [template.ranges for template in trace.templates] == [((i, i),) for i in range(7)]


@t.kernel
def tails(x: t.Array, out: t.Array) -> None:
    i, j = t.programs(t.cdiv(x.shape[0], 3), t.cdiv(x.shape[1], 4))
    t.store(out, (i * 3, j * 4), t.exp(t.load(x, (i * 3, j * 4), (3, 4))))


@pytest.mark.parametrize("shape,classes", [((3, 4), 1), ((6, 8), 4), ((7, 4), 2), ((7, 9), 4), ((1, 1), 1)])
def test_one_trace_for_each_tail_class(shape: tuple[int, int], classes: int) -> None:
    x = normal(*shape)
    arrays = [x, np.zeros(shape, np.float16)]
    run_both(tails, arrays)
    assert len(tails.trace(types_of(arrays), {}).templates) == classes


@t.kernel
def skipped_sum(x: t.Array, out: t.Array) -> None:
    acc = t.accumulator((x.shape[0], x.shape[0]), init=0)
    a = t.load(x, (0, 0), x.shape)
    with t.when(t.step.n_past > 1):
        t.mma(a, a, acc=acc)
    with t.when(t.step.n_past > 2):
        t.mma(a, a, acc=acc)
    acc.scale(0.5)
    t.store(out, (0, 0), acc)


def test_an_accumulator_with_init_may_skip_every_product() -> None:
    x = normal(4, 8)
    for n_past, times in ((0, 0.0), (2, 0.5), (3, 1.0)):
        got = run_both(skipped_sum, [x, np.ones((4, 4), np.float32)], step={"n_past": n_past, "n_new": 1})[1]
        np.testing.assert_allclose(got, times * (x.astype(np.float64) @ x.T.astype(np.float64)), rtol=1e-6, atol=1e-6)


@t.kernel
def computed_rows(table: t.Array, ids: t.Array, out: t.Array) -> None:
    rows = t.load(ids, (0,), ids.shape)
    t.store(out, (0, 0), t.gather(table, t.where(rows < 0, rows + table.shape[0], rows)))


def test_gather_takes_computed_rows_and_writes_in_place() -> None:
    table, ids = normal(9, 4), np.array([-1, 3, -9, 8], np.int32)
    arrays = [table, ids, np.zeros((4, 4), np.float16)]
    memory = ["ddr", "ddr", "cmx"]
    np.testing.assert_array_equal(run_both(computed_rows, arrays, memory=memory)[2], table[ids])
    assert engines(computed_rows, arrays, memory) == ["dma.in", "shave", "dma.in"]


@t.kernel
def moved_only(x: t.Array, out: t.Array) -> None:
    """Changes of shape between a load and stores are strides of one transfer."""
    a = t.load(x, (0, 0, 0), x.shape)
    flat = t.reshape(t.transpose(a, (1, 0, 2))[1:3], (2, -1))
    t.store(out, (0, 0), flat.cast(t.f32))


def test_movement_is_one_transfer() -> None:
    x = normal(3, 4, 5)
    arrays = [x, np.zeros((2, 15), np.float32)]
    want = x.transpose(1, 0, 2)[1:3].reshape(2, 15)
    for memory in ("ddr", "cmx"):
        np.testing.assert_array_equal(run_both(moved_only, arrays, memory=memory)[1], want)
    one = np.zeros((2, 3, 5), np.float32)

    @t.kernel
    def keeps_rank(x: t.Array, out: t.Array) -> None:
        t.store(out, (0, 0, 0), t.transpose(t.load(x, (0, 0, 0), x.shape), (1, 0, 2))[1:3])

    assert engines(keeps_rank, [x, one]) == ["dma.in"]
    np.testing.assert_array_equal(run_both(keeps_rank, [x, one])[1], x.transpose(1, 0, 2)[1:3])


def test_buffers_name_the_author_and_are_fresh_for_each_program() -> None:
    arrays = [normal(6, 4), np.zeros((6, 4), np.float16)]
    tasks = stamp(tails.trace(types_of(arrays), {}), arrays, TaskRunner())
    local = {region.buffer for task in tasks for region in (*task.reads, *task.writes)} - {
        tasks[0].reads[0].buffer, tasks[-1].writes[0].buffer
    }  # fmt: skip
    assert sorted(buffer.name for buffer in local) == [
        "k[0,0].tile1", "k[0,0].x0", "k[1,0].tile1", "k[1,0].x0"
    ]  # fmt: skip
    assert all(buffer.where.startswith("test_lower.py:") for buffer in local)
    assert [task.origin for task in tasks[:3]] == [
        Origin("", "", "tails", (0, 0), stage) for stage in ("load x", "call", "store out")
    ]  # fmt: skip


def test_code_bytes_are_equal_across_programs_and_traces() -> None:
    arrays = [normal(60, 4), np.zeros((60, 4), np.float16)]
    calls = [
        task.op.code
        for _ in range(2)
        for task in stamp(tails.trace(types_of(arrays), {}), arrays, TaskRunner())
        if isinstance(task.op, CallOp)
    ]
    assert len(calls) == 40 and len(set(calls)) == 1


def test_an_entry_of_three_thousand_tasks_is_stamped_in_well_under_a_second() -> None:
    arrays = [normal(300, 40), np.zeros((300, 40), np.float16)]
    start = time.process_time()
    tasks = stamp(tails.trace(types_of(arrays), {}), arrays, TaskRunner())
    assert len(tasks) == 3000
    assert time.process_time() - start < 0.8


def test_plan_shows_buffers_life_and_lines() -> None:
    arrays = [normal(4, 8), normal(6, 8), np.zeros((4, 6), np.float32)]
    plan = two_stages.trace(types_of(arrays), {}).plan()
    weights = next(buffer for buffer in plan.buffers if buffer.name.startswith("w"))
    assert (weights.nbytes, weights.dtype, weights.shape, weights.memory) == (96, "f16", (6, 8), "cmx")
    assert (weights.first, weights.last) == (1, 3) and weights.where.startswith("test_lower.py:")
    assert plan.programs == 1 and plan.bytes >= max(buffer.nbytes for buffer in plan.buffers)
    assert str(plan).splitlines()[0] == f"two_stages: 1 programs, {plan.bytes} bytes on-chip each"


def test_gather_from_an_on_chip_table() -> None:
    table, ids = normal(9, 4), np.array([2, 3], np.int32)
    trace = computed_rows.trace(types_of([table, ids, np.zeros((2, 4), np.float16)], "cmx"), {})
    tasks = stamp(trace, [table, ids, np.zeros((2, 4), np.float16)], TaskRunner())
    assert [(task.engine, task.op) for task in tasks if isinstance(task.op, GatherOp)] == [("dma.out", GatherOp(9))]


@pytest.mark.parametrize("shape", [(0, 4), (0, 0), (3, 0)])
def test_an_array_without_rows_has_no_programs(shape: tuple[int, int]) -> None:
    arrays = [normal(*shape), np.zeros(shape, np.float16)]
    run_both(tails, arrays)
    assert tails.trace(types_of(arrays), {}).plan().tasks == ()
