"""Quantisation in a plain graph as the standard words it: scales and zero points of any form, made in the run or not.

A language model has stricter rules (npuc.graph.quantised.activations): its answer must not change with how a prompt is
cut into runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.nodes import WIDE, Builder, attributes, dims, is_op, label, replace_value
from npuc.graph.quantised.known import Known

_LINEAR = ("QuantizeLinear", "DequantizeLinear")
FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32


def is_of_the_run(node: ir.Node, known: Known) -> bool:
    """Whether a QuantizeLinear or DequantizeLinear has a value of the run among its inputs."""
    return is_op(node, *_LINEAR) and any(v is not None and known.tensor(v) is None for v in node.inputs)


def quantise_as_written(graph: ir.Graph) -> None:
    """Writes out the quantisation of values of the run, in place; every value has a static shape.

    Raises ModelRefused for a scale whose shape does not fit.
    """
    for node in [n for n in graph if is_op(n, *_LINEAR)]:
        builder = Builder(graph, node, [node])
        result = _quantised(builder, node) if node.op_type == "QuantizeLinear" else _dequantised(builder, node)
        replace_value(node.outputs[0], result)


def _dequantised(builder: Builder, node: ir.Node) -> ir.Value:
    """(x - zero) * scale; the difference of integer codes is exact."""
    x, scale, zero = _operands(builder, node)
    codes = x.dtype
    kind = FLOAT if codes is not None and codes.is_floating_point() else INT32
    shape = dims(x)
    wide = _cast(builder, x, kind)
    if zero is not None:
        wide = builder.op("Sub", [wide, _cast(builder, zero, kind)], shape, kind)
    numbers = builder.op("Mul", [_float(builder, wide), _float(builder, scale)], shape, FLOAT)
    return _cast(builder, numbers, node.outputs[0].dtype or FLOAT)


def _quantised(builder: Builder, node: ir.Node) -> ir.Value:
    """saturate(round(x / scale) + zero), halves to even; to codes that are floats a cast rounds and saturates."""
    x, scale, zero = _operands(builder, node)
    kind, shape = node.outputs[0].dtype or ir.DataType.UINT8, dims(x)
    ratio = builder.op("Div", [_float(builder, x), _float(builder, scale)], shape, FLOAT)
    if kind.is_floating_point():
        saturate = attributes(node).get("saturate", 1)
        return builder.op("Cast", [ratio], shape, kind, {"to": kind, "saturate": saturate})
    codes = builder.op("Round", [ratio], shape, FLOAT)
    if zero is not None:
        codes = builder.op("Add", [codes, _float(builder, zero)], shape, FLOAT)
    low, high = (builder.constant(bound, f"npuc.code.{kind.name.lower()}") for bound in _bounds(kind))
    codes = builder.op("Clip", [codes, low, high], shape, FLOAT)
    return _cast(builder, codes, kind)


def _bounds(kind: ir.DataType) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest code of an integer type, as float32 scalars."""
    signed = kind.name.startswith("INT")
    low = -(1 << (kind.bitwidth - 1)) if signed else 0
    return np.array(low, np.float32), np.array((1 << (kind.bitwidth - signed)) - 1, np.float32)


def _operands(builder: Builder, node: ir.Node) -> tuple[ir.Value, ir.Value, ir.Value | None]:
    """x, and scale and zero point in a shape that broadcasts against it."""
    x, scale = node.inputs[0], node.inputs[1]
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    assert x is not None and scale is not None
    return x, _spread(builder, node, scale, dims(x)), None if zero is None else _spread(builder, node, zero, dims(x))


def _spread(builder: Builder, node: ir.Node, parameter: ir.Value, shape: Sequence[int]) -> ir.Value:
    """One number for all of x, one for each channel of `axis`, or one for each block of it."""
    attrs, own, dtype = attributes(node), dims(parameter), parameter.dtype or FLOAT
    block = attrs.get("block_size", 0)
    if math.prod(own) == 1:
        return _shaped(builder, parameter, ())
    axis = attrs.get("axis", 1) % len(shape)
    if not block:
        if own != (shape[axis],):
            raise ModelRefused([f"{label(node)}: its scale has the shape {list(own)}; axis {axis} has {shape[axis]}"])
        return _shaped(builder, parameter, [shape[axis] if a == axis else 1 for a in range(len(shape))])
    wanted = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    if own != wanted or shape[axis] % block:
        raise ModelRefused(
            [f"{label(node)}: its scale has the shape {list(own)}; blocks of {block} along axis {axis} of "
             f"{list(shape)} ask for {list(wanted)}, without a rest"]
        )  # fmt: skip
    if parameter.const_value is not None:
        return _held(builder, np.repeat(parameter.const_value.numpy(), block, axis), f"{parameter.name}~blocks")
    wide = builder.reshape(parameter, (*own[: axis + 1], 1, *own[axis + 1 :]))
    full = (*own[: axis + 1], block, *own[axis + 1 :])
    target = builder.constant(np.array(full, np.int64), "npuc.shape." + "x".join(map(str, full)))
    return builder.reshape(builder.op("Expand", [wide, target], full, dtype), shape)


def _held(builder: Builder, array: np.ndarray, name: str) -> ir.Value:
    """A constant that is computed at once, for folding is over; floats stay float32 whatever the precision."""
    value = builder.constant(array, name)
    if array.dtype.kind == "f":
        assert value.const_value is not None
        value.const_value.metadata_props[WIDE] = "1"
    return value


def _shaped(builder: Builder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The value in another shape."""
    if value.const_value is None:
        return builder.reshape(value, shape)
    return _held(builder, value.const_value.numpy().reshape(tuple(shape)), f"{value.name}~{len(shape)}d")


def _float(builder: Builder, value: ir.Value) -> ir.Value:
    return _cast(builder, value, FLOAT)


def _cast(builder: Builder, value: ir.Value, kind: ir.DataType) -> ir.Value:
    """The value in another type."""
    if value.dtype == kind:
        return value
    if value.const_value is not None:
        return _held(builder, value.const_value.numpy().astype(kind.numpy()), f"{value.name}~{kind.name.lower()}")
    return builder.op("Cast", [value], dims(value), kind, {"to": kind})
