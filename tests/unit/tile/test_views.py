"""Strided views against NumPy, which knows when a reshape needs no copy."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.tile.affine import Affine
from npuc.tile.types import ArrayType, dense, dense_stride, register_type
from npuc.tile.views import View
from npurt.abi.dtypes import DType

WHOLE = np.arange(1000, dtype=np.int32)
LAYOUTS = [
    WHOLE[:24].reshape(2, 3, 4), WHOLE[:48].reshape(2, 3, 8)[:, :, :4], WHOLE[:24].reshape(3, 2, 4).transpose(1, 0, 2),
    WHOLE[:24].reshape(4, 3, 2).T, WHOLE[:48].reshape(2, 6, 4)[:, ::2], np.broadcast_to(WHOLE[:4], (2, 3, 4)),
]  # fmt: skip
SHAPES = [(24,), (6, 4), (2, 12), (2, 3, 2, 2), (4, 6), (1, 24, 1), (3, 8), (2, 3, 4)]


def of(array: np.ndarray) -> View:
    offset = array.__array_interface__["data"][0] - WHOLE.__array_interface__["data"][0]
    return View(0, Affine(offset), DType.I32, array.shape, array.strides, True)


def read(view: View) -> np.ndarray:
    return np.ndarray(view.shape, np.int32, WHOLE, view.offset.const, view.stride)


@pytest.mark.parametrize("number", range(len(LAYOUTS)))
@pytest.mark.parametrize("shape", SHAPES)
def test_reshape_is_a_view_where_numpy_needs_no_copy(number: int, shape: tuple[int, ...]) -> None:
    array = LAYOUTS[number]
    got = of(array).reshaped(shape)
    want = array.reshape(shape)
    assert (got is not None) == bool(np.shares_memory(want, WHOLE))
    if got is not None:
        np.testing.assert_array_equal(read(got), want)


def test_other_changes_of_shape() -> None:
    array = LAYOUTS[1]
    np.testing.assert_array_equal(read(of(array).transposed((2, 0, 1))), array.transpose(2, 0, 1))
    np.testing.assert_array_equal(read(of(array).sliced(2, 1, 2)), array[:, :, 1:3])
    np.testing.assert_array_equal(
        read(of(array[:, :1]).broadcast((5, 2, 3, 4))), np.broadcast_to(array[:, :1], (5, 2, 3, 4))
    )
    part = of(array).part((Affine(1), Affine(0), Affine(2)), (1, 2, 2))
    np.testing.assert_array_equal(read(part), array[1:2, 0:2, 2:4])


def test_views_meet_where_their_spans_do() -> None:
    rows = of(WHOLE[:24].reshape(6, 4))
    first, second, across = rows.sliced(0, 0, 3), rows.sliced(0, 3, 3), rows.sliced(0, 2, 2)
    assert not first.meets(second) and first.meets(across) and second.meets(across)
    moving = rows.part((Affine(0, ((0, 1),)), Affine(0)), (1, 4))
    assert moving.meets(first)  # where the program ids decide, they may meet
    assert not first.meets(View(1, Affine(0), DType.I32, (3, 4), (16, 4), True))


def test_types() -> None:
    assert dense(DType.F16, (3, 5), "cmx") == ArrayType(DType.F16, (3, 5), (10, 2), "cmx")
    assert dense_stride(DType.F32, ()) == () and str(dense(DType.F16, (3, 5))) == "f16[3, 5]"
    assert [register_type(d) for d in (DType.BF16, DType.U8, DType.BOOL, DType.I64)] == [
        DType.F32, DType.I32, DType.BOOL, DType.I64
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"^array of shape \(1, 1, 1, 1, 1\) has rank 5; the device moves rank <= 4$"):
        dense(DType.F16, (1,) * 5)
    with pytest.raises(ValueError, match=r"^array of shape \(2, 3\) needs 2 strides, got 1$"):
        ArrayType(DType.F16, (2, 3), (6,))
    assert dense(DType.F16, (2, 3)).elements == 6
