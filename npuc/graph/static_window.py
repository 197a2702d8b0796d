"""Pools of plain graphs: strided views of the padded input, one for each place of the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import onnx_ir as ir

from npuc.graph.nodes import dims
from npuc.graph.static_form import Form

JOINED = 8
"""Operands that one node of a pool joins: inputs of one elementwise kernel."""


def max_pool(form: Form) -> ir.Value:
    """MaxPool: the largest of strided views, one for each place of the window"""
    dtype = (form.x.dtype or ir.DataType.FLOAT).numpy()
    lowest = -np.inf if form.x.dtype is None or form.x.dtype.is_floating_point() else np.iinfo(dtype).min
    return _joined(form, "Max", taps(form, form.x, lowest))


def average_pool(form: Form) -> ir.Value:
    """AveragePool: the sum of strided views over the number of elements in each window"""
    total = _joined(form, "Sum", taps(form, form.x, 0))
    window = Window.of(form)
    counts = reduce(np.multiply.outer, window.counts(bool(form.attrs.get("count_include_pad", 0))))
    return form.op("Div", total, form.constant(counts.astype((form.x.dtype or ir.DataType.FLOAT).numpy())))


def lp_pool(form: Form) -> ir.Value:
    """LpPool: the p-norm of strided views, one for each place of the window"""
    p = form.attrs.get("p", 2)
    powers = form.op("Pow", form.op("Abs", form.x), form.number(p))
    return form.op("Pow", _joined(form, "Sum", taps(form, powers, 0)), form.number(1 / p))


@dataclass(frozen=True)
class Window:
    """The window of a pool or a convolution, by axis behind the channels: its extent, steps, dilations, and padding on
    both sides."""

    extents: tuple[int, ...]
    results: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, form: Form, kernel: Sequence[int] = ()) -> Window:
        """Of a pool, or with the extents of a convolution's kernel."""
        extents, results = form.shape[2:], dims(form.node.outputs[0])[2:]
        rank, kernel = len(extents), tuple(kernel or form.attrs["kernel_shape"])
        strides = tuple(form.attrs.get("strides", [1] * rank))
        dilations = tuple(form.attrs.get("dilations", [1] * rank))
        pads = list(form.attrs.get("pads", [0] * 2 * rank))
        auto = form.attrs.get("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            for axis in range(rank):
                span = (results[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
                missing = max(span - extents[axis], 0)
                small = missing // 2
                pads[axis] = small if auto == "SAME_UPPER" else missing - small
                pads[axis + rank] = missing - pads[axis]
        return cls(extents, results, kernel, strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))

    def reach(self, axis: int) -> int:
        """Padded elements that the windows touch along an axis: in ceil mode more than the pads say."""
        last = (self.results[axis] - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1
        return max(last, self.before[axis] + self.extents[axis])

    def counts(self, padding: bool) -> list[np.ndarray]:
        """By axis: elements of each window, with or without the padding; what lies beyond both never counts."""
        found = []
        for axis, extent in enumerate(self.extents):
            low, high = (0, self.before[axis] + extent + self.after[axis]) if padding else (0, extent)
            first = np.arange(self.results[axis]) * self.strides[axis] - (0 if padding else self.before[axis])
            places = first[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
            found.append(((places >= low) & (places < high)).sum(1))
        return found


def taps(form: Form, value: ir.Value, fill: float, kernel: Sequence[int] = ()) -> list[ir.Value]:
    """A strided view of the padded value for each place of the window. kernel: of a convolution."""
    window, rank = Window.of(form, kernel), len(form.shape) - 2
    after = [window.reach(a) - window.before[a] - window.extents[a] for a in range(rank)]
    padded = value
    if any(window.before) or any(after):
        shape = (*form.shape[:2], *(window.reach(axis) for axis in range(rank)))
        pads = form.whole([0, 0, *window.before, 0, 0, *after])
        padded = form.op("Pad", value, pads, form.number(fill), shape=shape)
    axes = form.whole(range(2, rank + 2))
    views = []
    for place in np.ndindex(*window.kernel):
        starts = [p * d for p, d in zip(place, window.dilations, strict=True)]
        ends = [s + (n - 1) * t + 1 for s, n, t in zip(starts, window.results, window.strides, strict=True)]
        cut = [form.whole(starts), form.whole(ends), axes, form.whole(window.strides)]
        views.append(form.op("Slice", padded, *cut, shape=(*form.shape[:2], *window.results)))
    return views


def _joined(form: Form, op_type: str, values: list[ir.Value]) -> ir.Value:
    """All values by a variadic operator, some at a time."""
    while len(values) > 1:
        groups = [values[i : i + JOINED] for i in range(0, len(values), JOINED)]
        values = [form.op(op_type, *group) if len(group) > 1 else group[0] for group in groups]
    return values[0]
