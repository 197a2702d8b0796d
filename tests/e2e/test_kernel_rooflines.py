"""Every kind of kernel of the library, one alone in a graph: at or above its roofline, and above its bound."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.shape_inference
import pytest

import npurt
from npuc.report.profile import profile, profile_json
from tests.support.graphs import parsed
from tests.support.models import compile_to

BODIES = {
    "product": "(float[48, 256] x, float[256, 512] w) => (float[48, 512] y) { y = MatMul (x, w) }",
    "one row": "(float[1, 1024] x, float[1024, 2048] w) => (float[1, 2048] y) { y = MatMul (x, w) }",
    "batch": "(float[4, 32, 64] x, float[4, 64, 96] w) => (float[4, 32, 96] y) { y = MatMul (x, w) }",
    "bias": "(float[48, 256] x, float[256, 128] w, float[128] b) => (float[48, 128] y) { y = Gemm (x, w, b) }",
    "softmax": "(float[64, 384] x) => (float[64, 384] y) { y = Softmax (x) }",
    "norm": """(float[64, 576] x, float[576] w, float[576] b) => (float[64, 576] y) {
        y = LayerNormalization (x, w, b) }""",
    "elementwise": """(float[64, 800] x) => (float[64, 800] y) {
        a = Sigmoid (x) b = Mul (x, a) c = Exp (b) y = Add (c, x) }""",
    "sum": "(float[64, 512] x) => (float[64, 1] y) <int64[1] axes = {1}> { y = ReduceSum (x, axes) }",
    "turn": "(float[64, 96] x) => (float[96, 64] y) { y = Transpose <perm = [1, 0]> (x) }",
    "rows": "(float[512, 64] x, int64[32] i) => (float[32, 64] y) { y = Gather (x, i) }",
}


@pytest.fixture(scope="module", params=BODIES)
def blob(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernel")
    onnx.save(onnx.shape_inference.infer_shapes(parsed(f"m {BODIES[request.param]}", 21)), folder / "m.onnx")
    return compile_to(folder / "m.npu", folder / "m.onnx")


@pytest.mark.parametrize("reading", ["held", "overlapped"])
@pytest.mark.parametrize("target", ["npu37xx", "npu40xx", "npu50xx"])
def test_no_kernel_beats_its_roofline(blob: Path, target: str, reading: str):
    (entry,) = profile_json(profile(blob, target=target, reading=reading))["entries"]
    assert entry["makespan_us"] >= entry["bound_us"] > 0
    # inputs and outputs cross once, at the rates of the machine
    tables = npurt.load(blob).meta["entries"][0]
    assert entry["ddr_bytes"] >= tables["bound"]["ddr_bytes"] > 0
    rounded = entry["tasks"] * 0.5e-6  # each task takes whole picoseconds
    assert entry["resources_us"]["dpu"] >= entry["bound_parts_us"]["matrix"] - rounded
    assert entry["resources_us"]["shave"] >= entry["bound_parts_us"]["vector"] - rounded
