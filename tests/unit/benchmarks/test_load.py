"""The benchmark of loading: its deeper model computes what its layers say, and it measures what it loads."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks import load
from benchmarks.layers import deepened


def logits(model: onnx.ModelProto, layers: int) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    ids = np.array([[5, 17, 42]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(3)[None]}
    for layer in range(layers):
        for part in ("key", "value"):
            feeds[f"past_key_values.{layer}.{part}"] = np.zeros((1, 2, 0, 16), np.float32)
    return np.asarray(session.run(["logits"], feeds)[0])


def test_a_deeper_model_has_further_layers_of_the_same_weights() -> None:
    """With layers that add nothing it computes what the model does; with those it has, something else."""
    shallow = onnx.load(load.CHATTY)
    deep = deepened(shallow, 4)
    onnx.checker.check_model(deep)
    assert [port.name for port in deep.graph.input[-2:]] == ["past_key_values.3.key", "past_key_values.3.value"]
    assert len(deep.graph.output) == 1 + 2 * 4
    assert not np.allclose(logits(deep, 4), logits(shallow, 2), atol=1e-3)
    for node in shallow.graph.node:  # the last layer's two products into the sum give zeros
        if node.name in ("/model/layers.1/self_attn/o_proj/MatMul", "/model/layers.1/mlp/down_proj/MatMul"):
            zeros = next(t for t in shallow.graph.initializer if t.name == node.input[1])
            zeros.CopyFrom(onnx.numpy_helper.from_array(np.zeros(list(zeros.dims), np.float32), zeros.name))
    np.testing.assert_allclose(logits(deepened(shallow, 4), 4), logits(shallow, 2), atol=1e-6)


def test_a_model_of_one_layer_is_refused() -> None:
    single = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    with pytest.raises(ValueError, match="layer 0 gives"):
        deepened(single, 3)


def test_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert load.main(["--one", str(load.CHATTY)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"] == 627 and found["files"] == load.CHATTY.stat().st_size
    assert next(iter(found["steps"])) == "load" and {"measure", "fold", "norms"} <= set(found["steps"])
    assert 0 < sum(found["steps"].values()) <= found["seconds"] * 1.001
