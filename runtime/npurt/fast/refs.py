"""What a task touches: strided views of device memory as values that passes can compare, compose and take apart.

Positions are bytes of device memory, whatever holds the values on the host. A narrow float lives in a *shadow*: one
float32 for each two bytes, so that arithmetic never converts. `Plane` says where the bytes of a view live.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from math import prod

import numpy as np

from npurt.abi.dtypes import DType

MAX_ROWS = 1 << 16  # a view with more runs of adjacent bytes counts as all that lies between its ends

Dims = tuple[int, ...]


class Plane(IntEnum):
    """Storage of a range of device memory: its own bytes, or the float32 shadow of f16 or of bf16 elements."""

    RAW = 0
    HALF = 1
    BRAIN = 2


_SHADOWED = {DType.F16: Plane.HALF, DType.BF16: Plane.BRAIN}


def plane_of(dtype: DType) -> Plane:
    """Where elements of a type live."""
    return _SHADOWED.get(dtype, Plane.RAW)


@dataclass(frozen=True, slots=True)
class Ref:
    """A view: base row, element type, byte offset of the first element, extents, strides in bytes."""

    base: int
    plane: Plane
    dtype: DType
    offset: int
    shape: Dims
    stride: Dims

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def hull(self) -> tuple[int, int]:
        """First byte, and one past the last."""
        if 0 in self.shape:
            return self.offset, self.offset
        reach = [(extent - 1) * pace for extent, pace in zip(self.shape, self.stride, strict=True)]
        low, high = sum(min(part, 0) for part in reach), sum(max(part, 0) for part in reach)
        return self.offset + low, self.offset + high + self.dtype.nbytes

    def moved(self, offset: int) -> Ref:
        return replace(self, offset=offset)


def make_ref(base: int, dtype: DType, offset: int, shape: Dims, stride: Dims) -> Ref:
    """A view on the plane of its element type."""
    return Ref(base, plane_of(dtype), dtype, offset, shape, stride)


def raw(ref: Ref) -> Ref:
    """The same view on the bytes themselves."""
    return replace(ref, plane=Plane.RAW)


def spread(ref: Ref, low: int, high: int) -> Ref:
    """All bytes that `ref` can reach when its offset moves by `low` to `high` bytes."""
    first, last = ref.hull
    size = max(last + high - (first + low), 0)
    return Ref(ref.base, ref.plane, DType.U8, first + low, (size,), (1,))


def merged(shape: Dims, *strides: Dims, keep: int = -1) -> tuple[list[int], list[list[int]], int]:
    """Joins neighbouring dimensions that are one in all strides, and drops those of extent 1.

    keep: a dimension that stays on its own. Returns extents, strides of each, and where `keep` went (-1: nowhere).
    """
    extents: list[int] = []
    paces: list[list[int]] = [[] for _ in strides]
    kept = -1
    for dim, extent in enumerate(shape):
        if extent == 1 and dim != keep:
            continue
        inner = [stride[dim] for stride in strides]
        joins = extents and dim != keep and kept != len(extents) - 1
        if joins and all(pace[-1] == extent * step for pace, step in zip(paces, inner, strict=True)):
            extents[-1] *= extent
            for pace, step in zip(paces, inner, strict=True):
                pace[-1] = step
            continue
        if dim == keep:
            kept = len(extents)
        extents.append(extent)
        for pace, step in zip(paces, inner, strict=True):
            pace.append(step)
    return extents, paces, kept


@lru_cache(maxsize=1 << 16)
def rows_of(ref: Ref) -> tuple[np.ndarray, int] | None:
    """(first bytes of the runs of adjacent bytes, length of each run); None where there are too many runs."""
    if 0 in ref.shape:
        return np.empty(0, np.int64), 0
    extents, (paces,), _ = merged(ref.shape, ref.stride)
    length = ref.dtype.nbytes
    if extents and paces[-1] == length:
        length *= extents.pop()
        paces.pop()
    if prod(extents) > MAX_ROWS:
        return None
    starts = np.array([ref.offset], np.int64)
    for extent, pace in zip(extents, paces, strict=True):
        starts = (starts[:, None] + np.arange(extent, dtype=np.int64) * pace).reshape(-1)
    return np.sort(starts), length


@dataclass(frozen=True, slots=True)
class Through:
    """Where a view of a copy's destination lies in its source. dim, first: which dimension of the view runs along the
    kept one, and at which index it starts; dim is -1 where the view has one index of it."""

    ref: Ref
    dim: int
    first: int


def through(target: Ref, source: Ref, view: Ref, keep: int = -1) -> Through | None:
    """`view`, a part of `target`, as the part of `source` with the same elements; None if no strides say that.

    target, source: equal extents, the two sides of a copy. keep: a dimension of the copy to be told about.
    """
    extents, (outer, inner), kept = merged(target.shape, target.stride, source.stride, keep=keep)
    order = sorted(range(len(extents)), key=lambda dim: -outer[dim])
    rest = view.offset - target.offset
    start = [0] * len(extents)
    for dim in order:
        if outer[dim] <= 0:
            return None
        start[dim] = min(rest // outer[dim], extents[dim] - 1)
        rest -= start[dim] * outer[dim]
    if rest or min(start, default=0) < 0:
        return None
    reached = list(start)
    strides = []
    along = -1
    for place, (extent, pace) in enumerate(zip(view.shape, view.stride, strict=True)):
        if extent <= 1:
            strides.append(0)
            continue
        found = next((dim for dim in order if pace >= outer[dim] and pace % outer[dim] == 0), None)
        if found is None:
            return None
        ratio = pace // outer[found]
        reached[found] += (extent - 1) * ratio
        if reached[found] >= extents[found]:
            return None
        if found == kept:
            if ratio != 1 or along >= 0:
                return None
            along = place
        strides.append(ratio * inner[found])
    offset = source.offset + sum(index * pace for index, pace in zip(start, inner, strict=True))
    ref = Ref(source.base, source.plane, view.dtype, offset, view.shape, tuple(strides))
    return Through(ref, along, start[kept] if kept >= 0 else 0)
