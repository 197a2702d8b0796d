"""State outside language models: swapped, passed through, read only, written only, scalar counters; run by run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import npurt
from tests.support.models import compile_to

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def state(kind, variable, shape, *inputs, out, dtype=FLOAT):
    node = helper.make_node(kind, list(inputs), [out], name=f"n_{out}", domain="npuc")
    node.attribute.extend(
        [
            helper.make_attribute("variable_id", variable),
            helper.make_attribute("shape", shape, attr_type=AttributeProto.INTS),
            helper.make_attribute("dtype", dtype),
        ]
    )
    return node


def device_of(nodes, inputs, outputs, path, initializers=(), **options):
    graph = helper.make_graph(
        nodes,
        "states",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in initializers],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("npuc", 1)]
    model = path / "model.onnx"
    model.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())
    return npurt.Device(npurt.load(compile_to(path / "m.npu", model, **options)))


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_swapped_variables(precision, tmp_path):
    """a becomes b and b becomes a: both are read before either is written."""
    start = [("start_a", np.array([1, 2, 3], np.float32)), ("start_b", np.array([4, 5, 6], np.float32))]
    nodes = [
        state("ReadValue", "a", [3], "start_a", out="a0"),
        state("ReadValue", "b", [3], "start_b", out="b0"),
        state("Assign", "a", [3], "b0", out="a1"),
        state("Assign", "b", [3], "a0", out="b1"),
        helper.make_node("Add", ["x", "a0"], ["y"], name="add"),
    ]
    device = device_of(nodes, [("x", FLOAT, [3])], [("y", FLOAT, [3])], tmp_path, start, precision=precision)
    x = np.array([10, 20, 30], np.float32)
    seen = [device.run("main", {"x": x})["y"].tolist() for _ in range(3)]
    assert seen == [[11, 22, 33], [14, 25, 36], [11, 22, 33]]
    assert device.state("a").tolist() == [4, 5, 6]
    device.reset()
    assert device.state("a").tolist() == [1, 2, 3]


def test_a_counter_stays_an_integer_in_half_precision(tmp_path):
    nodes = [
        state("ReadValue", "count", [], out="before", dtype=INT),
        helper.make_node("Add", ["before", "step"], ["after"], name="add"),
        state("Assign", "count", [], "after", out="kept", dtype=INT),
        helper.make_node("Cast", ["kept"], ["y"], name="cast", to=FLOAT),
    ]
    step = [("step", np.array(1001, np.int64))]
    device = device_of(nodes, [], [("after", INT, []), ("y", FLOAT, [])], tmp_path, step, precision="f16")
    for run in range(1, 6):
        got = device.run("main", {})
        assert got["after"].dtype == np.int64
        assert got["after"] == 1001 * run  # 2002 and up are not all on the f16 grid
    assert device.state("count") == 5005


def test_a_counter_starts_where_it_is_told(tmp_path):
    nodes = [
        state("ReadValue", "count", [], "first", out="before", dtype=INT),
        helper.make_node("Add", ["before", "step"], ["after"], name="add"),
        state("Assign", "count", [], "after", out="kept", dtype=INT),
    ]
    numbers = [("first", np.array(40, np.int64)), ("step", np.array(1, np.int64))]
    device = device_of(nodes, [], [("after", INT, [])], tmp_path, numbers, precision="f16")
    assert [int(device.run("main", {})["after"]) for _ in range(2)] == [41, 42]


def test_read_only_write_only_and_unused(tmp_path):
    nodes = [
        state("ReadValue", "bias", [2], "start", out="bias0"),
        helper.make_node("Add", ["x", "bias0"], ["y"], name="add"),
        state("Assign", "last", [2], "y", out="nobody"),
    ]
    start = [("start", np.array([0.5, -0.5], np.float32))]
    device = device_of(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], tmp_path, start, precision="f32")
    for value in (1.0, 3.0):
        x = np.full(2, value, np.float32)
        assert device.run("main", {"x": x})["y"].tolist() == [value + 0.5, value - 0.5]
        assert device.state("last").tolist() == [value + 0.5, value - 0.5]
    kinds = {state.id: state.kind for state in device.image.metadata.states}
    assert kinds == {"bias": "read_only", "last": "write_only"}


def test_a_variable_that_passes_through_and_goes_out_twice(tmp_path):
    nodes = [
        state("ReadValue", "kept", [2, 2], "start", out="before"),
        state("Assign", "kept", [2, 2], "before", out="after"),
        helper.make_node("Transpose", ["before"], ["turned"], name="turn"),
        helper.make_node("Identity", ["after"], ["same"], name="same"),
        helper.make_node("Mul", ["x", "before"], ["y"], name="mul"),
    ]
    start = np.arange(4, dtype=np.float32).reshape(2, 2)
    outputs = [(name, FLOAT, [2, 2]) for name in ("turned", "same", "y")]
    device = device_of(nodes, [("x", FLOAT, [2, 2])], outputs, tmp_path, [("start", start)], precision="f32")
    for _ in range(2):
        got = device.run("main", {"x": np.ones((2, 2), np.float32)})
        assert np.array_equal(got["turned"], start.T)
        assert np.array_equal(got["same"], start)
        assert np.array_equal(got["y"], start)
