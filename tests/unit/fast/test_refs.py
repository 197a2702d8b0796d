"""Views as values: where a part of a copy's destination lies in its source, and which bytes a view has."""

from __future__ import annotations

import numpy as np
import pytest

from npurt.abi.dtypes import DType
from npurt.fast.refs import Ref, make_ref, rows_of, through

F32 = DType.F32
SOURCE = np.arange(4096, dtype=np.int64)


def ref(offset: int, shape: tuple[int, ...], stride: tuple[int, ...], base: int = 0) -> Ref:
    return make_ref(base, F32, offset, shape, stride)


def bytes_of(view: Ref, memory: np.ndarray) -> np.ndarray:
    """The value at the first byte of each element."""
    stride = tuple(8 * pace for pace in view.stride)
    return np.ndarray(view.shape, memory.dtype, memory, 8 * view.offset, stride)


def copied(target: Ref, source: Ref) -> np.ndarray:
    """Memory after the copy; each byte of an element has the number of the source's first byte of it."""
    memory = np.full(4096, -1, np.int64)
    bytes_of(target, memory)[...] = bytes_of(source, SOURCE)
    return memory


@pytest.mark.parametrize(
    ("target", "source", "view"),
    [
        (ref(64, (6,), (4,)), ref(512, (6,), (4,)), ref(72, (3,), (4,))),
        (ref(0, (4, 8), (32, 4)), ref(1024, (4, 8), (128, 4)), ref(0, (4, 8), (32, 4))),
        (ref(0, (4, 8), (32, 4)), ref(1024, (4, 8), (128, 4)), ref(40, (2, 3), (64, 4))),
        (ref(0, (4, 8), (32, 4)), ref(1024, (4, 8), (128, 4)), ref(8, (1, 2, 4), (0, 4, 32))),
        (ref(0, (2, 4, 8), (128, 32, 4)), ref(1024, (2, 4, 8), (256, 32, 4)), ref(0, (2, 32), (128, 4))),
        (ref(0, (1, 1, 4, 8), (0, 0, 32, 4)), ref(1024, (1, 1, 4, 8), (0, 0, 32, 4)), ref(16, (4, 2), (16, 8))),
        (ref(256, (4, 8), (64, 4)), ref(1024, (4, 8), (4, 64)), ref(256, (8, 4), (4, 64))),
    ],
)
def test_a_part_is_found_in_the_source(target, source, view):
    found = through(target, source, view)
    assert found is not None
    np.testing.assert_array_equal(bytes_of(found.ref, SOURCE), bytes_of(view, copied(target, source)))


@pytest.mark.parametrize(
    ("target", "source", "view"),
    [
        (ref(0, (4, 8), (32, 4)), ref(1024, (4, 8), (128, 4)), ref(0, (32,), (4,))),  # runs over the rows of the source
        (ref(0, (4, 8), (32, 4)), ref(1024, (4, 8), (128, 4)), ref(0, (4, 9), (32, 4))),  # is larger
        (ref(0, (4, 8), (32, 4)), ref(1024, (4, 8), (128, 4)), ref(2, (2,), (4,))),  # lies between elements
        (ref(0, (4, 8), (40, 4)), ref(1024, (4, 8), (128, 4)), ref(32, (2,), (4,))),  # lies in a gap
    ],
)
def test_no_part_where_no_strides_say_it(target, source, view):
    assert through(target, source, view) is None


def test_the_kept_dimension_is_followed():
    target, source = ref(0, (2, 4, 8), (128, 32, 4)), ref(1024, (2, 4, 8), (512, 32, 4))
    found = through(target, source, ref(32, (2, 2, 8), (128, 32, 4)), keep=1)
    assert found is not None
    assert (found.dim, found.first) == (1, 1)


@pytest.mark.parametrize(
    ("view", "rows"),
    [
        (ref(8, (4, 8), (32, 4)), ([8], 128)),
        (ref(8, (4, 8), (40, 4)), ([8, 48, 88, 128], 32)),
        (ref(8, (3,), (8,)), ([8, 16, 24], 4)),
        (ref(8, (2, 1, 2), (64, 7, 4)), ([8, 72], 8)),
        (ref(8, (2,), (-4,)), ([4, 8], 4)),
        (ref(8, (0, 4), (16, 4)), ([], 0)),
    ],
)
def test_runs_of_adjacent_bytes(view, rows):
    found = rows_of(view)
    assert found is not None
    assert (found[0].tolist(), found[1]) == rows


def test_too_many_runs_are_not_told_apart():
    assert rows_of(ref(0, (70000,), (8,))) is None
