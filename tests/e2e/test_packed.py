"""Weights that stay codes, from file to values: against float64 formulas, on the device's own bits and prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import npurt
from npuc.driver import CompileOptions, compile_model, compile_to_blob
from npurt.fast.link import LinkOptions
from npurt.numerics import pack_codes
from tests.support.models import compile_to

RNG = np.random.default_rng(17)
Held = dict[str, np.ndarray]
Attrs = dict[str, Any]
UNLINKED: Attrs = {"alias": False, "join": False}


def save(path: Path, nodes: list[onnx.NodeProto], shape: list[int], held: Held, kind: int = TensorProto.FLOAT) -> Path:
    """A graph of one input x of this shape and one output y."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def n_bits(
    n: int, k: int, bits: int, block: int, zeros: str, name: str = ""
) -> tuple[Held, np.ndarray, dict[str, Any]]:
    """Operands of a MatMulNBits, its weight [n, k] in float64, and its attributes."""
    count = -(-k // block)
    codes = RNG.integers(0, 1 << bits, (n, count * block)).astype(np.uint8)
    scales = RNG.uniform(0.02, 0.2, (n, count)).astype(np.float32)
    held = {f"{name}b": pack_codes(codes, bits).reshape(n, count, -1), f"{name}s": scales}
    zero = np.full((n, count), float(1 << (bits - 1)))
    if zeros == "packed":
        whole = RNG.integers(0, 1 << bits, (n, count)).astype(np.uint8)
        held[f"{name}z"], zero = pack_codes(whole, bits), whole.astype(np.float64)
    elif zeros == "floats":
        held[f"{name}z"] = RNG.uniform(0, 1 << bits, (n, count)).astype(np.float32)
        zero = held[f"{name}z"].astype(np.float64)
    group = np.arange(k) // block
    weight = (codes[:, :k] - zero[:, group]) * scales[:, group].astype(np.float64)
    return held, weight, {"N": n, "K": k, "bits": bits, "block_size": block}


def values(blob: Path, x: np.ndarray, mode: str, **options: Any) -> np.ndarray:
    image = npurt.load(blob)
    device = npurt.open_device(image, mode, LinkOptions(**options)) if options else npurt.open_device(image, mode)
    y: np.ndarray = device.run("main", {"x": x})["y"]
    return y


def check(blob: Path, x: np.ndarray, want: np.ndarray, precision: str) -> None:
    """Exact and prepared, with tiles joined and apart, with constants decoded once and on use."""
    part = {"f32": 2e-5, "f16": 4e-3}[precision]
    for mode, options in (
        ("exact", {}),
        ("fast", {}),
        ("fast", {"budget": 0}),
        ("fast", {"alias": False, "join": False}),
    ):
        got = values(blob, x, mode, **options)
        np.testing.assert_allclose(got, want, rtol=part, atol=part * np.abs(want).max(), err_msg=f"{mode} {options}")


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
@pytest.mark.parametrize(("bits", "block", "m", "n", "k"), [(4, 32, 1, 37, 96), (4, 16, 17, 16, 70), (8, 32, 1, 15, 64),
                                                            (2, 16, 3, 17, 50), (8, 128, 5, 40, 33)])  # fmt: skip
def test_products(bits: int, block: int, m: int, n: int, k: int, zeros: str, precision: str, tmp_path: Path) -> None:
    held, weight, attrs = n_bits(n, k, bits, block, zeros)
    node = helper.make_node("MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", **attrs)
    x = RNG.normal(size=(m, k)).astype(np.float32)
    blob = compile_to(tmp_path / "m.blob", save(tmp_path / "m.onnx", [node], [m, k], held), precision=precision)
    rounded = x.astype(np.float16).astype(np.float64) if precision == "f16" else x.astype(np.float64)
    check(blob, x, rounded @ weight.T, precision)


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("zeros", ["", "packed"])
def test_rows_of_a_table(zeros: str, precision: str, tmp_path: Path) -> None:
    held, weight, _ = n_bits(40, 64, 4, 32, zeros)
    held["b"] = held["b"].reshape(40, -1)
    more = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    names = ["b", "x", "s", *(["z"] if zeros else [])]
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **more)
    ids = np.array([[3, 39, -1], [0, 7, 7]])
    blob = compile_to(
        tmp_path / "m.blob", save(tmp_path / "m.onnx", [node], [2, 3], held, TensorProto.INT64), precision=precision
    )
    check(blob, ids, weight[ids], precision)


