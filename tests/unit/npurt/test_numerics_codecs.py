"""Codecs against np.float16 and ml_dtypes on every pattern; store rules of integers."""

import ml_dtypes
import numpy as np
import pytest

from npurt import numerics
from npurt.abi.dtypes import DType

ALL = np.arange(65536, dtype=np.uint16)


def around_grid(grid: np.ndarray) -> np.ndarray:
    """Every finite grid value, the midpoints to its neighbours, and the float32 numbers next to all of those."""
    finite = np.unique(grid[np.isfinite(grid)].astype(np.float64))
    middle = (finite[:-1] + finite[1:]) / 2
    points = np.concatenate([finite, middle, [finite[-1] + (finite[-1] - finite[-2]) / 2]]).astype(np.float32)
    near = [np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([points, *near, np.float32([np.inf, -np.inf, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38])])


def test_f16_loads_every_pattern():
    with np.errstate(invalid="ignore"):
        want = ALL.view(np.float16).astype(np.float32)
        wide = want.astype(np.float64)
    got = numerics.load(ALL.view(np.float16), DType.F16)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])
    np.testing.assert_array_equal(numerics.load_f64(ALL.view(np.float16), DType.F16), wide)


def test_f16_stores_every_rounding_case():
    x = around_grid(ALL.view(np.float16))
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(numerics.store(x, DType.F16).view(np.uint16), want.view(np.uint16))
    np.testing.assert_array_equal(numerics.round_f16(x).view(np.uint32), want.astype(np.float32).view(np.uint32))


def test_f16_without_large_values_takes_the_same_roundings():
    x = around_grid(ALL.view(np.float16))
    x = x[np.abs(x) < 65000]
    want = x.astype(np.float16)
    np.testing.assert_array_equal(numerics.store(x, DType.F16).view(np.uint16), want.view(np.uint16))
    np.testing.assert_array_equal(numerics.round_f16(x).view(np.uint32), want.astype(np.float32).view(np.uint32))


def test_bf16_every_pattern_and_rounding_case():
    values = ALL.view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(numerics.load(ALL, DType.BF16), values.astype(np.float32))
    x = around_grid(values.astype(np.float32))
    with np.errstate(over="ignore"):
        want = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(numerics.store(x, DType.BF16), want.view(np.uint16))
    np.testing.assert_array_equal(numerics.round_bf16(x), want.astype(np.float32))


def test_a_stored_nan_is_the_one_quiet_nan():
    nans = np.array([0x7F800001, 0xFFC00000, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert numerics.store(nans, DType.F16).view(np.uint16).tolist() == [0x7E00] * 3
    assert numerics.store(nans, DType.BF16).tolist() == [0x7FC0] * 3
    assert np.isnan(numerics.round_f16(nans)).all()


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        (DType.I8, [-128, 127, 0, 2, 2, -2, 127, -128]),
        (DType.U8, [0, 255, 0, 2, 2, 0, 200, 0]),
        (DType.I32, [-(2**31), 2**31 - 1, 0, 2, 2, -2, 200, -200]),
        (DType.I64, [-(2**63), 2**63 - 1024, 0, 2, 2, -2, 200, -200]),
        (DType.BOOL, [1, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_float_to_integer_rounds_half_to_even_and_saturates(dtype: DType, want: list[int]):
    x = np.float32([-np.inf, np.inf, np.nan, 1.5, 2.5, -1.5, 200, -200])
    assert numerics.store(x, dtype).tolist() == want


def test_integer_to_integer_saturates():
    x = np.array([-(2**31), -129, -1, 0, 127, 128, 255, 256, 2**31 - 1], np.int32)
    assert numerics.store(x, DType.I8).tolist() == [-128, -128, -1, 0, 127, 127, 127, 127, 127]
    assert numerics.store(x, DType.U8).tolist() == [0, 0, 0, 0, 127, 128, 255, 255, 255]
    assert numerics.store(np.array([2**40, -(2**40)]), DType.I32).tolist() == [2**31 - 1, -(2**31)]
    np.testing.assert_array_equal(numerics.store(x, DType.I32), x)
    assert numerics.store(np.array([False, True]), DType.F16).tolist() == [0.0, 1.0]
    assert numerics.store(np.array([16777217], np.int32), DType.F32).tolist() == [16777216.0]


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.label)
def test_load_gives_the_compute_type_and_a_copy(dtype: DType):
    memory = np.ones((4, 6), dtype.storage)[:, ::2]
    values = numerics.load(memory, dtype)
    assert values.dtype == numerics.COMPUTE[dtype]
    assert values.shape == (4, 3)
    assert not np.shares_memory(values, memory)
    assert numerics.store(values, dtype).dtype == dtype.storage
