"""Files that are no sound model: one line that names the file, before anything large is allocated."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest

from npuc.frontend import ModelRefused, check_model, load
from tests.support.graphs import parsed, written
from tests.support.models import make_case

RELU = "g (float[2] x) => (float[2] y) { [a] y = Relu (x) }"


def refusal(path) -> str:
    with pytest.raises(ModelRefused) as error:
        check_model(load(path))
    return str(error.value)


def test_bytes_that_are_no_model(tmp_path):
    good = written(tmp_path, RELU).read_bytes()
    path = tmp_path / "some.onnx"
    for data, message in (
        (b"", "some.onnx: the file is empty"),
        (b"GGUF" + bytes(range(60)), "some.onnx: not an ONNX model"),
        (b"\x08\x09", "some.onnx: not an ONNX model: it holds no graph"),
        (good[:-3], "some.onnx: cut short: 3 bytes are missing at its end"),
        (good + b"\xff", "some.onnx: damaged"),
        (b"\x08\x09\x3a\x04\xff\xff\xff\xff", "some.onnx: damaged: the graph inside cannot be read"),
    ):
        path.write_bytes(data)
        assert refusal(path) == message


def test_every_cut_is_refused_in_one_line(tmp_path):
    good = written(tmp_path, RELU).read_bytes()
    path = tmp_path / "cut.onnx"
    for size in range(len(good) - 8):  # behind that only the list of operator sets is cut
        path.write_bytes(good[:size])
        message = refusal(path)
        assert message.startswith("cut.onnx: ") and "\n" not in message


def test_paths(tmp_path):
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: no such file or folder"
    assert refusal(tmp_path) == f"{tmp_path.name}: no model.onnx in this folder"
    for name in ("b.onnx", "a.onnx"):
        written(tmp_path / "x", RELU).rename(tmp_path / name)
    assert refusal(tmp_path) == f"{tmp_path.name}: several models (a.onnx, b.onnx) and no model.onnx: name the file"


def test_weights_that_claim_more_than_they_hold(tmp_path):
    model = parsed("g (float[2] x) => (float[2] y) { [a] y = Relu (x) }")
    model.graph.initializer.add(name="big", data_type=onnx.TensorProto.FLOAT, dims=[1 << 40], raw_data=b"1234")
    model.graph.initializer.add(name="less", data_type=onnx.TensorProto.FLOAT, dims=[-4], raw_data=b"1234")
    model.graph.initializer.add(name="few", data_type=onnx.TensorProto.INT64, dims=[3], int64_data=[1, 2])
    model.graph.initializer.add(name="nibbles", data_type=onnx.TensorProto.INT4, dims=[3], raw_data=b"12")
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    tracemalloc.start()
    try:
        with pytest.raises(ModelRefused) as error:
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert error.value.problems == (
        "weight big: shape [1099511627776] of float does not fit its 4 bytes",
        "weight less: shape [-4] has a negative extent",
        "weight few: shape [3] of int64 does not fit its 2 numbers",
    )


def test_names_that_two_things_have(tmp_path):
    model = parsed("g (float[2] x) => (float[2] y) { [a] y = Relu (x) [b] y = Neg (x) }")
    model.graph.initializer.extend([onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")] * 2)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert refusal(path).splitlines() == [
        "m.onnx: 2 problems",
        "  two initializers are named 'w'",
        "  value 'y' is made twice, by node a (Relu) and by node b (Neg)",
    ]


# b05_open_dimension is refused where dimensions get their values.
CASES = [
    "b01_cut_short", "b02_empty_file", "b03_not_a_model", "b04_wrong_type", "b06_cycle", "b07_unknown_domain",
    "b08_unknown_op", "b09_missing_value", "b10_shape_clash",
]  # fmt: skip


@pytest.fixture(scope="module")
def bad_inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    with pytest.raises(FileNotFoundError):  # the generator writes a folder for each case, none of its own name
        make_case("bad_inputs", folder)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_bad_inputs(name, bad_inputs, capfd):
    with np.load(bad_inputs / name / "expected.npz") as arrays:
        words = arrays["must_mention"].tolist()
    message = refusal(bad_inputs / name / "model.onnx")
    assert words and [word for word in words if word not in message] == []
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")
