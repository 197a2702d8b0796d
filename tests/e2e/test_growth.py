"""Growing states outside language models: an entry for each run, right at every run, full at the bound."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

import npurt
from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions
from npuc.frontend.errors import ModelRefused
from tests.e2e.test_states import FLOAT, INT, device_of, state
from tests.support.models import compile_to

op = helper.make_node


def grow(variable, shape, rows, axis, *start, dtype=FLOAT):
    """Nodes: `<variable>.before`, then `<variable>.all` with `rows` behind it."""
    return [
        state("ReadValue", variable, shape, *start, out=f"{variable}.before", dtype=dtype),
        op("Concat", [f"{variable}.before", rows], [f"{variable}.all"], name=f"cat_{variable}", axis=axis),
        state("Assign", variable, shape, f"{variable}.all", out=f"{variable}.after", dtype=dtype),
    ]


def labels(bound, step=1):
    return ["main", *(f"main.{rows}" for rows in range(step, bound - step + 1, step))]


def test_rows_arrive_and_the_last_run_is_the_last(tmp_path):
    nodes = [*grow("rows", [-1, 2], "x", 0), op("Mul", ["x", "x"], ["y"], name="mul")]
    device = device_of(
        nodes, [("x", FLOAT, [1, 2])], [("y", FLOAT, [1, 2])], tmp_path, precision="f32", state_rows={"rows": 4}
    )
    assert list(device.image.entries) == labels(4)
    for run, entry in enumerate(labels(4)):
        x = np.array([[run + 1.0, -run]], np.float32)
        assert np.array_equal(device.run(entry, {"x": x}, n_past=run, n_new=1)["y"], x * x)
    assert device.state("rows").tolist() == [[1, 0], [2, -1], [3, -2], [4, -3]]
    with pytest.raises(npurt.DeviceError, match=r"no entry 'main\.4'"):
        device.run("main.4", {"x": x}, n_past=4)
    with pytest.raises(npurt.DeviceError, match=r"entry main\.2: n_past 3, 0 to 2 are possible"):
        device.run("main.2", {"x": x}, n_past=3)


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_what_reduces_over_the_rows_is_right_in_each_run(precision, tmp_path):
    """y = x + mean over all rows; z reads the rows before the run, of which the first run has none."""
    nodes = [
        *grow("rows", [-1, 4], "x", 0),
        op("ReduceMean", ["rows.all"], ["mean"], name="mean", axes=[0], keepdims=1),
        op("Add", ["x", "mean"], ["y"], name="add"),
        op("ReduceSum", ["rows.before", "axis"], ["z"], name="sum", keepdims=1),
    ]
    device = device_of(
        nodes, [("x", FLOAT, [2, 4])], [("y", FLOAT, [2, 4]), ("z", FLOAT, [1, 4])], tmp_path,
        [("axis", np.array([0], np.int64))], precision=precision, state_rows={"rows": 9},
    )  # fmt: skip
    rng, rows = np.random.default_rng(3), np.zeros((0, 4))
    assert list(device.image.entries) == labels(9, 2)
    for entry in labels(9, 2):
        x = rng.standard_normal((2, 4)).astype(np.float16).astype(np.float32)
        before, rows = rows, np.concatenate([rows, x])
        got = device.run(entry, {"x": x})
        tolerance = 1e-6 if precision == "f32" else 4e-3
        np.testing.assert_allclose(got["y"], x + rows.mean(0, keepdims=True), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(got["z"], before.sum(0, keepdims=True), rtol=tolerance, atol=tolerance)
    assert np.array_equal(device.state("rows")[:8], rows)
    device.reset()
    x = np.ones((2, 4), np.float32)
    assert device.run("main", {"x": x})["y"].tolist() == [[2.0] * 4] * 2


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_attention_over_two_growing_states(precision, tmp_path):
    """Keys and values along the third of four axes: softmax(q k^T) v, without a mask."""
    nodes = [
        *grow("k", [1, 2, -1, 8], "k", 2),
        *grow("v", [1, 2, -1, 4], "v", 2),
        op("Transpose", ["k.all"], ["turned"], name="turn", perm=[0, 1, 3, 2]),
        op("MatMul", ["q", "turned"], ["scores"], name="scores"),
        op("Softmax", ["scores"], ["weights"], name="weights", axis=-1),
        op("MatMul", ["weights", "v.all"], ["y"], name="mix"),
    ]
    shapes = {"q": [1, 2, 3, 8], "k": [1, 2, 3, 8], "v": [1, 2, 3, 4]}
    device = device_of(
        nodes, [(name, FLOAT, shape) for name, shape in shapes.items()], [("y", FLOAT, [1, 2, 3, 4])], tmp_path,
        precision=precision, state_rows={"k": 12, "v": 20},
    )  # fmt: skip
    rng, past = np.random.default_rng(4), {name: np.zeros((1, 2, 0, shapes[name][3])) for name in "kv"}
    for entry in labels(12, 3):
        x = {name: rng.standard_normal(shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()}
        past = {name: np.concatenate([past[name], x[name]], 2) for name in "kv"}
        weights = np.exp(x["q"].astype(np.float64) @ past["k"].swapaxes(2, 3))
        want = weights / weights.sum(-1, keepdims=True) @ past["v"]
        tolerance = 1e-5 if precision == "f32" else 5e-3
        np.testing.assert_allclose(device.run(entry, x)["y"], want, rtol=tolerance, atol=tolerance)
    assert list(device.image.entries) == labels(12, 3)
    assert np.array_equal(device.state("v")[:, :, :12], past["v"])


def test_any_axis_and_rank_beside_other_states(tmp_path):
    """Rows on the last of five axes, integer rows of a vector, a counter, and rows that only the graph makes."""
    nodes = [
        *grow("wide", [1, 2, 1, 3, -1], "x", -1),
        *grow("seen", [-1], "one", 0, dtype=INT),
        op("ReduceMax", ["wide.all"], ["y"], name="max", axes=[4], keepdims=0),
        op("ReduceSum", ["seen.all", "axis"], ["n"], name="count", keepdims=0),
        op("Identity", ["seen.before"], ["before"], name="before"),
        state("ReadValue", "runs", [], out="runs.before", dtype=INT),
        op("Add", ["runs.before", "two"], ["runs.next"], name="add"),
        state("Assign", "runs", [], "runs.next", out="runs.after", dtype=INT),
    ]
    constants = [("one", np.array([1], np.int64)), ("axis", np.array([0], np.int64)), ("two", np.array(2, np.int64))]
    outputs = [("y", FLOAT, [1, 2, 1, 3]), ("n", INT, []), ("before", INT, ["rows"]), ("runs.next", INT, [])]
    device = device_of(
        nodes, [("x", FLOAT, [1, 2, 1, 3, 1])], outputs, tmp_path, constants, precision="f32",
        state_rows={"wide": 5, "seen": 5},
    )  # fmt: skip
    rng, rows = np.random.default_rng(5), np.zeros((1, 2, 1, 3, 0), np.float32)
    for run, entry in enumerate(labels(5)):
        x = rng.standard_normal((1, 2, 1, 3, 1)).astype(np.float32)
        rows = np.concatenate([rows, x], -1)
        got = device.run(entry, {"x": x})
        assert np.array_equal(got["y"], rows.max(-1))
        assert (got["n"], got["before"].tolist(), got["runs.next"]) == (run + 1, [1] * run, 2 * run + 2)
    assert np.array_equal(device.state("wide"), rows)


def test_a_state_that_starts_with_rows(tmp_path):
    nodes = [
        *grow("rows", [-1, 2], "x", 0, "start"),
        op("ReduceSum", ["rows.all", "axis"], ["y"], name="sum", keepdims=0),
    ]
    start = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    device = device_of(
        nodes, [("x", FLOAT, [1, 2])], [("y", FLOAT, [2])], tmp_path,
        [("start", start), ("axis", np.array([0], np.int64))], precision="f32", state_rows={"rows": 5},
    )  # fmt: skip
    assert list(device.image.entries) == ["main", "main.1"]
    x = np.array([[10, 20]], np.float32)
    for _ in range(2):
        assert device.run("main", {"x": x})["y"].tolist() == [19, 32]
        assert device.run("main.1", {"x": x})["y"].tolist() == [29, 52]
        device.reset()
    assert device.state("rows").tolist() == [*start.tolist(), [0, 0], [0, 0]]


def test_a_pair_grows_too(tmp_path):
    graph = helper.make_graph(
        [op("Concat", ["past.rows", "x"], ["present.rows"], name="cat", axis=1),
         op("ReduceMax", ["present.rows"], ["y"], name="max", axes=[1], keepdims=1)],
        "pair",
        [helper.make_tensor_value_info("x", FLOAT, [2, 1]),
         helper.make_tensor_value_info("past.rows", FLOAT, [2, "p"])],
        [helper.make_tensor_value_info("y", FLOAT, [2, 1]),
         helper.make_tensor_value_info("present.rows", FLOAT, [2, "p + 1"])],
    )  # fmt: skip
    model = tmp_path / "model.onnx"
    saved = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model.write_bytes(saved.SerializeToString())
    blob = compile_to(tmp_path / "m.npu", model, precision="f32", state_rows={"past.rows": 3})
    device = npurt.Device(npurt.load(blob))
    for entry, x, most in zip(labels(3), ([5, 1], [2, 3], [4, 2]), ([5, 1], [5, 3], [5, 3]), strict=True):
        got = device.run(entry, {"x": np.array(x, np.float32)[:, None]})
        assert set(got) == {"y"} and got["y"].ravel().tolist() == most
    assert device.state("past.rows").tolist() == [[5, 2, 4], [1, 3, 2]]


def test_what_reads_no_row_gives_what_onnx_says(tmp_path):
    """Before the first row: a sum is 0, a mean NaN, a maximum minus infinity, a product with no columns 0."""
    reductions = [("Sum", "ReduceSum"), ("Mean", "ReduceMean"), ("Max", "ReduceMax"), ("Min", "ReduceMin")]
    nodes = [
        *grow("rows", [2, -1], "x", 1),
        *(op(kind, ["rows.before", *(["axis"] if name == "Sum" else [])], [name], name=name, keepdims=0,
             **({} if name == "Sum" else {"axes": [1]})) for name, kind in reductions),
        op("Transpose", ["rows.before"], ["turned"], name="turn", perm=[1, 0]),
        op("MatMul", ["rows.before", "turned"], ["square"], name="square"),
    ]  # fmt: skip
    outputs = [*((name, FLOAT, [2]) for name, _ in reductions), ("square", FLOAT, [2, 2])]
    device = device_of(
        nodes, [("x", FLOAT, [2, 1])], outputs, tmp_path, [("axis", np.array([1], np.int64))], precision="f32",
        state_rows={"rows": 2},
    )  # fmt: skip
    x = np.array([[3], [-2]], np.float32)
    first = device.run("main", {"x": x})
    assert [first[name].tolist() for name in ("Sum", "Max", "Min")] == [[0, 0], [-np.inf] * 2, [np.inf] * 2]
    assert np.isnan(first["Mean"]).all() and first["square"].tolist() == [[0, 0], [0, 0]]
    second = device.run("main.1", {"x": x})
    assert [second[name].tolist() for name, _ in reductions] == [[3, -2]] * 4
    assert second["square"].tolist() == [[9, -6], [-6, 4]]


def test_the_example_of_the_page(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "stateful-format.md"
    (text,) = re.findall(r"```\n(<ir_version.*?)```", page.read_text(), re.DOTALL)
    model = tmp_path / "model.onnx"
    model.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    blob = compile_to(tmp_path / "m.npu", model, precision="f32", state_rows={"rows": 16})
    device = npurt.Device(npurt.load(blob))
    assert list(device.image.entries) == labels(16)
    first = device.run("main", {"x": np.full((1, 4), 1, np.float32)})
    assert (first["mean"].tolist(), first["seen"]) == ([[1, 2, 1, 0.5]], 1)
    second = device.run("main.1", {"x": np.full((1, 4), 3, np.float32)})
    assert (second["mean"].tolist(), second["seen"]) == ([[2, 4, 2, 1]], 2)


def test_sixty_four_runs(tmp_path):
    nodes = [*grow("rows", [-1, 1], "x", 0), op("Neg", ["x"], ["y"], name="neg")]
    io = [("x", FLOAT, [1, 1])], [("y", FLOAT, [1, 1])]
    device = device_of(nodes, *io, tmp_path, precision="f32", state_rows={"rows": 64})
    assert list(device.image.entries) == labels(64)
    with pytest.raises(ModelRefused) as error:
        device_of(nodes, *io, tmp_path, precision="f32", state_rows={"rows": 65})
    assert error.value.problems == (
        "--state-rows rows=65: a run adds 1 rows and each of the 65 runs needs an entry of its own; at most 64 are "
        "made, so --state-rows rows=64 is the most",
    )


def doubling(variable):
    """Each run puts the rows before it and one more behind: 1, 3, 7 ..."""
    return [
        state("ReadValue", variable, [-1, 2], out="before"),
        op("Concat", ["before", "x"], ["more"], name="more", axis=0),
        op("Concat", ["before", "more"], ["all"], name="all", axis=0),
        state("Assign", variable, [-1, 2], "all", out="after"),
    ]


def pushed_in_front(variable):
    return [
        state("ReadValue", variable, [-1, 2], out="before"),
        op("Concat", ["x", "before"], ["all"], name="all", axis=0),
        state("Assign", variable, [-1, 2], "all", out="after"),
    ]


TWICE = op("Concat", ["x", "x"], ["xx"], name="xx", axis=0)
REFUSED = {
    "unequal": (
        [*grow("a", [-1, 2], "x", 0), TWICE, *grow("b", [-1, 2], "xx", 0)],
        {"a": 4, "b": 4},
        "a run adds different numbers of rows to the growing states: 'a' 1, 'b' 2; they must be equal",
    ),
    "doubling": (
        doubling("rows"),
        {"rows": 3},
        "state 'rows' gains 2 rows in the run that finds 1, 1 in the first; each run must add equally many",
    ),
    "in front": (
        pushed_in_front("rows"),
        {"rows": 4},
        "state 'rows' is [0, 2] before a run and [1, 2] after it; a state must keep its shape, or get rows behind it "
        "(node all (Concat) has the value as operand 1, not in front, so each run gives a whole new value)",
    ),
    "no room": (
        [TWICE, *grow("rows", [-1, 2], "xx", 0)],
        {"rows": 1},
        "--state-rows rows=1: the first run fills 2 rows, so at least 2 are needed",
    ),
    "no bound": (
        grow("rows", [-1, 2], "x", 0),
        {},
        "state 'rows' grows along axis 0 and nothing bounds it: give its largest extent, --state-rows rows=N",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_growth(name, tmp_path):
    nodes, rows, message = REFUSED[name]
    y = op("Neg", ["x"], ["y"], name="neg")
    with pytest.raises(ModelRefused) as error:
        device_of([*nodes, y], [("x", FLOAT, [1, 2])], [("y", FLOAT, [1, 2])], tmp_path, state_rows=rows)
    assert error.value.problems == (message,)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_language_model_as_a_plain_graph_grows_by_its_bound(tmp_path):
    """Token ids in, logits out, compiled as `npuc exec` does: the cache of one layer, three tokens one by one."""
    table = np.random.default_rng(6).standard_normal((7, 4)).astype(np.float32)
    nodes = [
        op("Gather", ["table", "input_ids"], ["row"], name="embed"),
        *grow("cache", [1, -1, 4], "row", 1),
        op("ReduceMean", ["cache.all"], ["logits"], name="mean", axes=[1], keepdims=1),
    ]
    device = device_of(
        nodes, [("input_ids", TensorProto.INT64, [1, 1])], [("logits", FLOAT, [1, 1, 4])], tmp_path,
        [("table", table)], precision="f32", llm=False, state_rows={"cache": 3},
    )  # fmt: skip
    tokens = [5, 0, 6]
    for run, entry in enumerate(labels(3)):
        got = device.run(entry, {"input_ids": np.array([[tokens[run]]])})["logits"]
        np.testing.assert_allclose(got[0], table[tokens[: run + 1]].mean(0, keepdims=True), rtol=1e-6, atol=1e-7)
    assert np.array_equal(device.state("cache")[0], table[tokens])


@pytest.mark.parametrize("everything", [False, True])
def test_check_compares_the_runs_of_growing_states(everything, tmp_path):
    """y over all rows in three runs against onnxruntime, on the device, after each step, and group by group."""
    nodes = [
        *grow("rows", [-1, 4], "x", 0, "start"),
        op("ReduceMean", ["rows.all"], ["mean"], name="mean", axes=[0], keepdims=1),
        op("Add", ["x", "mean"], ["y"], name="add"),
    ]
    io = [("x", FLOAT, [2, 4])], [("y", FLOAT, [2, 4])]
    device_of(nodes, *io, tmp_path, [("start", np.ones((1, 4), np.float32))], precision="f32", state_rows={"rows": 9})
    options = CompileOptions(precision="f32", state_rows={"rows": 9})
    result = check(Check(tmp_path / "model.onnx", options, everything=everything))
    assert result.agrees and (result.group is None) and (result.step is None)
    runs = [f"output {name} of run {run}" for run in (1, 2, 3) for name in ("y", "next.rows")]
    assert sorted(result.parts) == sorted(runs)
