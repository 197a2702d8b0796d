"""Movement without moving: reshape, transpose, slice and expand as arithmetic on a region's strides.

Each function returns a new region over the same bytes, or None where the strides cannot say it and a copy is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from npuc.tasks import Region


def contiguous_strides(shape: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides, step = [], element_bytes
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def transpose(region: Region, perm: Sequence[int]) -> Region:
    return replace(region, shape=tuple(region.shape[p] for p in perm), stride=tuple(region.stride[p] for p in perm))


def take_slice(region: Region, axis: int, start: int, count: int, step: int = 1) -> Region:
    """Elements start, start + step, ... of one axis; a negative step walks backwards."""
    shape, stride = list(region.shape), list(region.stride)
    offset = region.offset + (start * stride[axis] if count else 0)
    shape[axis], stride[axis] = count, stride[axis] * step
    return replace(region, offset=offset, shape=tuple(shape), stride=tuple(stride))


def at_index(region: Region, index: int) -> Region:
    """The region at one index of its outermost axis, without that axis."""
    offset = region.offset + index * region.stride[0]
    return replace(region, offset=offset, shape=region.shape[1:], stride=region.stride[1:])


def expand(region: Region, shape: Sequence[int]) -> Region:
    """Broadcast to `shape` by NumPy's rule: repeated axes get stride 0."""
    missing = len(shape) - region.rank
    old_shape = (1,) * missing + region.shape
    old_stride = (0,) * missing + region.stride
    stride = tuple(0 if o == 1 and n != 1 else s for o, n, s in zip(old_shape, shape, old_stride, strict=True))
    return replace(region, shape=tuple(shape), stride=stride)


def squeeze_ones(region: Region) -> Region:
    """Without the axes of extent one."""
    kept = [(n, s) for n, s in zip(region.shape, region.stride, strict=True) if n != 1]
    return replace(region, shape=tuple(n for n, _ in kept), stride=tuple(s for _, s in kept))


def reshape(region: Region, shape: Sequence[int]) -> Region | None:
    """The same elements in row-major order under another shape, or None.

    Splits both shapes into the smallest runs of axes with equal products; inside a run the old axes must be mergeable
    (each stride is the next one times its extent).
    """
    shape = tuple(shape)
    if region.elements == 0 or region.elements == 1:
        return replace(region, shape=shape, stride=contiguous_strides(shape, region.dtype.nbytes))
    old = [(n, s) for n, s in zip(region.shape, region.stride, strict=True) if n != 1]
    strides: list[int] = [0] * len(shape)
    at = 0  # next old axis
    new_axis = 0
    while new_axis < len(shape):
        if shape[new_axis] == 1:
            new_axis += 1
            continue
        first_old, first_new = at, new_axis
        have, want = old[at][0], shape[new_axis]
        at, new_axis = at + 1, new_axis + 1
        while have != want:
            if have < want:
                have *= old[at][0]
                at += 1
            else:
                want *= shape[new_axis]
                new_axis += 1
        run = old[first_old:at]
        for (_, outer), (extent, inner) in pairwise(run):
            if outer != inner * extent:
                return None
        step = run[-1][1]
        for axis in range(new_axis - 1, first_new - 1, -1):
            strides[axis] = step
            step *= shape[axis]
    return replace(region, shape=shape, stride=tuple(strides))


def merge_axes(regions: Sequence[Region], limit: int = 4) -> list[Region] | None:
    """Regions of one shape (strides may differ, 0 included) under the fewest common axes; None if more than `limit`.

    Adjacent axes merge where every region can say the merged axis with one stride.
    """
    shape = regions[0].shape
    axes: list[tuple[int, list[int]]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        strides = [r.stride[axis] for r in regions]
        if axes and all(outer == inner * extent for outer, inner in zip(axes[-1][1], strides, strict=True)):
            axes[-1] = (axes[-1][0] * extent, strides)
        else:
            axes.append((extent, strides))
    if not axes:
        axes = [(1, [r.dtype.nbytes for r in regions])]
    if len(axes) > limit:
        return None
    merged_shape = tuple(n for n, _ in axes)
    return [replace(r, shape=merged_shape, stride=tuple(s[i] for _, s in axes)) for i, r in enumerate(regions)]


def narrowed(region: Region) -> Region:
    """Axes that only repeat get extent one: a kernel broadcasts them in registers instead of loading copies."""
    shape = tuple(1 if s == 0 else n for n, s in zip(region.shape, region.stride, strict=True))
    stride = tuple(region.dtype.nbytes if s == 0 else s for s in region.stride)
    return replace(region, shape=shape, stride=stride)


def rows_are_dense(region: Region) -> bool:
    """Whether elements of the last axis are adjacent, as the DPU needs them."""
    return region.shape[-1] <= 1 or region.stride[-1] == region.dtype.nbytes


def as_matrix(region: Region) -> Region | None:
    """[..., K] as [M, K] with adjacent elements in a row, or None."""
    rows = 1
    for extent in region.shape[:-1]:
        rows *= extent
    matrix = reshape(region, (rows, region.shape[-1]))
    return matrix if matrix is not None and rows_are_dense(matrix) else None


def parts(regions: Sequence[Region], limit: int = 4) -> Iterator[list[Region]]:
    """Regions of one shape under at most `limit` common axes, all together where their axes merge that far; else one
    after the other along the shortest axis that is left.
    """
    merged = merge_axes(regions, limit)
    if merged is not None:
        yield merged
        return
    shape = regions[0].shape
    axis = min((a for a, extent in enumerate(shape) if extent > 1), key=lambda a: shape[a])
    for index in range(shape[axis]):
        yield from parts([at(region, axis, index) for region in regions], limit)


def at(region: Region, axis: int, index: int) -> Region:
    """The region at one index of an axis, without that axis."""
    return replace(
        region, offset=region.offset + index * region.stride[axis],
        shape=region.shape[:axis] + region.shape[axis + 1 :], stride=region.stride[:axis] + region.stride[axis + 1 :],
    )  # fmt: skip