@pytest.mark.parametrize("m", [1, 48])
def test_a_gated_layer(m: int, tmp_path: Path) -> None:
    """With many rows both products run in one kernel."""
    (gate, g, attrs), (up, u, _) = n_bits(80, 64, 4, 32, "", "g"), n_bits(80, 64, 4, 32, "", "u")
    nodes = [
        helper.make_node("MatMulNBits", ["x", *gate], ["a"], domain="com.microsoft", **attrs),
        helper.make_node("MatMulNBits", ["x", *up], ["b"], domain="com.microsoft", **attrs),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["silu"]),
        helper.make_node("Mul", ["silu", "b"], ["y"]),
    ]
    held = {**gate, **up}
    model = save(tmp_path / "m.onnx", nodes, [m, 64], held)
    summary = compile_to_blob(model, tmp_path / "m.blob", CompileOptions(precision="f32"))
    x = RNG.normal(size=(m, 64)).astype(np.float32)
    a, b = x.astype(np.float64) @ g.T, x.astype(np.float64) @ u.T
    check(tmp_path / "m.blob", x, a / (1 + np.exp(-a)) * b, "f32")
    assert summary is not None
    products = 1 if m == 48 else 2
    assert any(f"main: {products} product" in line for line in summary.report), summary.report


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_gemm_with_a_bias(beta: float, tmp_path: Path) -> None:
    codes = RNG.integers(-128, 128, (24, 48)).astype(np.int8)
    held = {"w": codes, "s": RNG.uniform(0.01, 0.1, 24).astype(np.float32), "c": RNG.normal(size=24).astype(np.float32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["numbers"], axis=0),
        helper.make_node("Gemm", ["x", "numbers", "c"], ["y"], transB=1, beta=beta),
    ]
    x = RNG.normal(size=(3, 48)).astype(np.float32)
    blob = compile_to(tmp_path / "m.blob", save(tmp_path / "m.onnx", nodes, [3, 48], held), precision="f32")
    weight = codes * held["s"].astype(np.float64)[:, None]
    check(blob, x, x.astype(np.float64) @ weight.T + beta * held["c"], "f32")
    assert npurt.load(blob).weights.nbytes < 24 * 64 + 1024


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_the_blob_is_as_large_as_the_packed_weights(precision: str, tmp_path: Path) -> None:
    held, _, attrs = n_bits(1024, 1024, 4, 32, "")
    node = helper.make_node("MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", **attrs)
    model = save(tmp_path / "m.onnx", [node], [1, 1024], held)
    blob = compile_to(tmp_path / "m.blob", model, precision=precision)
    assert 0.95 < blob.stat().st_size / model.stat().st_size < 1.05


def test_tiles_of_codes_are_joined_and_their_copies_elided(tmp_path: Path) -> None:
    held, _, attrs = n_bits(4096, 1024, 4, 32, "")
    node = helper.make_node("MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", **attrs)
    blob = compile_to(tmp_path / "m.blob", save(tmp_path / "m.onnx", [node], [1, 1024], held))
    device = npurt.open_device(npurt.load(blob), "fast")
    device.prepare("main")
    (linked,) = device.stats["entries"].values()
    assert linked["tasks"] > 10 and linked["kept"] <= 2
    assert device.decoded_bytes >= 4 * 4096 * 1024


def test_a_saved_stage_compiles_to_the_same_blob(tmp_path: Path) -> None:
    """Packed weights are operators of the graph, which a stage keeps."""
    held, _, attrs = n_bits(40, 64, 4, 32, "packed")
    node = helper.make_node("MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", **attrs)
    model = save(tmp_path / "m.onnx", [node], [3, 64], held)
    blob = compile_to(tmp_path / "m.blob", model)
    stop = CompileOptions(dump_after=("weights", tmp_path / "stages"), stop_after="weights")
    assert compile_model(model, stop) is None
    again = compile_to(tmp_path / "again.blob", tmp_path / "stages" / "weights.onnx")
    assert again.read_bytes() == blob.read_bytes()
