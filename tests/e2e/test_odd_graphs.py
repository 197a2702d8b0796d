"""Small graphs at the edges: each compiles and gives what onnxruntime gives, or is refused with its exact words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.cli import main
from tests.support.graphs import written
from tests.support.models import compile_to, run_graph

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def test_an_input_that_is_an_output(tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[2, 3] x) => (float[2, 3] x, float[2, 3] y) { y = Relu(x) }")
    found = run_graph(compile_to(tmp_path / "m.npu", path, precision="f32"), {"x": X})
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(found["y"], np.maximum(X, 0))


def test_relu_of_integers(tmp_path: Path) -> None:
    path = written(tmp_path, "g (int32[2, 3] x) => (int32[2, 3] y) { y = Relu(x) }")
    values = X.astype(np.int32)
    found = run_graph(compile_to(tmp_path / "m.npu", path), {"x": values})
    np.testing.assert_array_equal(found["y"], np.maximum(values, 0))


REFUSED = {
    "g (float[2, 3] x) => (float[2, 3] y, float[2, 3] y) { y = Relu(x) }":
        "model.onnx: graph output 'y' is listed more than once",
    "g (float[65536, 65536] x) => (float[65536, 65536] y) { y = Relu(x) }":
        "'x' of shape [65536, 65536] has 4294967296 elements, a value may have 2147483647",
    "g (float[2, 3] x) => (float[n, 3] y) <int64[1] i = {7}> { y = Gather(x, i) }":
        "node y (Gather of [2, 3], [1]): the index 7 is outside axis 0, which has 2",
    "g (float[2, 3] x) => (float[n, m] y) <int64[2] s = {4, 4}> { y = Reshape(x, s) }":
        "node y (Reshape of [2, 3], [2]): 6 elements do not make [4, 4]",
    "g (int64[2] x) => (int64[2] y) <int64[2] c = {1099511627776, 5}> { y = Add(x, c) }":
        "node y (Add of [2], [2]): a constant holds 5 to 1099511627776, and the device computes integers in 32 bits",
}  # fmt: skip


@pytest.mark.parametrize(("body", "message"), REFUSED.items(), ids=range(len(REFUSED)))
def test_refused_in_words(body: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, body)
    code = main(["compile", str(path), "-o", str(tmp_path / "m.npu")])
    captured = capsys.readouterr()
    assert (code, captured.out) == (3, "")
    assert captured.err.splitlines()[-1] == f"error: {message}"
    assert not (tmp_path / "m.npu").exists()


def test_powers_of_integers_are_exact(tmp_path: Path) -> None:
    """The low 32 bits, as NumPy has them; a negative power of 1 and -1 is 1 or -1, of others 0."""
    path = written(tmp_path, "g (int32[2, 4] x, int32[2, 4] p) => (int32[2, 4] y) { y = Pow(x, p) }")
    x, p = np.int32([[3, -3, 2, 7], [-1, 1, 5, 46341]]), np.int32([[5, 3, 30, 0], [-3, -2, -1, 2]])
    found = run_graph(compile_to(tmp_path / "m.npu", path), {"x": x, "p": p})
    assert found["y"].tolist() == [[243, -27, 2**30, 1], [-1, 1, 0, 46341**2 - 2**32]]
