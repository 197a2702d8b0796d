"""Blocks that act in a range of a step field: eager, as tasks, and as records on both devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc import tile as t
from npuc.report.disasm import disasm
from npurt import open_device
from tests.support.kernelblob import kernel_image
from tests.support.kernels import run_both


@t.kernel
def marks(x: t.Array, out: t.Array) -> None:
    """out[i, 0..2] = 1 where i < n_past <= i + 2, where n_past <= i, and where n_past < 2 - i."""
    (i,) = t.programs(x.shape[0])
    one = t.load(x, (i, 0), (1, 1))
    conditions = [(t.step.n_past <= i + 2) & (t.step.n_past > i), t.step.n_past <= i, t.step.n_past < 2 - i]
    for column, condition in enumerate(conditions):
        with t.when(condition):
            t.store(out, (i, column), one)


def expected(n_past: int) -> np.ndarray:
    return np.array([[i < n_past <= i + 2, n_past <= i, n_past < 2 - i] for i in range(4)], np.float32)


def test_of_past_rows(tmp_path: Path) -> None:
    inputs, outputs = {"x": np.ones((4, 1), np.float32)}, {"out": np.zeros((4, 3), np.float32)}
    image = kernel_image(marks, inputs, outputs, tmp_path, rows=1, capacity=9)
    for n_past in range(8):
        step = {"n_past": n_past, "n_new": 1}
        np.testing.assert_array_equal(run_both(marks, [inputs["x"], outputs["out"]], step=step)[1], expected(n_past))
        for mode in ("exact", "fast"):
            given = open_device(image, mode).run("main", inputs, n_past=n_past, n_new=1)
            np.testing.assert_array_equal(given["out"], expected(n_past), f"{mode}, n_past {n_past}")


@t.kernel
def by_new(x: t.Array, out: t.Array) -> None:
    with t.when((t.step.n_new > 1) & (t.step.n_new <= 3)):
        t.store(out, (0,), t.load(x, (0,), (4,)))


@pytest.mark.parametrize(("n_new", "acts"), [(1, 0), (2, 1), (3, 1), (4, 0)])
def test_of_new_rows(n_new: int, acts: int, tmp_path: Path) -> None:
    inputs, outputs = {"x": np.ones(4, np.float32)}, {"out": np.zeros(4, np.float32)}
    image = kernel_image(by_new, inputs, outputs, tmp_path, rows=4, capacity=9)
    for mode in ("exact", "fast"):
        given = open_device(image, mode).run("main", inputs, n_past=0, n_new=n_new)
        np.testing.assert_array_equal(given["out"], np.full(4, acts, np.float32))
    assert "when n_new>1 and <=3" in disasm(tmp_path / "kernel.npu")
