"""Values of a run that are rounded to codes and back: elementwise arithmetic in float32, whatever the precision.

Each chain has one reader a step and ends in a value that half precision may round: the codes of up to 8 bits, which it
holds exactly, or the dequantised value. What lies between stays in float32 registers (npuc.lower.groups).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.nodes import WIDE, attributes, producer
from npuc.graph.quantised.weights import Weights, dims

_WIDEST_STORED = 8  # bits of codes that float16 holds exactly, whatever the zero point


def dequantize_value(place: Place, weights: Weights) -> None:
    """DequantizeLinear of a value of the run: (x - zero) * scale, together with the QuantizeLinear that made x."""
    x = place.required(0)
    if x.dtype is not None and x.dtype.is_floating_point() and x.dtype.bitwidth <= _WIDEST_STORED:
        place.refuse(f"codes of type {x.dtype.name.lower()} that are made at run time are not supported")
    scale, zero = _parameters(place, weights, place.node)
    maker = producer(x, "QuantizeLinear")
    codes = _cast(place, x) if maker is None else _codes(place, weights, maker)
    numbers = place.op("Mul", codes if zero is None else place.op("Sub", codes, zero), scale)
    kind = place.required(1).dtype
    place.replace(numbers if kind in (None, ir.DataType.FLOAT) else place.op("Cast", numbers, to=kind))


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
    """Arithmetic on codes that is no matrix product."""
    place.refuse("only matrix products of codes are supported; quantise with the format QDQ, or weights alone")


def count_scale_of_a_run(place: Place, weights: Weights) -> None:
    """DynamicQuantizeLinear stays as it is: its scale spans the rows of a run."""
    weights.spans += 1


def _codes(place: Place, weights: Weights, maker: ir.Node) -> ir.Value:
    """saturate(round(x / scale) + zero) as floats; halves round to even."""
    kind = _code_type(weights, maker)
    if kind.is_floating_point():
        place.refuse(f"codes of type {kind.name.lower()} are not supported for values of the run")
    scale, zero = _parameters(place, weights, maker)
    assert maker.inputs[0] is not None
    codes = place.op("Round", place.op("Div", _cast(place, maker.inputs[0]), scale))
    if zero is not None:
        codes = place.op("Add", codes, zero)
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


def _parameters(place: Place, weights: Weights, node: ir.Node) -> tuple[ir.Value, ir.Value | None]:
    """Scale and zero point, None for zero, as float32 that broadcasts against the node's first input.

    Constants have one number or one for each channel; those of a run, one number as DynamicQuantizeLinear gives it.
    """
    given = node.inputs[2] if len(node.inputs) > 2 else None
    scale = _parameter(place, weights, node, node.inputs[1])
    zeros = weights.known.tensor(given)
    if given is None or (zeros is not None and not zeros.numpy().any()):
        return scale, None
    return scale, _parameter(place, weights, node, given)


def _parameter(place: Place, weights: Weights, node: ir.Node, given: ir.Value | None) -> ir.Value:
    tensor = weights.known.tensor(given)
    if tensor is None:
        assert given is not None
        return _cast(place, given)
    array = tensor.numpy().astype(np.float32)
    if attributes(node).get("block_size", 0):
        place.refuse(f"a scale of shape {list(dims(tensor))} in blocks for a value of the run is not supported")
    if array.size == 1:
        return place.initializer(ir.Tensor(array.reshape(())), f"{place.node.name}~constant")
    return place.initializer(
        ir.Tensor(_by_channel(place, weights, node, array), metadata_props={WIDE: "1"}), f"{place.node.name}~channels"
    )


def _by_channel(place: Place, weights: Weights, node: ir.Node, array: np.ndarray) -> np.ndarray:
    """A number for each channel of `axis`, in the shape that broadcasts."""
    axis, x = attributes(node).get("axis", 1), node.inputs[0]
    assert x is not None
    if axis >= 0:
        rank = weights.rank(x)
        if rank is None:
            place.refuse(f"{array.size} scales along axis {axis} of {x.name!r}, whose rank is not known")
        axis -= rank
    return array.reshape(array.size, *[1] * (-axis - 1))


def _cast(place: Place, x: ir.Value) -> ir.Value:
    """x as float32, a value whose type is not set and so is that of `number_like`'s constants."""
    return place.op("Cast", x, to=ir.DataType.FLOAT)
