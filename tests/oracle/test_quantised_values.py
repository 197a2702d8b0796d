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
@pytest.mark.parametrize("kind", ["int8", "uint16", "int16"])
@pytest.mark.parametrize("axis", [1, -1, 0])
def test_a_scale_for_each_channel(axis: int, kind: str, precision: str, tmp_path: Path) -> None:
    """Scales stay float32 in half precision: near 1e-5 they would lose most of their digits."""
    count = 3 if axis == 0 else 8
    scales = RANDOM.uniform(1e-5, 3e-5, count).astype(np.float32)
    zeros = RANDOM.integers(0, 100, count).tolist()
    held = [numpy_helper.from_array(scales, "s"), helper.make_tensor("z", KINDS[kind], [count], zeros)]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
    ]
    model = written(tmp_path / "m.onnx", nodes, [3, 8], held)
    x = (RANDOM.integers(-1000, 1000, (3, 8)) / 2**20).astype(np.float32)
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


def test_a_weight_of_one_number(tmp_path: Path) -> None:
    held = [*parameters("int8", 0.05, 3), helper.make_tensor("w", TensorProto.INT8, [], [17])]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]), helper.make_node("Mul", ["x", "d"], ["y"])]
    model = written(tmp_path / "m.onnx", nodes, [3, 8], held)
    x = numbers(0.5)
    blob = compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision="f32")
    np.testing.assert_allclose(run_graph(blob, {"x": x})["y"], reference(model, x), rtol=1e-6)


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


DYNAMIC = [("DynamicQuantizeLinear", ["x"], ["q", "s1", "z1"])]
SCALED = [("Cast", ["p"], ["c"]), ("Mul", ["s1", "ws"], ["t"]), ("Mul", ["c", "t"], ["v"])]
PRODUCTS: dict[str, list[tuple]] = {
    "codes and back": [*DYNAMIC, ("DequantizeLinear", ["q", "s1", "z1"], ["y"])],
    "quantize_dynamic": [*DYNAMIC, ("MatMulInteger", ["q", "w", "z1", "wz"], ["p"]), *SCALED, ("Relu", ["v"], ["r"]),
                         ("MatMul", ["r", "square"], ["y"])],
    "without a zero point of the weight": [*DYNAMIC, ("MatMulInteger", ["q", "w", "z1"], ["p"]), *SCALED,
                                           ("Identity", ["v"], ["y"])],
    "unsigned weights": [*DYNAMIC, ("MatMulInteger", ["q", "u", "z1", "uz"], ["p"]), *SCALED, ("Relu", ["v"], ["r"]),
                         ("MatMul", ["r", "square"], ["y"])],
    "whole numbers alone": [("QuantizeLinear", ["x", "s", "z"], ["q"]), *DYNAMIC[:0],
                            ("DynamicQuantizeLinear", ["x"], ["q2", "s1", "z1"]),
                            ("MatMulInteger", ["q2", "w", "z1", "wz"], ["p"]), ("Cast", ["p"], ["y"])],
    "of two values": [*DYNAMIC, ("Transpose", ["q"], ["qt"]), ("MatMulInteger", ["q", "qt", "z1", "z1"], ["p"]),
                      ("Cast", ["p"], ["c"]), ("Mul", ["c", "s1"], ["y"])],
    "DynamicQuantizeMatMul": [("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "bias"], ["y"])],
    "MatMulIntegerToFloat": [*DYNAMIC, ("MatMulIntegerToFloat", ["q", "w", "s1", "ws", "z1", "wz", "bias"], ["y"])],
    "QLinearMatMul": [("QuantizeLinear", ["x", "s", "z"], ["q"]),
                      ("QLinearMatMul", ["q", "s", "z", "w", "ws1", "wz1", "s2", "z"], ["p"]),
                      ("DequantizeLinear", ["p", "s2", "z"], ["y"])],
}  # fmt: skip
ORT_DOMAIN = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat")


def product_weights() -> list[onnx.TensorProto]:
    values = {
        "w": RANDOM.integers(-127, 128, (8, 5)).astype(np.int8),
        "u": RANDOM.integers(0, 256, (8, 5)).astype(np.uint8),
        "ws": RANDOM.uniform(0.01, 0.02, 5).astype(np.float32),
        "ws1": np.float32(0.015),
        "wz": np.array([0, 0, 0, 0, 0], np.int8),
        "wz1": np.int8(0),
        "uz": np.array([128, 3, 99, 255, 0], np.uint8),
        "bias": RANDOM.normal(size=5).astype(np.float32),
        "square": RANDOM.normal(size=(5, 5)).astype(np.float32),
        "s2": np.float32(0.4),
    }
    return [*parameters("uint8", 0.05, 117), *(numpy_helper.from_array(np.asarray(v), k) for k, v in values.items())]


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_codes(name: str, precision: str, tmp_path: Path) -> None:
    nodes = []
    for op, ins, outs in PRODUCTS[name]:
        attrs = {"to": TensorProto.FLOAT} if op == "Cast" else {"perm": [1, 0]} if op == "Transpose" else {}
        outs = [
            "y" if out == "y2" else f"{out}1" if out == "y" and "y2" in str(PRODUCTS[name]) else out for out in outs
        ]
        ins = [f"{given}1" if given == "y" else given for given in ins]
        domain = "com.microsoft" if op in ORT_DOMAIN else ""
        nodes.append(helper.make_node(op, ins, outs, domain=domain, name=f"n{len(nodes)}", **attrs))
    shape = [3, 8] if name == "codes and back" else [3, 3] if name == "of two values" else [3, 5]
    model = written(tmp_path / "m.onnx", nodes, shape, product_weights())
    x = (RANDOM.integers(-200, 200, (3, 8)) / 64).astype(np.float32)
    want = reference(model, x)
    got = run_graph(compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision=precision), {"x": x})["y"]
    tolerance = 1e-5 if precision == "f32" else 2e-3 * float(np.abs(want).max())
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=tolerance)


