"""Operators of plain graphs that are written out where every shape is static: norms, pools, one-hot maxima."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import evaluate
from npuc.graph.nodes import Builder, attributes, dims, replace_value

JOINED = 8
"""Operands that one node of a pool joins: inputs of one elementwise kernel."""


@dataclass(frozen=True)
class Form:
    """A node that is being written out. attrs: its attributes; shape, dtype: of its first input."""

    builder: Builder
    node: ir.Node
    attrs: Mapping[str, Any]

    @property
    def x(self) -> ir.Value:
        return self.input(0)

    @property
    def shape(self) -> tuple[int, ...]:
        return dims(self.x)

    def input(self, index: int) -> ir.Value:
        value = self.node.inputs[index]
        assert value is not None
        return value

    def op(self, op_type: str, *inputs: ir.Value, dtype: ir.DataType | None = None, shape: Sequence[int] | None = None,
           **attrs: Any) -> ir.Value:  # fmt: skip
        """A node, elementwise unless a shape is given; of constants alone, what it gives."""
        if all(value.const_value is not None for value in inputs):
            arrays = [value.const_value.numpy() for value in inputs if value.const_value is not None]
            return self.constant(evaluate("", op_type, arrays, attrs)[0])
        extents = np.broadcast_shapes(*(dims(value) for value in inputs)) if shape is None else shape
        return self.builder.op(op_type, list(inputs), extents, dtype or inputs[0].dtype or ir.DataType.FLOAT, attrs)

    def constant(self, array: np.ndarray) -> ir.Value:
        return self.builder.constant(array, f"{self.node.name}~constant")

    def number(self, number: float) -> ir.Value:
        """A scalar of the type of the first input."""
        return self.constant(np.array(number).astype((self.x.dtype or ir.DataType.FLOAT).numpy()))

    def whole(self, numbers: Sequence[int]) -> ir.Value:
        return self.constant(np.array(list(numbers), np.int64))

    def reduced(self, op_type: str, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A reduction that keeps its axes."""
        shape = [1 if axis in axes else extent for axis, extent in enumerate(dims(value))]
        return self.op(op_type, value, self.whole(axes), shape=shape, keepdims=1)

    def of_channels(self, value: ir.Value) -> ir.Value:
        """One number a channel, in a shape that broadcasts against x [N, C, ..]."""
        shape = [1, *dims(value), *[1] * (len(self.shape) - 2)]
        if value.const_value is not None:
            return self.constant(value.const_value.numpy().reshape(shape))
        return self.builder.reshape(value, shape)


def batch_normalization(form: Form) -> ir.Value:
    """BatchNormalization in inference: a factor and a shift for each channel"""
    scale, bias, mean, variance = (form.of_channels(form.input(i)) for i in range(1, 5))
    deviation = form.op("Sqrt", form.op("Add", variance, form.number(form.attrs.get("epsilon", 1e-5))))
    centred = form.op("Sub", form.x, mean)
    return form.op("Add", form.op("Mul", centred, form.op("Div", scale, deviation)), bias)


def instance_normalization(form: Form) -> ir.Value:
    """InstanceNormalization: mean and variance over the axes behind the channels"""
    axes = range(2, len(form.shape))
    centred = form.op("Sub", form.x, form.reduced("ReduceMean", form.x, axes))
    variance = form.reduced("ReduceMean", form.op("Mul", centred, centred), axes)
    deviation = form.op("Sqrt", form.op("Add", variance, form.number(form.attrs.get("epsilon", 1e-5))))
    scale, bias = form.of_channels(form.input(1)), form.of_channels(form.input(2))
    return form.op("Add", form.op("Mul", form.op("Div", centred, deviation), scale), bias)


def lp_normalization(form: Form) -> ir.Value:
    """LpNormalization: divided by the L1 or L2 norm along one axis; zeros where that is zero"""
    axis = form.attrs.get("axis", -1) % len(form.shape)
    norm = form.reduced(f"ReduceL{form.attrs.get('p', 2)}", form.x, [axis])
    empty = form.op("Equal", norm, form.number(0), dtype=ir.DataType.BOOL)
    ratio = form.op("Div", form.x, form.op("Where", empty, form.number(1), norm, dtype=form.x.dtype))
    return form.op("Where", empty, form.number(0), ratio, dtype=form.x.dtype)


