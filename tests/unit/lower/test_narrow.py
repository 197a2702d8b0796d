"""Narrow element types in wide registers, against ml_dtypes and NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from npuc import tile as t
from npuc.lower.expression import Expression, Step
from npuc.lower.narrow import GRIDS, WIDTHS
from npukernels import registry
from tests.support.kernels import run_both

RNG = np.random.default_rng(5)
TYPES = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}


def computed(x: np.ndarray, *steps: Step) -> np.ndarray:
    """The steps over x, by the elementwise kernel, eagerly and as tasks."""
    arrays = run_both(registry.get("map").kernel, [x, np.empty_like(x)], fn=Expression(1, steps), tile=x.shape)
    assert arrays[1] is not None
    return arrays[1]


def every_number(dtype: type) -> np.ndarray:
    """The finite numbers of a small float type, their midpoints, and numbers around both."""
    bits = 4 if "float4" in np.dtype(dtype).name else 8
    grid = np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float64)
    grid = np.unique(grid[np.isfinite(grid)])
    middle = (grid[1:] + grid[:-1]) / 2
    near = np.concatenate([grid, middle]).astype(np.float32)
    wide = RNG.normal(0, 100, 500).astype(np.float32)
    return np.concatenate([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), wide]).astype(np.float32)


@pytest.mark.parametrize("name", GRIDS)
def test_small_floats_round_as_their_types_do(name: str) -> None:
    largest = float(ml_dtypes.finfo(TYPES[name]).max)
    x = every_number(TYPES[name])
    got = computed(x, Step("Cast", (0,), (("to", t.f32), ("grid", name), ("saturate", 1))))
    np.testing.assert_array_equal(got, np.clip(x, -largest, largest).astype(TYPES[name]).astype(np.float32))


@pytest.mark.parametrize("name", [name for name in GRIDS if name != "FLOAT4E2M1"])
def test_without_saturation_large_numbers_become_what_the_type_has(name: str) -> None:
    x = np.float32([1e6, -1e6, np.inf, -np.inf, np.nan, 0.3, 447.9, 57344.0])
    got = computed(x, Step("Cast", (0,), (("to", t.f32), ("grid", name), ("saturate", 0))))
    np.testing.assert_array_equal(got, x.astype(TYPES[name]).astype(np.float32))


@pytest.mark.parametrize("name", WIDTHS)
def test_integers_keep_their_low_bits(name: str) -> None:
    x = RNG.integers(-(2**31), 2**31, 400).astype(np.int32)
    width = WIDTHS[name]
    got = computed(x, Step("Wrap", (0,), (("bits", width.bits), ("signed", width.signed))))
    low = x.astype(np.int64) & ((1 << width.bits) - 1)
    want = np.where(width.signed & (low >> (width.bits - 1) == 1), low - (1 << width.bits), low)
    np.testing.assert_array_equal(got, want)
    assert ir.DataType[name].bitwidth == width.bits
