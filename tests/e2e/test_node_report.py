"""`npuc compile --report`: every node of the model is accounted for in every entry."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest

from npuc.cli import main as npuc
from tests.support.graphs import written

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
FATES = {"kernel", "view", "fused", "written out", "folded", "dropped", "elsewhere"}


def reported(model: Path, folder: Path, *options: str) -> dict[str, Any]:
    report = folder / "report.json"
    assert npuc(["compile", str(model), "-o", str(folder / "m.npu"), "--report", str(report), *options]) == 0
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_a_small_graph(tmp_path: Path) -> None:
    body = """g (float[4,8] x, float[8,8] w) => (float[2,16] z) <int64[2] s = {2, 16}> {
      [two] two = Constant <value = float {2.0}> ()
      [same] y = Identity (x)
      [product] p = MatMul (y, w)
      [double] d = Mul (p, two)
      [bent] b = Tanh (d)
      [size] n = Shape (b)
      [swish] h = HardSwish (b)
      [turned] t = Transpose (h)
      [out] z = Reshape (t, s)
    }"""
    report = reported(written(tmp_path, body, 22), tmp_path)
    (entry,) = report["entries"]
    assert (report["format"], report["target"], report["precision"], entry["entry"]) == (1, "npu40xx", "f16", "main")
    rows = {row["node"]: row for row in entry["nodes"]}
    assert {name: (row["op"], row["fate"], row["engine"]) for name, row in rows.items()} == {
        "two": ("Constant", "folded", ""),
        "same": ("Identity", "dropped", ""),
        "product": ("MatMul", "kernel", "DPU"),
        "double": ("Mul", "fused", "SHAVE"),
        "bent": ("Tanh", "fused", "SHAVE"),
        "size": ("Shape", "folded", ""),
        "swish": ("HardSwish", "written out", "SHAVE"),
        "turned": ("Transpose", "view", ""),
        "out": ("Reshape", "kernel", "DMA"),
    }
    assert rows["same"]["reason"] == "hands on its input as it is"
    assert rows["two"]["reason"] == "a constant"
    assert rows["double"]["reason"] == "fused into Mul of node swish.Mul" and rows["double"]["into"] == ["swish.Mul"]
    assert rows["product"]["calls"][0]["kernel"] == "bmm_kn"
    assert rows["swish"]["reason"] == "written as HardSigmoid, Mul"


@pytest.mark.parametrize("name", ["llama-genai-fp32", "qwen2-torchdyn-op23"])
def test_a_language_model_in_every_entry(name: str, tmp_path: Path) -> None:
    model = CORPUS / name
    report = reported(model, tmp_path, "--chunk", "16", "--max-prompt-len", "32")
    names = [node.name for node in onnx.load(model / "model.onnx", load_external_data=False).graph.node]
    assert [entry["entry"] for entry in report["entries"]] == ["prefill", "generate.64", "generate.160", "head"]
    for entry in report["entries"]:
        rows = entry["nodes"]
        assert [row["node"] for row in rows] == names
        assert {row["fate"] for row in rows} <= FATES
        for row in rows:
            runs = row["fate"] in ("kernel", "fused")
            assert row["reason"] and bool(row["engine"]) >= runs and bool(row["calls"]) >= runs, row
            assert bool(row["into"]) == (row["fate"] in ("fused", "written out")), row
    kernels = Counter(call["kernel"] for row in report["entries"][0]["nodes"] for call in row["calls"])
    assert {"attention", "matmul", "rmsnorm", "gather_rows"} <= set(kernels)
    products = [row["op"] for row in report["entries"][-1]["nodes"] if row["fate"] == "kernel"]
    assert products == ["MatMul"]


def test_no_report_without_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = written(tmp_path, "g (float[2] x) => (float[2] y) { y = Relu (x) }")
    assert npuc(["compile", str(model), "--stop-after", "fold", "--report", str(tmp_path / "r.json")]) == 2
    assert "--report and --stop-after exclude each other" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


def test_values_of_inputs_that_decide_shapes(tmp_path: Path) -> None:
    model = written(tmp_path, "g (float[2,6] x, int64[2] s) => (float[a,b] y) { [n] y = Reshape (x, s) }")
    report = reported(model, tmp_path, "--value", "s=3,4")
    assert [row["fate"] for row in report["entries"][0]["nodes"]] == ["view"]
    arguments = ["compile", str(model), "-o", str(tmp_path / "m.npu")]
    assert npuc([*arguments, "--value", "t=3"]) == 2
    assert npuc([*arguments, "--value", "s=three"]) == 2
    assert npuc([*arguments, "--value", "s=3,4,1"]) == 2
