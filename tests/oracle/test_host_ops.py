"""Operators of the host against onnxruntime, each between two operators of the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import npurt
from npuc.driver import CompileOptions, compile_to_blob
from npurt.host.table import HOST_OPS
from tests.support.graphs import parsed

F32 = "float[2,4,5,6]"
CASES = {
    "ConvTranspose": [
        (F32, "float[4,3,2,3]", "ConvTranspose <group=2, strides=[3,2], pads=[1,0,0,1], output_padding=[1,0]> (a, b)"),
        (F32, "float[4,1,3,3]", "ConvTranspose <dilations=[2,1], strides=[2,2], output_shape=[12,12]> (a, b)"),
        (F32, "float[4,1,3,3]", 'ConvTranspose <auto_pad="SAME_UPPER", strides=[2,2]> (a, b)'),
    ],
    "GridSample": [
        (F32, "float[2,7,3,2]", f'GridSample <mode="{mode}", padding_mode="{padding}", align_corners={corners}> (a, b)')
        for mode, padding, corners in (
            ("linear", "zeros", 0), ("linear", "border", 1), ("linear", "reflection", 0), ("nearest", "reflection", 1),
            ("nearest", "zeros", 1),
        )
    ],
    "Einsum": [
        ("float[3,4,5]", "float[5,6]", 'Einsum <equation="bij, jk -> kbi"> (a, b)'),
        ("float[2,3,4,4]", "float[1,3,4,4]", 'Einsum <equation="...ij,...jk->...ik"> (a, b)'),
        ("float[5,5]", "float[5]", 'Einsum <equation="ii,i"> (a, b)'),
    ],
    "Resize": [
        (F32, "float[1]", f'Resize <mode="{mode}", coordinate_transformation_mode="{how}"> (a, , {given})')
        for mode, how, given in (
            ("linear", "half_pixel", "scales"), ("linear", "align_corners", ", sizes"),
            ("nearest", "asymmetric", ", sizes"),
            ("linear", "pytorch_half_pixel", ", sizes"), ("nearest", "half_pixel", "scales"),
        )
    ],
    "Det": [("float[3,4,4]", "float[1]", "Det (a)")],
    "BitwiseAnd": [("int32[3,4]", "int32[4]", "BitwiseAnd (a, b)")],
    "BitwiseOr": [("int32[3,4]", "int32[4]", "BitwiseOr (a, b)")],
    "BitwiseXor": [("int32[3,4]", "int32[4]", "BitwiseXor (a, b)")],
    "BitwiseNot": [("int32[3,4]", "int32[1]", "BitwiseNot (a)")],
}  # fmt: skip


def test_every_operator_of_the_host_is_here() -> None:
    assert CASES.keys() == HOST_OPS.keys()


@pytest.mark.parametrize(
    ("op", "number"), [(op, number) for op, cases in CASES.items() for number in range(len(cases))]
)
def test_agrees_with_onnxruntime(op: str, number: int, tmp_path: Path) -> None:
    first, second, call = CASES[op][number]
    kind = first.partition("[")[0]
    body = f"""g ({first} x, {second} b) => ({kind} y, {second} z)
      <float[4] scales = {{1, 1, 1.5, 2.5}}, int64[4] sizes = {{2, 4, 3, 11}}> {{
        a = Neg (x)
        h = {call}
        y = Neg (h)
        z = Neg (b)
    }}"""
    proto = parsed(body, opset=20)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = tmp_path / "model.onnx"
    model.write_bytes(proto.SerializeToString())
    rng = np.random.default_rng(number)
    feeds = {}
    for name, text in (("x", first), ("b", second)):
        shape = [int(n) for n in text.partition("[")[2][:-1].split(",")]
        drawn = rng.standard_normal(shape).astype(np.float32) if kind == "float" else rng.integers(-99, 99, shape)
        feeds[name] = drawn.astype(np.float32 if kind == "float" else np.int32)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = dict(zip(("y", "z"), session.run(None, feeds), strict=True))
    blob = tmp_path / "model.npu"
    compile_to_blob(model, blob, CompileOptions(precision="f32", host_ops=(op,)))
    image = npurt.load(blob)
    assert image.host is not None and [step.op for step in image.host.host_steps] == [op]
    for mode in ("exact", "fast"):
        found = npurt.open_device(image, mode).run("main", feeds)
        for name, want in wanted.items():
            assert found[name].dtype == want.dtype
            np.testing.assert_allclose(found[name], want, rtol=2e-5, atol=2e-5)
