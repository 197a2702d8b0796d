"""`npuc exec` on graphs whose shapes are inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npuc.cli import main as npuc
from tests.support.graphs import written


def test_shapes_and_axes_come_from_the_inputs(tmp_path: Path) -> None:
    body = """g (float[2,6] x, int64[2] s, int64[1] axes) => (float[a,b] y, int8[m,n] z) {
      r = Reshape (x, s)
      y = ReduceSum (r, axes)
      z = Cast <to = 3> (r)
    }"""
    model, feeds, results = written(tmp_path, body), tmp_path / "in.npz", tmp_path / "out.npz"
    x = np.float32([[1, 2, 300, -129, 5, 6], [7, 8, 9, 10, 11, 12]])
    np.savez(feeds, x=x, s=np.array([3, 4]), axes=np.array([0]))
    assert npuc(["exec", str(model), "--input", str(feeds), "--output", str(results), "--precision", "f32"]) == 0
    found = np.load(results)
    np.testing.assert_array_equal(found["y"], x.reshape(3, 4).sum(0, keepdims=True))
    np.testing.assert_array_equal(found["z"], x.reshape(3, 4).astype(np.int32).astype(np.int8))
