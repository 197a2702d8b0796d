"""What the device decides by its data, indexed transfers and flags: eager execution, tasks and devices agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from npuc import tile as t
from npuc.tasks import GatherOp, ScatterOp
from npuc.tasks.graph import TaskGraph
from npuc.tasks.text import format_tasks, parse_tasks
from npurt import open_device
from npurt.exec.interpreter import Actives
from npurt.target import load_target
from npurt.timing import EntryTimer
from tests.support.kernelblob import kernel_image
from tests.support.kernels import run_both, stamp, types_of
from tests.support.taskrun import TaskRunner

Array = np.ndarray
RNG = np.random.default_rng(0)


def everywhere(
    kernel: t.Kernel, inputs: Mapping[str, Array], outputs: Mapping[str, Array], folder: Path, **params: int
) -> list[Array]:
    """The outputs of eager execution; tasks and the exact device give the same bytes, the fast one nearly."""
    arrays = [*inputs.values(), *(np.zeros_like(array) for array in outputs.values())]
    ran = run_both(kernel, arrays, **params)
    run_both(kernel, arrays, memory="cmx", **params)
    made = [array for array in ran[len(inputs) :] if array is not None]
    image = kernel_image(kernel, inputs, outputs, folder, **params)
    for mode in ("exact", "fast"):
        device = open_device(image, mode)
        for _ in range(2):  # the second run finds the memory of the first
            given = device.run("main", inputs)
            for name, want in zip(outputs, made, strict=True):
                if mode == "exact":
                    np.testing.assert_array_equal(given[name], want)
                else:
                    np.testing.assert_allclose(given[name], want, rtol=2e-3, atol=2e-3)
    return made


@t.kernel
def experts(x: t.Array, w: t.Array, chosen: t.Array, out: t.Array, *, bn: int) -> None:
    """out[j] = x w[chosen[j]]^T, with only the chosen matrices loaded."""
    rows = t.load(x, (0, 0), x.shape)
    for j in range(chosen.shape[0]):
        number = t.reshape(t.load(chosen, (j,), (1,)), ())
        for first in range(0, w.shape[1], bn):
            part = t.load(w, (number, first, 0), (1, bn, w.shape[2]))
            t.store(out, (j, 0, first), t.mma(rows, part))


def test_a_load_by_a_number_in_memory(tmp_path: Path) -> None:
    x, w = RNG.standard_normal((3, 8)).astype(np.float16), RNG.standard_normal((5, 10, 8)).astype(np.float16)
    chosen = np.array([4, 1, -1, 5, 4], np.int32)
    (out,) = everywhere(
        experts, {"x": x, "w": w, "chosen": chosen}, {"out": np.zeros((5, 3, 10), "f4")}, tmp_path, bn=4
    )
    wide = np.where((chosen >= 0) & (chosen < 5), chosen, 0)
    want = np.einsum("tk,jnk->jtn", x.astype(np.float64), w[wide].astype(np.float64))
    want[[2, 3]] = 0.0  # numbers outside: zeros
    np.testing.assert_allclose(out, want, atol=1e-5)


def test_only_the_chosen_rows_cross_from_ddr(tmp_path: Path) -> None:
    w = RNG.standard_normal((64, 16, 32)).astype(np.float16)
    inputs = {"x": np.zeros((1, 32), np.float16), "w": w, "chosen": np.array([7, 9], np.int32)}
    image = kernel_image(experts, inputs, {"out": np.zeros((2, 1, 16), "f4")}, tmp_path, bn=16)
    timing = EntryTimer(image, image.entries["main"], load_target("npu40xx")).run()
    assert timing.ddr_read == 2 * w[0].nbytes + inputs["x"].nbytes + inputs["chosen"].nbytes


@t.kernel
def bytes_by_column(table: t.Array, places: t.Array, out: t.Array) -> None:
    """u8 columns by number, along the last dimension of a part."""
    numbers = t.load(places, (0,), places.shape)
    t.store(out, (0, 0), t.load(table, (1, numbers), (out.shape[0], places.shape[0])))


def test_any_dimension_and_bytes(tmp_path: Path) -> None:
    table, places = RNG.integers(0, 256, (6, 9), np.uint8), np.array([8, 0, 9, 3], np.int32)
    inputs = {"table": table, "places": places}
    (out,) = everywhere(bytes_by_column, inputs, {"out": np.zeros((4, 4), "u1")}, tmp_path)
    want = table[1:5][:, np.where(places < 9, places, 0)]
    want[:, 2] = 0
    np.testing.assert_array_equal(out, want)


@t.kernel
def scattered(x: t.Array, rows: t.Array, out: t.Array) -> None:
    t.scatter(out, t.load(rows, (0,), rows.shape), t.load(x, (0, 0), x.shape) * 2.0)


def test_scatter_skips_rows_outside_and_the_last_of_equals_stays(tmp_path: Path) -> None:
    x, rows = RNG.standard_normal((6, 5)).astype(np.float32), np.array([3, -1, 3, 7, 0, 3], np.int32)
    (out,) = everywhere(scattered, {"x": x, "rows": rows}, {"out": np.zeros((7, 5), np.float16)}, tmp_path)
    want = np.zeros((7, 5), np.float16)
    want[3], want[0] = (2 * x[5]).astype(np.float16), (2 * x[4]).astype(np.float16)
    np.testing.assert_array_equal(out, want)


@t.kernel
def turned(x: t.Array, rows: t.Array, out: t.Array) -> None:
    """Rows of one scratch array change places, all read before one is written."""
    box = t.scratch(x.shape, x.dtype)
    t.store(box, (0, 0), t.load(x, (0, 0), x.shape))
    t.scatter(box, t.load(rows, (0,), rows.shape), t.load(box, (0, 0), x.shape))
    t.store(out, (0, 0), t.load(box, (0, 0), x.shape))


def test_scatter_within_one_array(tmp_path: Path) -> None:
    x, rows = np.arange(12, dtype=np.float16).reshape(4, 3), np.array([1, 2, 3, 0], np.int32)
    (out,) = everywhere(turned, {"x": x, "rows": rows}, {"out": np.zeros_like(x)}, tmp_path)
    np.testing.assert_array_equal(out, x[[3, 0, 1, 2]])


@t.kernel
def best(x: t.Array, values: t.Array, places: t.Array, *, k: int) -> None:
    top, at = t.topk(t.load(x, (0, 0), x.shape), k, 1)
    t.store(values, (0, 0), top)
    t.store(places, (0, 0), at)


def test_topk_ties_take_the_lowest_place_first(tmp_path: Path) -> None:
    x = np.array([[1, 5, 5, 2, 5], [0, 0, 0, 0, 0], [-1, -2, -3, -4, 7]], np.float32)
    outputs = {"values": np.zeros((3, 3), "f4"), "places": np.zeros((3, 3), "i4")}
    values, places = everywhere(best, {"x": x}, outputs, tmp_path, k=3)
    np.testing.assert_array_equal(places, [[1, 2, 4], [0, 1, 2], [4, 0, 1]])
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))


@t.kernel
def by_flag(x: t.Array, w: t.Array, out: t.Array, left: t.Array) -> None:
    """Products only for the rows of w whose first element is above 0; `left` counts the others."""
    rows = t.load(x, (0, 0), x.shape)
    seen = t.scratch((1, 1))
    t.store(seen, (0, 0), t.zeros((1, 1)))
    for e in range(w.shape[0]):
        flag = t.load(w, (e, 0, 0), (1, 1, 1)) > 0.0
        with t.when(flag):
            t.store(out, (e, 0, 0), t.mma(rows, t.load(w, (e, 0, 0), (1, *w.shape[1:]))))
        with t.when(flag, taken=False):
            t.store(seen, (0, 0), t.load(seen, (0, 0), (1, 1)) + 1.0)
    t.store(left, (0, 0), t.load(seen, (0, 0), (1, 1)))


def by_flag_case() -> tuple[dict[str, Array], dict[str, Array], Array]:
    w = RNG.standard_normal((4, 6, 8)).astype(np.float16)
    w[:, 0, 0] = [1, -1, 0, 2]
    x = RNG.standard_normal((3, 8)).astype(np.float16)
    outputs = {"out": np.zeros((4, 3, 6), "f4"), "left": np.zeros((1, 1), "f4")}
    return {"x": x, "w": w}, outputs, w[:, 0, 0] > 0


def test_a_flag_decides_which_tasks_act(tmp_path: Path) -> None:
    inputs, outputs, taken = by_flag_case()
    out, left = everywhere(by_flag, inputs, outputs, tmp_path)
    want = np.einsum("tk,enk->etn", inputs["x"].astype(np.float64), inputs["w"].astype(np.float64))
    np.testing.assert_allclose(out, np.where(taken[:, None, None], want, 0), atol=1e-5)
    assert left[0, 0] == 2


def test_timing_with_flags_set_unset_and_by_real_data(tmp_path: Path) -> None:
    inputs, outputs, taken = by_flag_case()
    image = kernel_image(by_flag, inputs, outputs, tmp_path)
    entry = image.entries["main"]
    timer = EntryTimer(image, entry, load_target("npu40xx"))
    shown = Actives(entry)
    open_device(image, "exact").run("main", inputs, hooks=[shown])
    products = [task.index for task in entry.tasks if task.table == "dpu"]
    assert shown.active[products].tolist() == taken.tolist()
    all_, none, real = (timer.run(taken=how) for how in (True, False, shown.active))
    loads = inputs["w"][0].nbytes
    assert all_.ddr_read - none.ddr_read == 4 * loads and all_.ddr_read - real.ddr_read == 2 * loads
    assert timer.flagged == 4 * len(taken)  # of each matrix its load, product and store, and the count


@t.kernel
def overwrites_its_flag(x: t.Array, out: t.Array) -> None:
    """The flag counts as it was when the block was reached."""
    box = t.scratch((2,), t.i32)
    t.store(box, (0,), t.load(x, (0,), (2,)))
    with t.when(t.load(box, (0,), (1,))):
        t.store(box, (0,), t.zeros((2,), t.i32))
        t.store(out, (0,), t.full((2,), 7, t.i32))
    t.store(out, (2,), t.load(box, (0,), (2,)))


@pytest.mark.parametrize("first", [0, 3])
def test_a_block_may_overwrite_what_its_flag_was_read_from(first: int, tmp_path: Path) -> None:
    x = np.array([first, 5], np.int32)
    (out,) = everywhere(overwrites_its_flag, {"x": x}, {"out": np.zeros(4, "i4")}, tmp_path)
    assert out.tolist() == ([7, 7, 0, 0] if first else [0, 0, 0, 5])


def test_tasks_and_their_text() -> None:
    inputs, outputs, _ = by_flag_case()
    arrays = [*inputs.values(), *outputs.values()]
    tasks = stamp(by_flag.trace(types_of(arrays), {}), arrays, TaskRunner())
    flags = [task for task in tasks if task.flag is not None]
    assert {task.flag.taken for task in flags if task.flag} == {True, False}
    assert all(task.reads[task.flag.reads[0]].elements == 1 for task in flags if task.flag)
    rows = np.array([1, 0], np.int32)
    arrays = [np.zeros((4, 6), np.uint8), rows, np.zeros((2, 2), np.uint8)]
    tasks += stamp(bytes_by_column.trace(types_of(arrays, "ddr"), {}), arrays, TaskRunner())
    arrays = [np.zeros((2, 3), np.float32), rows, np.zeros((7, 3), np.float16)]
    tasks += stamp(scattered.trace(types_of(arrays), {}), arrays, TaskRunner())
    assert GatherOp(6, 1) in [task.op for task in tasks] and ScatterOp(7) in [task.op for task in tasks]
    for number, buffer in enumerate(dict.fromkeys(r.buffer for task in tasks for r in (*task.reads, *task.writes))):
        buffer.name = f"b{number}"
    text = format_tasks(TaskGraph("main", tasks))
    assert format_tasks(parse_tasks(text)) == text
    assert "gather bound 6 row_dim 1" in text and "scatter bound 7" in text and "flag untaken" in text
