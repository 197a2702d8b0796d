"""ConvTranspose over any number of axes: a product for each tap of the kernel, summed in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from npurt.host.op import Attributes, Shape, StepFault, bounded

ATTRIBUTES: dict[str, str | tuple[str | int, ...]] = {
    "auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"), "dilations": "ints", "group": "int",
    "kernel_shape": "ints", "output_padding": "ints", "output_shape": "ints", "pads": "ints", "strides": "ints",
}  # fmt: skip


@dataclass(frozen=True)
class Window:
    """The numbers of a convolution by axis. reach: from the first to behind the last tap."""

    groups: int
    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape

    @property
    def reach(self) -> Shape:
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def taps(self) -> Iterator[tuple[Shape, Shape]]:
        """Each tap's place in the kernel, and how far it lies from the first."""
        for at in product(*map(range, self.kernel)):
            yield at, tuple(i * d for i, d in zip(at, self.dilations, strict=True))


def transpose_shape(attributes: Attributes, shapes: Sequence[Shape]) -> Shape:
    """[N, C, *extents] with a weight [C, M / groups, *kernel]: [N, M, *results]."""
    x, weight = shapes[:2]
    window, results = _transposed(attributes, x, weight)
    if x[1] != weight[0] or x[1] % window.groups:
        raise StepFault(f"input {list(x)} and weight {list(weight)} do not fit in {window.groups} groups")
    channels = weight[1] * window.groups
    _check_bias(shapes, channels)
    return bounded((x[0], channels, *results), "the result")


def transpose(attributes: Attributes, inputs: Sequence[np.ndarray], shape: Shape) -> np.ndarray:
    """Each tap of each input element is added where it falls; the pads are then cut off."""
    x, weight = inputs[0].astype(np.float64), inputs[1].astype(np.float64)
    window, results = _transposed(attributes, x.shape, weight.shape)
    groups, extents = window.groups, x.shape[2:]
    rows = x.reshape(x.shape[0], groups, -1, *extents)
    of_group = weight.reshape(groups, -1, *weight.shape[1:])
    whole = [max(a, b + r) for a, b, r in zip(_full(extents, window), window.before, results, strict=True)]
    total = np.zeros((x.shape[0], groups, weight.shape[1], *whole))
    for at, first in window.taps():
        part = np.einsum("ngc...,gcm->ngm...", rows, of_group[_tap(at)])
        total[_places(first, extents, window.strides)] += part
    kept = _places(window.before, results, (1,) * len(results))
    return _with_bias(total[kept].reshape(shape), inputs)


def _window(attributes: Attributes, x: Shape, weight: Shape) -> Window:
    """With the pads that are given; SAME pads are for the caller."""
    axes = len(x) - 2
    if axes < 1 or len(weight) != len(x):
        raise StepFault(f"input {list(x)} and weight {list(weight)} have no axes to go along")
    groups, kernel = int(attributes.get("group", 1)), tuple(weight[2:])
    ones = [1] * axes
    strides, dilations = (tuple(attributes.get(name, ones)) for name in ("strides", "dilations"))
    pads = tuple(attributes.get("pads", [0] * 2 * axes))
    if tuple(attributes.get("kernel_shape", kernel)) != kernel or groups < 1 or min(kernel) < 1:
        raise StepFault(f"kernel_shape or group do not fit the weight {list(weight)}")
    if (len(strides), len(dilations), len(pads)) != (axes, axes, 2 * axes) or min(*strides, *dilations) < 1:
        raise StepFault(f"strides, dilations or pads are not those of {axes} axes")
    if min(pads) < 0:
        raise StepFault("pads are negative")
    window = Window(groups, kernel, strides, dilations, pads[:axes], pads[axes:])
    if attributes.get("auto_pad", "NOTSET") == "VALID":
        return replace(window, before=(0,) * axes, after=(0,) * axes)
    return window


def _halved(window: Window, totals: Sequence[int], upper: bool) -> Window:
    """The window with its pads split in halves, an odd one behind where `upper`."""
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    before, after = (small, large) if upper else (large, small)
    return replace(window, before=before, after=after)


def _transposed(attributes: Attributes, x: Shape, weight: Shape) -> tuple[Window, Shape]:
    """The window of a transposed convolution with its pads, and the extents of the result."""
    window = _window(attributes, x, weight)
    axes, mode = len(x) - 2, str(attributes.get("auto_pad", "NOTSET"))
    more = tuple(attributes.get("output_padding", [0] * axes))
    wanted = tuple(attributes.get("output_shape", ()))
    if len(more) != axes or min(more) < 0 or len(wanted) not in (0, axes):
        raise StepFault(f"output_padding or output_shape are not those of {axes} axes")
    full = tuple(e + m for e, m in zip(_full(x[2:], window), more, strict=True))
    bounded((x[0], weight[1] * window.groups, *full), "the result before its pads are cut off")
    if not wanted and mode.startswith("SAME"):
        wanted = tuple(e * s for e, s in zip(x[2:], window.strides, strict=True))
    if wanted:
        totals = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
        return _halved(window, totals, mode == "SAME_UPPER"), bounded(wanted, "the result")
    results = [f - b - a for f, b, a in zip(full, window.before, window.after, strict=True)]
    return window, bounded(results, "the result")


def _full(extents: Sequence[int], window: Window) -> Shape:
    return tuple((e - 1) * s + r for e, s, r in zip(extents, window.strides, window.reach, strict=True))


def _places(first: Sequence[int], extents: Sequence[int], strides: Shape) -> Any:
    """An index along the last axes: every stride-th element from `first` on, as many as `extents` says."""
    sizes = zip(first, extents, strides, strict=True)
    return (..., *(slice(f, f + (e - 1) * s + 1 if e else f, s) for f, e, s in sizes))


def _tap(at: Shape) -> Any:
    """An index of one tap of a kernel."""
    return (..., *at)


def _check_bias(shapes: Sequence[Shape], channels: int) -> None:
    if len(shapes) > 2 and shapes[2] != (channels,):
        raise StepFault(f"a bias {list(shapes[2])} for {channels} channels")


def _with_bias(total: np.ndarray, inputs: Sequence[np.ndarray]) -> np.ndarray:
    if len(inputs) < 3:
        return total
    return total + inputs[2].astype(np.float64).reshape(-1, *[1] * (total.ndim - 2))
