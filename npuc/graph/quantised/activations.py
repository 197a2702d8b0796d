"""Values of a run that are rounded to codes and back: elementwise arithmetic in float32, whatever the precision.

Each chain has one reader a step and ends in a value that half precision may round: the codes of up to 8 bits, which it
holds exactly, or the dequantised value. What lies between stays in float32 registers (npuc.lower.groups).
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.nodes import attributes, producer
from npuc.graph.quantised.weights import Weights, dims

_WIDEST_STORED = 8  # bits of codes that float16 holds exactly, whatever the zero point


def dequantize_value(place: Place, weights: Weights) -> None:
    """DequantizeLinear of a value of the run: (x - zero) * scale, together with the QuantizeLinear that made x."""
    x = place.required(0)
    if x.dtype is not None and x.dtype.is_floating_point() and x.dtype.bitwidth <= _WIDEST_STORED:
        place.refuse(f"codes of type {x.dtype.name.lower()} that are made at run time are not supported")
    scale, zero, kind = _parameters(place, weights, place.node)
    maker = producer(x, "QuantizeLinear")
    codes = _cast(place, x) if maker is None else _codes(place, weights, maker)
    if zero:
        codes = place.op("Sub", codes, place.number_like(zero, codes))
    numbers = place.op("Mul", codes, place.number_like(scale, codes))
    place.replace(numbers if kind == ir.DataType.FLOAT else place.op("Cast", numbers, to=kind))


def quantize_value(place: Place, weights: Weights) -> None:
    """QuantizeLinear whose codes are moved before they are dequantised: the codes as floats.

    One on a constant is folded, one that only DequantizeLinear reads is written out there.
    """
    result = place.node.outputs[0]
    if weights.known.tensor(place.input(0)) is not None:
        return
    if result.is_graph_output():
        place.refuse("its codes leave the graph; only values that are dequantised again are supported")
    if all(use.node.op_type == "DequantizeLinear" and use.idx == 0 for use in result.uses()):
        return
    kind = _code_type(weights, place.node)
    if kind.bitwidth > _WIDEST_STORED:
        place.refuse(
            f"its codes of {kind.bitwidth} bits are read by more than DequantizeLinear; float16 cannot hold them"
        )
    codes = _codes(place, weights, place.node)
    codes.type = ir.TensorType(ir.DataType.FLOAT)
    place.replace(codes)


def refuse_integers(place: Place, weights: Weights) -> None:
    """Arithmetic on codes themselves."""
    place.refuse("products of quantised activations are not supported; quantise with the format QDQ, or weights alone")


def refuse_scale_of_a_run(place: Place, weights: Weights) -> None:
    """DynamicQuantizeLinear and what contains it."""
    place.refuse(
        "its scale spans all rows of a run, so that an answer would change with how a prompt is cut into runs; "
        "quantise the weights alone, or activations with constant scales (format QDQ)"
    )


def _codes(place: Place, weights: Weights, maker: ir.Node) -> ir.Value:
    """saturate(round(x / scale) + zero) as floats; halves round to even."""
    scale, zero, _ = _parameters(place, weights, maker)
    kind = _code_type(weights, maker)
    if kind.is_floating_point():
        place.refuse(f"codes of type {kind.name.lower()} are not supported for values of the run")
    assert maker.inputs[0] is not None
    wide = _cast(place, maker.inputs[0])
    codes = place.op("Round", place.op("Div", wide, place.number_like(scale, wide)))
    if zero:
        codes = place.op("Add", codes, place.number_like(zero, codes))
    low, high = _range(kind)
    weights.rounded += 1
    return place.op("Clip", codes, place.number_like(low, codes), place.number_like(high, codes))


def _range(kind: ir.DataType) -> tuple[int, int]:
    """The lowest and the highest code of an integer type."""
    signed = kind.name.startswith("INT")
    return (-(1 << (kind.bitwidth - 1)) if signed else 0), (1 << (kind.bitwidth - signed)) - 1


def _code_type(weights: Weights, maker: ir.Node) -> ir.DataType:
    """That of the zero point, of the attribute, or uint8."""
    zeros = weights.known.tensor(maker.inputs[2]) if len(maker.inputs) > 2 else None
    return (
        zeros.dtype if zeros is not None else ir.DataType(attributes(maker).get("output_dtype", 0) or ir.DataType.UINT8)
    )


def _parameters(place: Place, weights: Weights, node: ir.Node) -> tuple[float, int, ir.DataType]:
    """Scale, zero point and the type of the scale."""
    scales = weights.known.tensor(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    zeros = weights.known.tensor(given)
    if scales is None or (given is not None and zeros is None):
        place.refuse("a scale or zero point that is no constant is not supported")
    if math.prod(dims(scales)) != 1 or (zeros is not None and math.prod(dims(zeros)) != 1):
        place.refuse(
            f"a scale of shape {list(dims(scales))} for a value of the run; only one for all of it is supported"
        )
    zero = 0 if zeros is None else int(zeros.numpy().reshape(-1)[0])
    return float(scales.numpy().reshape(-1)[0].astype(np.float32)), zero, scales.dtype


def _cast(place: Place, x: ir.Value) -> ir.Value:
    """x as float32, a value whose type is not set and so is that of `number_like`'s constants."""
    return place.op("Cast", x, to=ir.DataType.FLOAT)
