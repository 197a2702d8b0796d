"""A kernel of the caller's for a model that calls nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser, save

from npuc.cli import main

EMPTY = '<ir_version: 10, opset_import: ["" : 21]>\ng (float[0, 4] x) => (float[0, 4] y) { y = Relu (x) }'
KERNEL = """
from npuc import tile as t


@t.kernel
def double(x, out):
    t.store(out, (0, 0), t.load(x, (0, 0), x.shape) * 2)
"""


def test_a_graph_without_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(parser.parse_model(EMPTY), tmp_path / "m.onnx")
    (tmp_path / "my.py").write_text(KERNEL)
    words = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.npu"), "--kernel", f"Relu={tmp_path}/my.py"]
    assert main(words) == 2
    expected = "error: kernel double for ::Relu: the model has no such call; it has none at all\n"
    assert capsys.readouterr().err.endswith(expected)
    assert not (tmp_path / "m.npu").exists()
