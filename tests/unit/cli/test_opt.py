"""`npuc opt --step pairs-to-state`: the file it writes, also with weights outside the model file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.unit.cli.conftest import Runner

F32 = TensorProto.FLOAT


def pair_model(path: Path, *, outside: bool = False, state: str = "past_key_values.0.key") -> Path:
    """present = past + x * w: one state as a pair."""
    weight = numpy_helper.from_array(np.arange(4096, dtype=np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "w"], ["scaled"]),
            helper.make_node("Add", [state, "scaled"], ["present.0.key"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", F32, [4096]), helper.make_tensor_value_info(state, F32, [4096])],
        [helper.make_tensor_value_info("present.0.key", F32, [4096])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, path, save_as_external_data=outside, location="weights.bin")
    return path


@pytest.mark.parametrize("outside", [False, True])
def test_the_written_model_has_variables_and_its_weights(npuc: Runner, tmp_path: Path, outside: bool) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = pair_model(tmp_path / "in" / "model.onnx", outside=outside)
    result = npuc("opt", source, "--step", "pairs-to-state", "-o", tmp_path / "out" / "x.onnx")
    assert (result.code, result.out, result.err) == (0, "", f"{tmp_path / 'out' / 'x.onnx'}: written\n")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == (["x.onnx", "x.onnx.data"] if outside else ["x.onnx"])
    found = onnx.load(tmp_path / "out" / "x.onnx")
    assert [node.op_type for node in found.graph.node if node.domain == "npuc"] == ["ReadValue", "Assign"]
    np.testing.assert_array_equal(numpy_helper.to_array(found.graph.initializer[0]), np.arange(4096, dtype=np.float32))


def test_a_model_without_pairs_is_refused_and_writes_nothing(npuc: Runner, tmp_path: Path) -> None:
    source = pair_model(tmp_path / "model.onnx", state="other")
    result = npuc("opt", source, "--step", "pairs-to-state", "-o", tmp_path / "x.onnx")
    assert result.code == 3
    assert result.err == "error: the graph has no pair of a state input and a state output\n"
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
