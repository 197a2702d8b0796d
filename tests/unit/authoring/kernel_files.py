"""Kernel files that tests write."""

from __future__ import annotations

from pathlib import Path

SOFTMAX = """
import numpy as np
from npuc import tile as t


@t.kernel
def scaled(x, out, *, bm, scale=1.0):
    (i,) = t.programs(t.cdiv(x.shape[0], bm))
    rows = t.load(x, (i * bm, 0), (bm, x.shape[1])) * scale
    e = t.exp(rows - t.max(rows, axis=1))
    t.store(out, (i * bm, 0), e / t.sum(e, axis=1))


def reference(x):
    e = np.exp(2.0 * (x - x.max(1, keepdims=True)))
    return e / e.sum(1, keepdims=True)


def example():
    array = t.dense(t.f16, (20, 16))
    return t.Example((array, array), {"bm": 8, "scale": 2.0}, reference)


def candidates(types, params):
    for bm in (8, 20, 20, 16):
        yield {"bm": bm}
"""


def write(folder: Path, text: str = SOFTMAX, name: str = "my.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path
