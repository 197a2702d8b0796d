"""A group is judged by its own inputs: what only carries an error on is not blamed for it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from npuc.compare.device import EntryRun, Found, Tally, compare_groups
from npuc.compare.groups import Group
from npuc.compare.isolate import isolated
from npuc.compare.tolerance import tolerance_for
from npuc.graph.entry import EntryGraph

TOLERANCE = tolerance_for("f32")
X = np.array([1.0, -2.0, 3.0], np.float32)


def entry() -> EntryGraph:
    """h = x * x, y = Neg(h), z = y + h."""
    x, h, y, z = (
        ir.Value(name=name, shape=ir.Shape([3]), type=ir.TensorType(ir.DataType.FLOAT)) for name in ("x", "h", "y", "z")
    )
    nodes = [
        ir.Node("", "Mul", [x, x], outputs=[h], name="square"),
        ir.Node("", "Neg", [h], outputs=[y], name="minus"),
        ir.Node("", "Add", [y, h], outputs=[z], name="sum"),
    ]
    model = ir.Model(ir.Graph([x], [z], nodes=nodes, opset_imports={"": 21}, name="g"), ir_version=9)
    return EntryGraph("main", 0, 0, model, [], [])


def group(value: str) -> Group:
    return Group(value, None, value, "Op", ("map1",), ("shave",), (value,), (3,), "f32")


GROUPS = [group("h"), group("y"), group("z")]
WANTED = {"h": X * X, "y": -X * X, "z": 0 * X}


def test_a_value_from_the_nearest_known_ones() -> None:
    model = entry().model
    h, y = np.array([5.0, 6, 7]), np.array([1.0, 1, 1])
    np.testing.assert_array_equal(isolated(model, "z", {"x": X, "h": h, "y": y}), h + 1)
    np.testing.assert_array_equal(isolated(model, "z", {"x": X, "h": h}), 0 * h)
    np.testing.assert_array_equal(isolated(model, "y", {"x": X, "h": h, "y": y}), -h)
    np.testing.assert_array_equal(isolated(model, "h", {"x": X, "h": h, "y": y, "z": y}), X * X)
    assert [node.name for node in model.graph] == ["square", "minus", "sum"]


def test_a_group_that_carries_an_error_on_is_right() -> None:
    """The device had another x than the reference: everything is off, and nothing is wrong."""
    tally, other = Tally(), np.array([1.1, -2.0, 3.0], np.float32)
    found = {"h": other * other, "y": -other * other, "z": 0 * other}
    compare_groups(EntryRun(entry(), {"x": other}, found, WANTED), GROUPS, TOLERANCE, tally)
    assert (tally.compared, tally.drifted) == (3, 2)


def test_the_first_group_that_is_wrong_by_itself_is_found() -> None:
    tally, other = Tally(), np.array([1.1, -2.0, 3.0], np.float32)
    found = {"h": other * other, "y": -other * other + [0, 0, 1], "z": X}
    with pytest.raises(Found) as error:
        compare_groups(EntryRun(entry(), {"x": other}, found, WANTED, 4, 3), GROUPS, TOLERANCE, tally)
    finding = error.value.finding
    assert (finding.group.value, finding.entry, finding.n_past, finding.n_new) == ("y", "main", 4, 3)
    assert finding.difference.max_abs == pytest.approx(1) and finding.difference.worst == (2,)
    assert (tally.compared, tally.drifted) == (2, 1)
