"""Resize and GridSample: values between the elements of a tensor, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import floor

import numpy as np

from npurt.host.op import Attributes, Shape, StepFault, bounded

RESIZE: dict[str, str | tuple[str | int, ...]] = {
    "antialias": (0,), "axes": "ints",
    "coordinate_transformation_mode": (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    ),
    "exclude_outside": (0,), "keep_aspect_ratio_policy": ("stretch",), "mode": ("nearest", "linear"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"), "scales": "floats", "sizes": "ints",
}  # fmt: skip
GRID_SAMPLE: dict[str, str | tuple[str | int, ...]] = {
    "align_corners": (0, 1), "mode": ("linear", "bilinear", "nearest"),
    "padding_mode": ("zeros", "border", "reflection"),
}  # fmt: skip
_NEAREST: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5), "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def resize_shape(attributes: Attributes, shapes: Sequence[Shape]) -> Shape:
    """The input's shape with the extents that `sizes` or `scales` give to `axes`, or to all of them."""
    found = list(shapes[0])
    for axis, _, extent in _scaled(attributes, shapes[0]):
        found[axis] = extent
    return bounded(found, "the result")


def resize(attributes: Attributes, inputs: Sequence[np.ndarray], shape: Shape) -> np.ndarray:
    """One axis after the other: the nearest element, or a mean of two by distance."""
    result = inputs[0]
    linear = attributes.get("mode", "nearest") == "linear"
    for axis, scale, extent in _scaled(attributes, inputs[0].shape):
        have = result.shape[axis]
        if extent == have and scale == 1.0:
            continue
        at = _coordinates(str(attributes.get("coordinate_transformation_mode", "half_pixel")), scale, have, extent)
        if linear:
            at = at.clip(0, have - 1)
            low = np.floor(at).astype(np.int64)
            share = (at - low).reshape(-1, *[1] * (result.ndim - 1 - axis))
            near = result.take(low, axis).astype(np.float64)
            far = result.take(np.minimum(low + 1, have - 1), axis).astype(np.float64)
            result = near * (1 - share) + far * share
        else:
            chosen = _NEAREST[str(attributes.get("nearest_mode", "round_prefer_floor"))](at)
            result = result.take(chosen.clip(0, have - 1).astype(np.int64), axis)
    return result


def _scaled(attributes: Attributes, shape: Shape) -> list[tuple[int, float, int]]:
    """(axis, scale, extent of the result) of each axis that is given."""
    axes = list(attributes.get("axes", range(len(shape))))
    if any(not -len(shape) <= axis < len(shape) for axis in axes):
        raise StepFault(f"an axis of {axes} is not one of {list(shape)}")
    axes = [axis % len(shape) for axis in axes]
    sizes, scales = attributes.get("sizes"), attributes.get("scales")
    given = sizes if sizes is not None else scales
    if given is None or (sizes is not None and scales is not None) or len(given) != len(axes):
        raise StepFault(f"scales or sizes of {len(axes)} axes are due")
    if len(set(axes)) != len(axes) or min(shape, default=1) < 1 or (sizes is not None and min(sizes, default=1) < 1):
        raise StepFault(f"axes {axes} of {list(shape)} cannot be resized to {list(given)}")
    if sizes is not None:
        return [(axis, size / shape[axis], size) for axis, size in zip(axes, sizes, strict=True)]
    found = [(axis, float(scale), floor(shape[axis] * scale)) for axis, scale in zip(axes, scales or (), strict=True)]
    if any(extent < 1 for _, _, extent in found):
        raise StepFault(f"scales {list(given)} leave nothing of {list(shape)}")
    return found


def _coordinates(mode: str, scale: float, have: int, extent: int) -> np.ndarray:
    """Where each element of the result lies among the `have` elements, as ONNX's Resize defines it."""
    place = np.arange(extent, dtype=np.float64)
    if mode == "align_corners":
        return place * (have - 1) / (extent - 1) if extent > 1 else place
    if mode == "asymmetric":
        return place / scale
    if mode == "pytorch_half_pixel" and extent == 1:
        return place
    centred = (place + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return have / 2 * (1 - extent / (scale * have)) + centred
    return centred


def grid_shape(attributes: Attributes, shapes: Sequence[Shape]) -> Shape:
    """[N, C, *extents] at a grid [N, *results, axes]: [N, C, *results]."""
    x, grid = shapes
    axes = len(x) - 2
    if axes < 1 or len(grid) != len(x) or grid[0] != x[0] or grid[-1] != axes or min(x) < 1:
        raise StepFault(f"a grid {list(grid)} does not fit the input {list(x)}")
    return bounded((*x[:2], *grid[1:-1]), "the result")


def grid_sample(attributes: Attributes, inputs: Sequence[np.ndarray], shape: Shape) -> np.ndarray:
    """The value at each point of the grid; its last axis counts from the last axis of the input, from -1 to 1."""
    x, grid = inputs[0].astype(np.float64), inputs[1].astype(np.float64)
    corners, padding = bool(attributes.get("align_corners", 0)), str(attributes.get("padding_mode", "zeros"))
    extents = x.shape[2:]
    at = []
    for axis, extent in enumerate(extents):
        point = grid[..., len(extents) - 1 - axis]
        scaled = (point + 1) / 2 * (extent - 1) if corners else ((point + 1) * extent - 1) / 2
        at.append(scaled)
    if attributes.get("mode", "linear") == "nearest":
        return _picked(x, [np.rint(place) for place in at], padding, corners)
    total = np.zeros(shape)
    floors = [np.floor(_inside(place, e, padding, corners)) for place, e in zip(at, extents, strict=True)]
    exact = [_inside(place, e, padding, corners) for place, e in zip(at, extents, strict=True)]
    for offsets in product((0, 1), repeat=len(extents)):
        share = np.ones(grid.shape[:-1])
        for place, low, offset in zip(exact, floors, offsets, strict=True):
            share = share * (1 - abs(place - low - offset))
        corner = [low + offset for low, offset in zip(floors, offsets, strict=True)]
        total += _picked(x, corner, padding, corners) * share[:, None]
    return total


def _inside(place: np.ndarray, extent: int, padding: str, corners: bool) -> np.ndarray:
    """Points brought into the tensor as the padding says; with zeros they stay outside."""
    if padding == "border":
        return place.clip(0, extent - 1)
    if padding == "reflection":
        low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
        span = high - low
        if span == 0:
            return np.zeros_like(place)
        folded = np.mod(place - low, 2 * span)
        return (low + np.where(folded > span, 2 * span - folded, folded)).clip(0, extent - 1)
    return place


def _picked(x: np.ndarray, places: Sequence[np.ndarray], padding: str, corners: bool) -> np.ndarray:
    """Elements at whole places [N, *results]; zero where they lie outside and the padding is zeros."""
    extents = x.shape[2:]
    places = [_inside(place, extent, padding, corners) for place, extent in zip(places, extents, strict=True)]
    valid = np.ones(places[0].shape, bool)
    index = []
    for place, extent in zip(places, extents, strict=True):
        valid &= (place >= 0) & (place <= extent - 1)
        index.append(np.nan_to_num(place).clip(0, extent - 1).astype(np.int64))
    batch = np.arange(x.shape[0]).reshape(-1, *[1] * (places[0].ndim - 1))
    found = np.moveaxis(x, 1, -1)[(batch, *index)]
    return np.moveaxis(np.where(valid[..., None], found, 0.0), -1, 1)
