"""QuantizeLinear and DequantizeLinear on values of the run, through the whole compiler, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.frontend import ModelRefused
from tests.support.models import compile_to, run_graph

RANDOM = np.random.default_rng(8)
KINDS = {
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "uint16": TensorProto.UINT16,
    "int16": TensorProto.INT16,
    "uint4": TensorProto.UINT4,
    "int4": TensorProto.INT4,
}


def written(path: Path, nodes: list[onnx.NodeProto], shape: list[int], held: list[onnx.TensorProto]) -> bytes:
    """A model of x [3, 8] to y, as a file too."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "values", [x], [y], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path.read_bytes()


def reference(model: bytes, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return np.asarray(ort.InferenceSession(model, options, ["CPUExecutionProvider"]).run(None, {"x": x})[0])


def numbers(scale: float) -> np.ndarray:
    """Values that float16 holds, many of them halfway between two codes, some far outside."""
    x = RANDOM.integers(-40, 40, (3, 8)) * np.float32(scale) / 2
    x[0, :4] = -1000, 1000, 0, 5e-4
    return x.astype(np.float16).astype(np.float32)


def test_the_form_of_onnxruntime_s_own_domain(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], domain="com.microsoft"),
    ]
    model = written(tmp_path / "m.onnx", nodes, [3, 8], parameters("int16", 0.03, -9))
    x = numbers(0.03)
    blob = compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision="f32")
    np.testing.assert_array_equal(run_graph(blob, {"x": x})["y"], reference(model, x))


def parameters(kind: str, scale: float, zero: int | None) -> list[onnx.TensorProto]:
    held = [numpy_helper.from_array(np.float32(scale), "s")]
    return held if zero is None else [*held, helper.make_tensor("z", KINDS[kind], [], [zero])]


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize(("scale", "zero"), [(0.25, 3), (0.0371, 2), (0.0371, None)])
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_to_codes_and_back(kind: str, scale: float, zero: int | None, precision: str, tmp_path: Path) -> None:
    names = ["s"] if zero is None else ["s", "z"]
    to = {"output_dtype": KINDS[kind]} if zero is None else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], **to),
        helper.make_node("DequantizeLinear", ["q", *names], ["y"]),
    ]
    model = written(tmp_path / "m.onnx", nodes, [3, 8], parameters(kind, scale, zero))
    x = numbers(scale)
    blob = compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision=precision)
    np.testing.assert_array_equal(run_graph(blob, {"x": x})["y"], reference(model, x))


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_codes_may_be_moved_before_they_are_numbers_again(kind: str, precision: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Transpose", ["q"], ["t"], perm=[1, 0]),
        helper.make_node("DequantizeLinear", ["t", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["b"]),
        helper.make_node("MatMul", ["b", "a"], ["y"]),
    ]
    model = written(tmp_path / "m.onnx", nodes, [3, 3], parameters(kind, 0.25, 5))
    x = numbers(0.25)
    got = run_graph(compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision=precision), {"x": x})["y"]
    np.testing.assert_allclose(got, reference(model, x), rtol=1e-6)


def test_a_quantised_layer(tmp_path: Path) -> None:
    """The form of quantize_static: weights int8 for each channel, activations uint8 around the product."""
    weight = RANDOM.integers(-127, 128, (8, 5)).astype(np.int8)
    held = [
        *parameters("uint8", 0.05, 117),
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(RANDOM.uniform(0.01, 0.02, 5).astype(np.float32), "ws"),
        numpy_helper.from_array(np.zeros(5, np.int8), "wz"),
        numpy_helper.from_array(RANDOM.normal(size=5).astype(np.float32), "bias"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=1),
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Add", ["p", "bias"], ["y"]),
    ]
    model = written(tmp_path / "m.onnx", nodes, [3, 5], held)
    x = numbers(0.05)
    blob = compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision="f32")
    np.testing.assert_allclose(run_graph(blob, {"x": x})["y"], reference(model, x), rtol=1e-5, atol=1e-5)


def test_weights_that_are_quantised_in_the_file_fold(tmp_path: Path) -> None:
    """QuantizeLinear and DequantizeLinear on a constant of floats, read through a Transpose."""
    held = [*parameters("int8", 0.05, 3), numpy_helper.from_array(RANDOM.normal(size=(5, 8)).astype(np.float32), "w")]
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    model = written(tmp_path / "m.onnx", nodes, [3, 5], held)
    x = numbers(0.5)
    blob = compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision="f32")
    np.testing.assert_allclose(run_graph(blob, {"x": x})["y"], reference(model, x), rtol=1e-5, atol=1e-5)


SPANS = (
    "its scale spans all rows of a run, so that an answer would change with how a prompt is cut into runs; "
    "quantise the weights alone, or activations with constant scales (format QDQ)"
)
REFUSED = [
    (
        [("DynamicQuantizeLinear", ["x"], ["q", "s1", "z1"]), ("DequantizeLinear", ["q", "s1", "z1"], ["y"])],
        f"node 'n0' (DynamicQuantizeLinear): {SPANS}",
    ),
    (
        [
            ("QuantizeLinear", ["x", "s", "z"], ["q"]),
            ("MatMulInteger", ["q", "w", "z"], ["p"]),
            ("DequantizeLinear", ["p", "s"], ["y"]),
        ],
        "node 'n1' (MatMulInteger): products of quantised activations are not supported; "
        "quantise with the format QDQ, or weights alone",
    ),
    (
        [("QuantizeLinear", ["x", "many"], ["q"]), ("DequantizeLinear", ["q", "many"], ["y"])],
        "node 'n1' (DequantizeLinear): a scale of shape [8] for a value of the run; "
        "only one for all of it is supported",
    ),
]


@pytest.mark.parametrize(("nodes", "said"), REFUSED)
def test_what_is_not_supported_is_refused_with_the_reason(nodes: list[tuple], said: str, tmp_path: Path) -> None:
    held = [
        *parameters("uint8", 0.05, 7),
        numpy_helper.from_array(np.ones(8, np.float32), "many"),
        numpy_helper.from_array(np.ones((8, 8), np.int8), "w"),
    ]
    made = [helper.make_node(op, ins, outs, name=f"n{i}") for i, (op, ins, outs) in enumerate(nodes)]
    written(tmp_path / "m.onnx", made, [3, 8], held)
    with pytest.raises(ModelRefused) as refused:
        compile_to(tmp_path / "m.blob", tmp_path / "m.onnx")
    assert list(refused.value.problems) == [said]
