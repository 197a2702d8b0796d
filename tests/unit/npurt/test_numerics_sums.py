"""Exact products and reductions against integer and fraction arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from npurt import numerics


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[m, k] x [n, k] by rational arithmetic, rounded once."""
    exact = [[sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(r, c, strict=True)) for c in b] for r in a]
    return np.array([[np.float32(float(value)) for value in row] for row in exact], np.float32)


def test_mma_is_the_rounded_exact_sum():
    rng = np.random.default_rng(0)
    a = numerics.round_f16(rng.normal(size=(3, 300)).astype(np.float32))
    b = numerics.round_f16(rng.normal(size=(4, 300)).astype(np.float32))
    a[:, 0], b[:, 0] = 2048, 2048  # cancels at the end: float32 sums would lose the small terms
    a[:, -1], b[:, -1] = -2048, 2048
    np.testing.assert_array_equal(numerics.mma_exact(a, b), exact_product(a, b))


def test_mma_gives_equal_bits_for_tiles_rows_and_orders():
    rng = np.random.default_rng(1)
    a = numerics.round_f16(rng.normal(size=(2, 40, 576)).astype(np.float32))
    b = numerics.round_f16(rng.normal(size=(2, 96, 576)).astype(np.float32))
    whole = numerics.mma_exact(a, b)
    np.testing.assert_array_equal(numerics.mma_exact(a[0, 7:8], b[0, 16:32]), whole[0, 7:8, 16:32])
    np.testing.assert_array_equal(numerics.mma_exact(a, np.ascontiguousarray(b.swapaxes(1, 2)), b_kn=True), whole)
    np.testing.assert_array_equal(numerics.mma_exact(a[..., ::-1], b[..., ::-1]), whole)


@pytest.mark.parametrize("scale", [1, 2**20])
def test_integer_mma_is_exact(scale: int):
    rng = np.random.default_rng(2)
    a = rng.integers(-127, 128, (5, 64)) * scale
    b = rng.integers(-127, 128, (6, 64)) * scale
    got = numerics.mma_exact(a, b)
    want = [[sum(int(x) * int(y) for x, y in zip(r, c, strict=True)) for c in b] for r in a]
    assert got.dtype == np.int64
    assert got.tolist() == want


def test_mma_of_an_empty_sum_is_zero():
    got = numerics.mma_exact(np.zeros((3, 0), np.float32), np.zeros((2, 0), np.float32))
    np.testing.assert_array_equal(got, np.zeros((3, 2), np.float32))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_sum_is_rounded_once_on_any_axis(axis: int):
    x = np.random.default_rng(3).normal(size=(5, 7, 129)).astype(np.float32)
    x[0] *= 1e4
    want = np.sum(x.astype(np.longdouble), axis=axis, keepdims=True).astype(np.float32)
    np.testing.assert_array_equal(numerics.sum_exact(x, axis), want)
    np.testing.assert_array_equal(numerics.sum_exact(np.asfortranarray(x), axis), want)
    np.testing.assert_array_equal(numerics.mean(x, axis), want / np.float32(x.shape[axis]))


def test_integer_sum_and_product():
    x = np.array([[2**30, 2**30, 2**30], [1, 2, 3]], np.int32)
    assert numerics.sum_exact(x, 1).tolist() == [[3 * 2**30 - 2**32], [6]]
    assert numerics.prod(x[1:], 1, keepdims=False).tolist() == [6]
    assert numerics.sum_exact(x, 1).dtype == np.int32


def test_cumsum_rounds_each_prefix_once():
    x = np.random.default_rng(4).normal(size=(3, 50)).astype(np.float32)
    want = np.cumsum(x.astype(np.longdouble), axis=1).astype(np.float32)
    np.testing.assert_array_equal(numerics.cumsum(x, 1), want)
    assert numerics.cumsum(np.array([[1], [2]], np.int32), 0).tolist() == [[1], [3]]


def test_extremes_and_ties():
    x = np.float32([[1, 5, 5, -2], [np.nan, 1, np.nan, 9]])
    np.testing.assert_array_equal(numerics.reduce_max(x, 1), np.float32([[5], [np.nan]]))
    np.testing.assert_array_equal(numerics.reduce_min(x, 1), np.float32([[-2], [np.nan]]))
    assert numerics.argmax(x, 1).tolist() == [[1], [0]]
    assert numerics.argmin(x, 1, keepdims=False).tolist() == [3, 0]
    assert numerics.argmin(np.float32([[3, 1, 1]]), 1).tolist() == [[1]]