def test_products_in_whole_numbers_are_exact(tmp_path: Path) -> None:
    """Sums beyond the 24 bits of a float32 number keep their last bit."""
    x = np.full((1, 4096), 255.0, np.float32)
    x[0, :3] = 0, 253, 7
    weight = np.full((4096, 2), 127, np.int8)
    weight[5, 0] = 126
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4096])]
    result = [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 2])]
    graph = helper.make_graph(nodes, "whole", ports, result, [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    got = run_graph(compile_to(tmp_path / "m.blob", tmp_path / "m.onnx"), {"x": x})["y"]
    assert got.tolist() == (x.astype(np.int64) @ weight.astype(np.int64)).tolist()


REFUSED = [
    (
        [
            ("QuantizeLinear", ["x", "s", "z"], ["q"]),
            ("Reshape", ["q", "shape"], ["t"]),
            ("ConvInteger", ["t", "w3"], ["p"]),
            ("Cast", ["p"], ["y"]),
        ],
        "node 'n2' (ConvInteger): only matrix products of codes are supported; "
        "quantise with the format QDQ, or weights alone",
    ),
]


@pytest.mark.parametrize(("nodes", "said"), REFUSED)
def test_what_is_not_supported_is_refused_with_the_reason(nodes: list[tuple], said: str, tmp_path: Path) -> None:
    held = [
        *parameters("uint8", 0.05, 7),
        numpy_helper.from_array(np.array([1, 3, 8]), "shape"),
        numpy_helper.from_array(np.ones((8, 3, 1), np.int8), "w3"),
    ]
    to = {"Cast": {"to": TensorProto.FLOAT}}
    made = [helper.make_node(op, ins, outs, name=f"n{i}", **to.get(op, {})) for i, (op, ins, outs) in enumerate(nodes)]
    written(tmp_path / "m.onnx", made, [1, 8, 8], held)
    with pytest.raises(ModelRefused) as refused:
        compile_to(tmp_path / "m.blob", tmp_path / "m.onnx")
    assert list(refused.value.problems) == [said]
