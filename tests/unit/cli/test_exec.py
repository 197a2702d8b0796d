"""`npuc exec`: tensors in and out by name, and the sizes of a model's open dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.unit.cli.conftest import Compiler, EchoDevice, Runner


@pytest.fixture
def add(tmp_path: Path) -> Path:
    """y[rows, width] = a[rows, width] + b[1, width]."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"], name="add")],
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["rows", "width"]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, "width"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "width"])],
    )
    path = tmp_path / "add.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


def tensors(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "in.npz"
    np.savez(path, **arrays)
    return path


def test_a_blob_runs_on_named_tensors(
    npuc: Runner, compiler: Compiler, device: EchoDevice, blob: Path, tmp_path: Path
) -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    words = ("--entry", "prefill", "--n-past", "4", "--n-new", "2")
    result = npuc("exec", blob, "--input", tensors(tmp_path, x=given), "--output", tmp_path / "out.npz", *words)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert device.call == ("prefill", 4, 2)
    with np.load(tmp_path / "out.npz") as found:
        assert found.files == ["out.x"]
        np.testing.assert_array_equal(found["out.x"], given)


def test_open_dimensions_of_a_model_come_from_the_inputs(
    npuc: Runner, compiler: Compiler, device: EchoDevice, add: Path, tmp_path: Path
) -> None:
    inputs = tensors(tmp_path, a=np.zeros((2, 3), np.float32), b=np.zeros((1, 3), np.float32))
    result = npuc("exec", add, "--input", inputs, "--output", tmp_path / "out.npz", "--precision", "f32")
    assert result.code == 0 and device.call == ("main", 0, None)
    options = compiler.calls[0][2]
    assert (options.dims, options.llm, options.precision) == ({"rows": 2, "width": 3}, False, "f32")


def test_a_given_dimension_wins(
    npuc: Runner, compiler: Compiler, device: EchoDevice, add: Path, tmp_path: Path
) -> None:
    inputs = tensors(tmp_path, a=np.zeros((2, 3), np.float32))
    npuc("exec", add, "--input", inputs, "--output", tmp_path / "out.npz", "--dim", "rows=5")
    assert compiler.calls[0][2].dims == {"rows": 5, "width": 3}


def test_inputs_that_disagree_are_named(
    npuc: Runner, compiler: Compiler, device: EchoDevice, add: Path, tmp_path: Path
) -> None:
    inputs = tensors(tmp_path, a=np.zeros((2, 3), np.float32), b=np.zeros((1, 4), np.float32))
    result = npuc("exec", add, "--input", inputs, "--output", tmp_path / "out.npz")
    assert (result.code, result.err) == (
        2,
        "error: dimension width is 3 in input a and 4 in input b\nhelp: npuc exec --help\n",
    )
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 damaged"])
def test_a_file_that_is_no_npz_is_refused(
    npuc: Runner, compiler: Compiler, blob: Path, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    result = npuc("exec", blob, "--input", path, "--output", tmp_path / "out.npz")
    assert result.code == 2
    assert result.err.startswith(f"error: {path} is no .npz file of numbers: ")


def test_pickled_arrays_are_refused(npuc: Runner, compiler: Compiler, blob: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, x=np.array([{}], object))
    result = npuc("exec", blob, "--input", path, "--output", tmp_path / "out.npz")
    assert result.code == 2
    assert result.err.startswith(f"error: {path} is no .npz file of numbers: Object arrays cannot be loaded")


def test_one_array_without_a_name_is_refused(npuc: Runner, compiler: Compiler, blob: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.npy"
    np.save(path, np.zeros(3))
    result = npuc("exec", blob, "--input", path, "--output", tmp_path / "out.npz")
    assert (result.code, result.err) == (
        2,
        f"error: {path} holds one array without a name: give an .npz file\nhelp: npuc exec --help\n",
    )


def test_tensors_that_are_no_inputs_are_told_apart_from_open_dimensions(
    npuc: Runner, compiler: Compiler, device: EchoDevice, add: Path, tmp_path: Path
) -> None:
    inputs = tensors(tmp_path, z=np.zeros((2, 3), np.float32))
    result = npuc("exec", add, "--input", inputs, "--output", tmp_path / "out.npz")
    message = "error: the given tensors are z; the graph's inputs are a, b\nhelp: npuc exec --help\n"
    assert (result.code, result.err) == (2, message)
    assert compiler.calls == []
