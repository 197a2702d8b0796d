"""Conv of plain graphs as a matrix product: the columns are strided views, one for each tap of the kernel."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from npuc.graph.nodes import dims
from npuc.graph.static_form import Form
from npuc.graph.static_window import taps


def conv(form: Form) -> ir.Value | None:
    """Conv: strided views, one for each place of the kernel, joined and multiplied by the weights"""
    weight, groups = form.input(1), int(form.attrs.get("group", 1))
    shape, kernel, results = form.shape, dims(weight)[2:], dims(form.node.outputs[0])
    if has_kernel(shape, dims(weight), groups):
        return None
    batch, channels, rows, points = shape[0], shape[1] // groups, results[1] // groups, math.prod(results[2:])
    views = [form.builder.reshape(view, (batch, groups, channels, points)) for view in taps(form, form.x, 0.0, kernel)]
    depth = channels * len(views)
    columns = views[0]
    if len(views) > 1:
        columns = form.op("Concat", *views, shape=(batch, groups, depth, points), axis=2)
    product = form.op("MatMul", _rows(form, weight, groups, depth), columns, shape=(batch, groups, rows, points))
    product = form.builder.reshape(product, results)
    if len(form.node.inputs) > 2 and form.node.inputs[2] is not None:
        product = form.op("Add", product, form.of_channels(form.input(2)))
    return product


def has_kernel(x: tuple[int, ...], weight: tuple[int, ...], groups: int) -> bool:
    """Whether it is the depthwise form along one axis: [1, C, T] with [C, 1, K] in C groups."""
    return len(x) == 3 and x[0] == 1 and groups == x[1] and weight[:2] == (x[1], 1)


def _rows(form: Form, weight: ir.Value, groups: int, depth: int) -> ir.Value:
    """The weights [M, C / groups, *kernel] as [1, groups, M / groups, taps * C / groups], as the columns lie."""
    shape = dims(weight)
    target = (1, groups, shape[0] // groups, depth)
    order = (0, *range(2, len(shape)), 1)
    if weight.const_value is not None:
        return form.constant(np.ascontiguousarray(weight.const_value.numpy().transpose(order)).reshape(target))
    return form.builder.reshape(form.builder.transpose(weight, order), target)
