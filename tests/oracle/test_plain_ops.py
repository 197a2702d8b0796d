"""Operators of plain graphs that are written out, or take several instructions, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.oracle import test_ops
from tests.oracle.test_ops import Case, floats

A, IMAGE = floats(2, 3, 4), floats(1, 2, 7, 8)
INDEX = np.array([[[0, -1, 1, 2]], [[2, 2, 0, 1]]], np.int64)
POOL = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]}
CASES = [
    *(Case(op, [np.clip(A / 8, -0.95, 0.95)]) for op in ("Sinh", "Cosh", "Asinh", "Atanh", "Tan")),
    Case("Sinh", [A]),
    Case("Asinh", [10 * A]),
    Case("Acosh", [1 + np.abs(A)]),
    *(Case("IsInf", [np.float32([1, np.inf, -np.inf, np.nan])], attributes={f"detect_{sign}": 0})
      for sign in ("negative", "positive")),
    *(Case("BitShift", [np.array([3, 5, 200], np.uint8), np.array([1, 7, 2], np.uint8)], attributes={"direction": way})
      for way in ("LEFT", "RIGHT")),
    *(Case("ArgMax", [np.float32([[1, 3, 3], [2, 2, 0]])], attributes={"axis": axis, "select_last_index": 1})
      for axis in (0, 1)),
    Case("LogSoftmax", [A], attributes={"axis": 1}),
    *(Case("Trilu", [A], [np.int64(k)], {"upper": upper}) for k, upper in ((0, 1), (-1, 1), (1, 0))),
    Case("GatherElements", [A, INDEX], attributes={"axis": 1}),
    Case("GatherND", [A, np.array([[1, -1], [0, 2]], np.int64)]),
    Case("GatherND", [A, np.array([[2], [0]], np.int64)], attributes={"batch_dims": 1}),
    *(Case("ScatterElements", [A, INDEX, floats(2, 1, 4)], attributes={"axis": 1, "reduction": way})
      for way in ("none", "add", "mul", "max", "min")),
    Case("ScatterND", [A, np.array([[1, 0], [0, -1]], np.int64), floats(2, 4)], attributes={"reduction": "add"}),
    Case("OneHot", [np.array([1, -1, 7], np.int64)], [np.int64(4), np.float32([0.5, 2])], {"axis": 0}),
    Case("BatchNormalization", [IMAGE], [np.abs(floats(2)), floats(2), floats(2), np.abs(floats(2)) + 0.1]),
    Case("InstanceNormalization", [IMAGE], [floats(2), floats(2)]),
    *(Case("LpNormalization", [A], attributes={"axis": 1, "p": p}) for p in (1, 2)),
    Case("Hardmax", [A], attributes={"axis": 1}),
    *(Case(op, [IMAGE]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(Case("AveragePool", [IMAGE], attributes={**POOL, "count_include_pad": count}) for count in (0, 1)),
    Case("MaxPool", [IMAGE], attributes=POOL),
    Case("MaxPool", [IMAGE], attributes={"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
    Case("Mean", [A, floats(4), floats(3, 1)]),
    Case("Transpose", [floats(2, 3, 2, 3, 2, 2)], attributes={"perm": [5, 3, 1, 4, 2, 0]}),
    Case("Softmax", [floats(2, 3, 2, 3, 2)], attributes={"axis": 2}),
    Case("Add", [floats(2, 3, 1, 3, 1, 2), floats(1, 3, 2, 1, 4, 1)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plain_operator(case: Case, tmp_path: Path) -> None:
    test_ops.test_operator(case, tmp_path)
