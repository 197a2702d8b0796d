"""Strided views against NumPy's own, on index arrays."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuc.lower import views
from npuc.tasks import Buffer, Region
from npurt.abi.dtypes import DType


def region_of(shape: tuple[int, ...]) -> Region:
    return Region(Buffer("b", "cmx", 4 * math.prod(shape)), 0, DType.I32, shape, views.contiguous_strides(shape, 4))


def read(region: Region) -> np.ndarray:
    """The elements that a region over an index buffer names."""
    data = np.arange(region.buffer.nbytes // 4, dtype="<i4")
    assert region.offset % 4 == 0
    return np.lib.stride_tricks.as_strided(
        data[region.offset // 4 :] if region.elements else data, region.shape, region.stride
    )


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


@given(shapes, st.randoms(use_true_random=False))
def test_transpose_and_slice_are_numpys(shape, random):
    region, array = region_of(shape), read(region_of(shape))
    perm = list(range(len(shape)))
    random.shuffle(perm)
    assert np.array_equal(read(views.transpose(region, perm)), array.transpose(perm))
    axis = random.randrange(len(shape))
    start = random.randrange(shape[axis])
    count = random.randint(1, shape[axis] - start)
    expected = array.take(range(start, start + count), axis)
    assert np.array_equal(read(views.take_slice(region, axis, start, count)), expected)
    backwards = views.take_slice(region, axis, shape[axis] - 1, shape[axis], -1)
    assert np.array_equal(read(backwards), np.flip(array, axis))


@given(shapes, st.randoms(use_true_random=False))
def test_reshape_is_numpys_or_none(shape, random):
    perm = list(range(len(shape)))
    random.shuffle(perm)
    region = views.transpose(region_of(shape), perm)
    array = read(region)
    factors = [f for n in shape for f in ([2, 2] if n == 4 else [n])]
    random.shuffle(factors)
    cuts = sorted(random.sample(range(len(factors) + 1), min(2, len(factors))))
    wanted = tuple(math.prod(part) for part in (factors[: cuts[0]], factors[cuts[0] : cuts[-1]], factors[cuts[-1] :]))
    view = views.reshape(region, wanted)
    if view is not None:
        assert np.array_equal(read(view), array.reshape(wanted))
    else:  # NumPy too must need a copy
        assert not np.shares_memory(array.reshape(wanted), array)


@given(shapes)
def test_a_dense_region_takes_any_shape(shape):
    region = region_of(shape)
    flat = views.reshape(region, (math.prod(shape),))
    assert flat is not None
    assert np.array_equal(read(flat), read(region).reshape(-1))


@given(shapes, st.randoms(use_true_random=False))
def test_merged_axes_name_the_same_elements(shape, random):
    perm = list(range(len(shape)))
    random.shuffle(perm)
    one, other = (
        views.transpose(region_of(tuple(shape[perm.index(i)] for i in range(len(shape)))), perm),
        region_of(shape),
    )
    merged = views.merge_axes([one, other], limit=5)
    assert merged is not None
    for before, after in zip((one, other), merged, strict=True):
        assert np.array_equal(read(after).reshape(-1), read(before).reshape(-1))
    assert len(merged[0].shape) <= max(1, sum(n != 1 for n in shape))


def test_merge_axes_says_when_four_are_not_enough():
    twisted = views.transpose(region_of((2, 2, 2, 2, 2)), (4, 3, 2, 1, 0))
    assert views.merge_axes([twisted, region_of((2, 2, 2, 2, 2))]) is None


def test_expand_repeats_by_stride_zero():
    region = views.expand(region_of((3, 1)), (2, 3, 4))
    assert region.stride == (0, 4, 0)
    assert np.array_equal(read(region), np.broadcast_to(np.arange(3).reshape(3, 1), (2, 3, 4)))


def test_a_matrix_needs_dense_rows():
    assert views.as_matrix(region_of((2, 3, 4))).shape == (6, 4)
    assert views.as_matrix(views.transpose(region_of((3, 4)), (1, 0))) is None