def hardmax(form: Form) -> ir.Value:
    """Hardmax: one at the first largest element along an axis, else zero"""
    axis = form.attrs.get("axis", -1) % len(form.shape)
    kept = [1 if a == axis else extent for a, extent in enumerate(form.shape)]
    best = form.op("ArgMax", form.x, shape=kept, dtype=ir.DataType.INT64, axis=axis, keepdims=1)
    places = np.arange(form.shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(form.shape))])
    hot = form.op("Equal", best, form.constant(places), dtype=ir.DataType.BOOL)
    return form.op("Cast", hot, dtype=form.x.dtype, to=form.x.dtype)


def global_pool(form: Form) -> ir.Value:
    """GlobalAveragePool, GlobalMaxPool: a reduction of the axes behind the channels"""
    op = "ReduceMean" if form.node.op_type == "GlobalAveragePool" else "ReduceMax"
    return form.reduced(op, form.x, range(2, len(form.shape)))


def mean(form: Form) -> ir.Value:
    """Mean: the sum of its operands over their number"""
    values = [form.input(i) for i in range(len(form.node.inputs))]
    return form.op("Div", reduce(lambda a, b: form.op("Add", a, b), values), form.number(len(values)))


def max_pool(form: Form) -> ir.Value:
    """MaxPool: the largest of strided views, one for each place of the window"""
    dtype = (form.x.dtype or ir.DataType.FLOAT).numpy()
    lowest = -np.inf if form.x.dtype is None or form.x.dtype.is_floating_point() else np.iinfo(dtype).min
    return _joined(form, "Max", _taps(form, form.x, lowest))


def average_pool(form: Form) -> ir.Value:
    """AveragePool: the sum of strided views over the number of elements in each window"""
    total = _joined(form, "Sum", _taps(form, form.x, 0))
    window = _Window.of(form)
    counts = reduce(np.multiply.outer, window.counts(bool(form.attrs.get("count_include_pad", 0))))
    return form.op("Div", total, form.constant(counts.astype((form.x.dtype or ir.DataType.FLOAT).numpy())))


def lp_pool(form: Form) -> ir.Value:
    """LpPool: the p-norm of strided views, one for each place of the window"""
    p = form.attrs.get("p", 2)
    powers = form.op("Pow", form.op("Abs", form.x), form.number(p))
    return form.op("Pow", _joined(form, "Sum", _taps(form, powers, 0)), form.number(1 / p))


@dataclass(frozen=True)
class _Window:
    """The window of a pool, by axis behind the channels: its extent, steps, dilations, and padding on both sides."""

    extents: tuple[int, ...]
    results: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, form: Form) -> _Window:
        extents, results = form.shape[2:], dims(form.node.outputs[0])[2:]
        rank, kernel = len(extents), tuple(form.attrs["kernel_shape"])
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


def _taps(form: Form, value: ir.Value, fill: float) -> list[ir.Value]:
    """A strided view of the padded value for each place of the window."""
    window, rank = _Window.of(form), len(form.shape) - 2
    after = [window.reach(a) - window.before[a] - window.extents[a] for a in range(rank)]
    padded = value
    if any(window.before) or any(after):
        shape = (*form.shape[:2], *(window.reach(axis) for axis in range(rank)))
        pads = form.whole([0, 0, *window.before, 0, 0, *after])
        padded = form.op("Pad", value, pads, form.number(fill), shape=shape)
    axes = form.whole(range(2, rank + 2))
    taps = []
    for place in np.ndindex(*window.kernel):
        starts = [p * d for p, d in zip(place, window.dilations, strict=True)]
        ends = [s + (n - 1) * t + 1 for s, n, t in zip(starts, window.results, window.strides, strict=True)]
        cut = [form.whole(starts), form.whole(ends), axes, form.whole(window.strides)]
        taps.append(form.op("Slice", padded, *cut, shape=(*form.shape[:2], *window.results)))
    return taps


def _joined(form: Form, op_type: str, values: list[ir.Value]) -> ir.Value:
    """All values by a variadic operator, some at a time."""
    while len(values) > 1:
        groups = [values[i : i + JOINED] for i in range(0, len(values), JOINED)]
        values = [form.op(op_type, *group) if len(group) > 1 else group[0] for group in groups]
    return values[0]


FORMS: Mapping[str, Callable[[Form], ir.Value]] = {
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "LpNormalization": lp_normalization,
    "Hardmax": hardmax,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    "Mean": mean,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "LpPool": lp_pool,
}


def write_out_static_forms(graph: ir.Graph) -> None:
    """Writes out every node that `FORMS` names, in place; one whose further outputs are read stays."""
    for node in [n for n in graph if n.domain == "" and n.op_type in FORMS]:
        if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
            continue
        if math.prod(dims(node.outputs[0])) == 0:
            continue
        replace_value(node.outputs[0], FORMS[node.op_type](Form(Builder(graph, node, [node]), node, attributes(node))))
