"""Operators of plain graphs that are written out where every shape is static: norms, pools, convolutions, maxima."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
import onnx_ir as ir

from npuc.graph.nodes import Builder, attributes, dims, replace_value
from npuc.graph.static_conv import conv
from npuc.graph.static_form import Form
from npuc.graph.static_window import average_pool, lp_pool, max_pool


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


FORMS: Mapping[str, Callable[[Form], ir.Value | None]] = {
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
    "Conv": conv,
}


def write_out_static_forms(graph: ir.Graph) -> None:
    """Writes out every node that `FORMS` names, in place; one whose further outputs are read stays, and one
    that its form leaves to a kernel."""
    for node in [n for n in graph if n.domain == "" and n.op_type in FORMS]:
        if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
            continue
        if math.prod(dims(node.outputs[0])) == 0:
            continue
        value = FORMS[node.op_type](Form(Builder(graph, node, [node]), node, attributes(node)))
        if value is not None:
            replace_value(node.outputs[0], value)
