"""What counts as near enough, and how a difference is told."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.compare.tolerance import Tolerance, measure, tolerance_for

ELEMENTS, ROWS = tolerance_for("f32"), tolerance_for("f16")


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_defaults_and_given_bounds() -> None:
    assert (ELEMENTS.rtol, ELEMENTS.atol) == (1e-3, 1e-3)
    assert ROWS == Tolerance(None, None, 0.999, 0.03)
    assert tolerance_for("f16", rtol=0.5) == Tolerance(0.5, 1e-3)
    assert tolerance_for("f32", atol=0.0) == Tolerance(1e-3, 0.0)
    assert str(ELEMENTS) == "error <= 0.001 + 0.001 x value"
    assert str(ROWS) == "cosine of each row >= 0.999, error <= 0.03 x largest value"


def test_an_elementwise_bound_is_kept_to_the_last_digit() -> None:
    want = floats(1000, 0)
    assert measure(floats(1001, 0), want, ELEMENTS).within
    found = measure(floats(1000, 0.0011), want, ELEMENTS)
    assert not found.within and found.worst == (1,)
    assert not measure(floats(1001.1, 0), want, ELEMENTS).within


def test_the_worst_element_is_the_one_that_exceeds_most() -> None:
    found = measure(floats(1000.9, 0.5), floats(1000, 0.1), ELEMENTS)
    assert found.worst == (1,)
    assert found.max_abs == pytest.approx(0.9, abs=1e-4) and found.max_rel == pytest.approx(4)
    text = "max error 0.9, relative 4, cosine 1.000000, at [1]: 0.5 instead of 0.1"
    assert str(found) == text


def test_a_row_that_points_elsewhere_is_found_among_right_ones() -> None:
    want = np.random.default_rng(0).normal(0, 1, (3, 64))
    got = want.copy()
    got[1] = want[1, ::-1]
    found = measure(got, want, Tolerance(scaled=100))
    expected = float(want[1] @ want[1, ::-1] / (want[1] @ want[1]))
    assert not found.within and found.cosine == pytest.approx(expected)


def test_quiet_rows_have_no_direction() -> None:
    want = np.ones((2, 32))
    want[0] = 1e-4
    got = want.copy()
    got[0] = -1e-4
    assert measure(got, want, ROWS).within
    want[0] = got[0] = 1
    got[0, :16] = -1
    assert not measure(got, want, ROWS).within


def test_one_large_error_fails_where_the_direction_is_right() -> None:
    want = np.full(4096, 1.0)
    got = want.copy()
    got[7] = 1.04
    found = measure(got, want, ROWS)
    assert found.cosine is not None and found.cosine > 0.99999
    assert not found.within and found.worst == (7,)


def test_masks_beyond_float16_are_infinities() -> None:
    want = floats(1, np.finfo(np.float32).min)
    assert measure(floats(1, -np.inf), want, ROWS).within
    assert not measure(floats(1, np.inf), want, ROWS).within
    assert not measure(floats(1, -np.inf), want, ELEMENTS).within


def test_integers_must_be_equal() -> None:
    assert measure(np.array([3, 4]), np.array([3, 4]), ROWS).within
    found = measure(np.array([3, 5]), np.array([3, 4]), ROWS)
    assert not found.within and found.cosine is None and (found.got, found.want) == (5, 4)


def test_nan_on_one_side() -> None:
    assert not measure(floats(1, np.nan), floats(1, 2), ROWS).within
    found = measure(floats(1, 2), floats(1, np.nan), ELEMENTS)
    assert found.within and found.undefined == 1


def test_nothing_to_compare() -> None:
    assert measure(np.zeros((0, 3)), np.zeros((0, 3)), ROWS).within
    with pytest.raises(ValueError, match=r"^the shapes \[2\] and \[1, 2\] cannot be compared$"):
        measure(np.zeros(2), np.zeros((1, 2)), ROWS)
