"""Conv of plain graphs on the device against onnxruntime: groups, strides, dilations, pads, any number of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from npuc import onnx_backend

CASES: list[tuple[list[int], list[int], dict[str, Any]]] = [
    ([2, 4, 9, 8], [6, 2, 3, 2], {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1]}),
    ([1, 3, 16, 16], [8, 3, 3, 3], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ([1, 3, 7, 7], [2, 3, 2, 2], {"auto_pad": "SAME_LOWER"}),
    ([2, 3, 9], [5, 3, 4], {"auto_pad": "VALID"}),
    ([2, 4, 11], [4, 1, 4], {"group": 4}),
    ([1, 3, 5, 6, 7], [4, 3, 2, 3, 2], {"pads": [1] * 6}),
    ([1, 8, 4, 4], [16, 8, 1, 1], {}),
    ([1, 8, 10, 10], [8, 1, 3, 3], {"group": 8, "pads": [1] * 4}),
]


@pytest.mark.parametrize("constant", [True, False], ids=["constant weights", "given weights"])
@pytest.mark.parametrize(("x", "weight", "attributes"), CASES)
def test_agrees_with_onnxruntime(x: list[int], weight: list[int], attributes: dict[str, Any], constant: bool) -> None:
    rng = np.random.default_rng(len(weight))
    shapes = {"x": x, "w": weight, "b": weight[:1]}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    given = ["x"] if constant else ["x", "w", "b"]
    float_ = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info(name, float_, shapes[name]) for name in given],
        [helper.make_tensor_value_info("y", float_, None)],
        [onnx.numpy_helper.from_array(arrays[name], name) for name in shapes if name not in given],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feeds = {name: arrays[name] for name in given}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feeds)
    (found,) = onnx_backend.run_model(model, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)
