"""Attention with a window: against float64, and what lies before the window costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.tasks import CopyOp, Task
from npuc.tile import Kernel
from npukernels import registry
from npurt.target import load_target
from npurt.timing import EntryTimer, Timing
from tests.support.kernelblob import kernel_image
from tests.support.kernels import stamp, types_of
from tests.support.taskrun import TaskRunner
from tests.unit.tile.test_attention import FORMS, case, reference, run_form

BLOCK = {form: sizes["bk"] for form, sizes in FORMS.items()}


def count_of(form: str) -> int:
    return 1 if "incremental" in form else 7


def kernel_of(form: str) -> Kernel:
    return registry.get(registry.FORMS["attention"][form.partition(",")[0]]).kernel


@pytest.mark.parametrize("n_past", [1, 4, 13])
@pytest.mark.parametrize("beyond", [None, -1, 0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_windows_around_a_tile(form: str, beyond: int | None, n_past: int) -> None:
    """A window of 1 and of one row less, as many and one more than a block; slots at or past n_past hold NaN."""
    window = 1 if beyond is None else BLOCK[form] + beyond
    arrays = case(count_of(form), 13, n_past, np.float32)
    want = reference(*arrays[:5], n_past, 0.35, window=window)
    np.testing.assert_allclose(run_form(form, arrays, n_past, window=window), want, rtol=2e-5, atol=2e-6)


def past_loads(form: str, window: int, slots: int) -> list[Task]:
    """Loads of past keys and values."""
    arrays = case(count_of(form), slots, 0)
    memory = ["cmx", "cmx", "cmx", "ddr", "ddr", "cmx"]
    trace = kernel_of(form).trace(types_of(arrays, memory), {"scale": 0.35, "window": window, **FORMS[form]})
    return [task for task in stamp(trace, arrays, TaskRunner()) if isinstance(task.op, CopyOp) and task.op.valid]


@pytest.mark.parametrize("window", [1, 4, 5, 9, 0])
@pytest.mark.parametrize("form", FORMS)
def test_exactly_the_blocks_that_a_row_sees_are_loaded(form: str, window: int) -> None:
    """Bytes from DDR are those of the window rounded to blocks, for each block of rows that loads it."""
    size, slots, count = BLOCK[form], 21, count_of(form)
    rows = FORMS[form].get("br", FORMS[form].get("bm", 1))
    starts = [i for p in range(0, count, FORMS[form].get("bm", 1)) for i in
              range(p, min(p + FORMS[form].get("bm", 1), count), rows)]  # fmt: skip
    loads = past_loads(form, window, slots)
    for n_past in range(slots + 1):
        due = 0
        for i in starts:  # the first row of a block sees furthest back
            oldest = max(n_past + i - window + 1, 0) if window else 0
            blocks = range(oldest // size, -(-n_past // size)) if oldest < n_past else range(0)
            due += sum(min(size, slots - block * size) for block in blocks) * 2 * (8 + 4)
        acting = [task for task in loads if task.when is None or task.when.holds({"n_past": n_past})]
        assert sum(task.writes[0].elements for task in acting) == due, f"n_past {n_past}"


SIZES: dict[str, dict[str, int]] = {
    "flash": {"groups": 2, "batch": 2, "bm": 32, "br": 32, "bk": 64},
    "incremental": {"groups": 2, "part": 128, "bk": 64},
}


def timed(form: str, slots: int, folder: Path, **options: Any) -> Timing:
    """A step behind a full cache of `slots`."""
    rows = 1 if form == "incremental" else 32
    shapes = {"q": (4, rows, 32), "k_new": (2, rows, 32), "v_new": (2, rows, 32), "k_past": (2, slots, 32)}
    inputs = {name: np.zeros(shape, np.float16) for name, shape in {**shapes, "v_past": (2, slots, 32)}.items()}
    image = kernel_image(
        kernel_of(form), inputs, {"out": np.zeros((4, rows, 32), np.float16)}, folder, rows=rows,
        capacity=slots + rows, scale=0.2, **SIZES[form], **options,
    )  # fmt: skip
    return EntryTimer(image, image.entries["main"], load_target("npu40xx")).run(slots)


@pytest.mark.parametrize("form", SIZES)
def test_time_does_not_grow_with_the_capacity(form: str, tmp_path: Path) -> None:
    """From 1024 to 4096 slots: the same bytes, and no more time than it takes to issue the tasks that do nothing."""
    few, many = (timed(form, slots, tmp_path, window=100) for slots in (1024, 4096))
    assert few.ddr_read == many.ddr_read
    assert int(few.active.sum()) == int(many.active.sum())
    idle = (len(many.active) - len(few.active)) * load_target("npu40xx").sync.issue
    assert many.makespan - few.makespan <= idle * 1e12
    assert timed(form, 4096, tmp_path).makespan > 4 * many.makespan


@pytest.mark.parametrize("slots", [256, 1024])
def test_incremental_reads_the_cache_once(slots: int, tmp_path: Path) -> None:
    """K and V of the whole cache, and what each step has: q, k_new, v_new [heads, 1, 32] in f16."""
    assert timed("incremental", slots, tmp_path).ddr_read == 2 * (2 * slots * 32) * 2 + (4 + 2 + 2) * 32 * 2
