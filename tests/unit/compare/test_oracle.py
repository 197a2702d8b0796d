"""onnxruntime as a reference: weights are fed, values are exposed, refusals are told in a line."""

from __future__ import annotations

import sys

import numpy as np
import onnx_ir as ir
import pytest

from npuc.cli import main
from npuc.compare.errors import OracleRefused
from npuc.compare.oracle import FED_BYTES, Oracle

WIDTH = 64


def model(operator: str = "MatMul") -> ir.Model:
    """y = Relu(x @ w) with a weight above FED_BYTES."""
    weight = ir.Tensor(np.random.default_rng(0).normal(0, 1, (WIDTH, WIDTH)).astype(np.float32), name="w")
    w = ir.Value(name="w", shape=weight.shape, type=ir.TensorType(weight.dtype), const_value=weight)
    x = ir.Value(name="x", shape=ir.Shape([2, WIDTH]), type=ir.TensorType(ir.DataType.FLOAT))
    product, y = (
        ir.Value(name=name, shape=ir.Shape([2, WIDTH]), type=ir.TensorType(ir.DataType.FLOAT)) for name in ("h", "y")
    )
    nodes = [ir.Node("", operator, [x, w], outputs=[product], name="mm"), ir.Node("", "Relu", [product], outputs=[y])]
    graph = ir.Graph([x], [y], nodes=nodes, initializers=[w], opset_imports={"": 21}, name="g")
    return ir.Model(graph, ir_version=9)


def test_weights_are_fed_and_the_model_stays_as_it_is() -> None:
    original = model()
    weight = original.graph.initializers["w"].const_value
    assert weight is not None and weight.nbytes > FED_BYTES
    oracle = Oracle(original, "the model", ["h"])
    assert list(oracle.inputs) == ["x"] and oracle.outputs == ("y", "h")
    x = np.random.default_rng(1).normal(0, 1, (2, WIDTH))
    found = oracle.run({"x": x, "unused": x})
    expected = x.astype(np.float32).astype(np.float64) @ weight.numpy().astype(np.float64)
    np.testing.assert_allclose(found["h"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["y"], np.maximum(found["h"], 0))
    assert list(original.graph.initializers) == ["w"] and len(original.graph.outputs) == 1


def test_a_graph_that_onnxruntime_does_not_take() -> None:
    with pytest.raises(OracleRefused, match=r"^onnxruntime does not take the model: .*NoSuchOperator") as error:
        Oracle(model("NoSuchOperator"), "the model")
    assert "\n" not in str(error.value)


def test_feeds_that_do_not_fit() -> None:
    with pytest.raises(OracleRefused, match=r"^onnxruntime cannot run the model: .*") as error:
        Oracle(model(), "the model").run({"x": np.zeros((2, 3))})
    assert "\n" not in str(error.value)


def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["check", str(tmp_path)]) == 2
    assert capsys.readouterr().err == ("error: npuc check needs the package onnxruntime: pip install 'npuc[check]'\n")
