"""Products of codes: whole numbers on the device, with scales that the run chooses or that are constant."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.nodes import DOMAIN, is_op, producer
from npuc.graph.quantised.affine import Affine
from npuc.graph.quantised.codes import PlainCodes
from npuc.graph.quantised.weights import Stored, Weights, dims

_HANDS_ON = ("Add", "Sub", "Mul", "Div", "Tanh", "Cast", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Transpose")
"""Operators that may stand between the last product of a model and its logits."""


def dynamic_matmul(place: Place, weights: Weights) -> None:
    """com.microsoft DynamicQuantizeMatMul: A float, B codes [K, N], b_scale, b_zero_point?, bias?."""
    codes, scale, zero = place.ops("DynamicQuantizeLinear", place.required(0), outputs=3)
    _scaled(place, (codes, place.required(1), zero, place.input(3)), scale, place.required(2), place.input(4))


def integer_to_float(place: Place, weights: Weights) -> None:
    """com.microsoft MatMulIntegerToFloat: A codes, B codes, a_scale, b_scale, a_zero_point?, b_zero_point?, bias?."""
    operands = (place.required(0), place.required(1), place.input(4), place.input(5))
    _scaled(place, operands, place.required(2), place.required(3), place.input(6))


def _scaled(
    place: Place, operands: tuple[ir.Value | None, ...], a_scale: ir.Value, b_scale: ir.Value, bias: ir.Value | None
) -> None:
    """The product in the operators of quantize_dynamic: whole numbers, times both scales, plus the bias."""
    product = place.op("Cast", place.op("MatMulInteger", *operands), to=ir.DataType.FLOAT)
    numbers = place.op("Mul", product, place.op("Mul", a_scale, b_scale))
    place.replace(numbers if bias is None else place.op("Add", numbers, bias))


def qlinear_matmul(place: Place, weights: Weights) -> None:
    """QLinearMatMul: codes, scale and zero point of A, of B and of the result; the product of the numbers, rounded."""
    a, b = (place.op("DequantizeLinear", *(place.required(3 * i + j) for j in range(3))) for i in (0, 1))
    place.replace(place.op("QuantizeLinear", place.op("MatMul", a, b), place.required(6), place.required(7)))


def integer_product(place: Place, weights: Weights) -> None:
    """MatMulInteger: with a constant B and the scales that follow it npuc.IntegerLinear, else as it is.

    The last product before an output of the graph becomes one of the numbers that the codes stand for: a language model
    is cut in front of it, where one value must say everything.
    """
    weight, weight_zero = weights.known.tensor(place.input(1)), weights.known.tensor(place.input(3))
    rest = _scales_after(place.node)
    if weight is None or len(dims(weight)) != 2 or (place.input(3) is not None and weight_zero is None) or rest is None:
        return
    last, run_scale, weight_scale = rest
    scales = weights.known.tensor(weight_scale)
    if scales is None or dims(scales) not in ((), (1,), dims(weight)[1:]):
        return
    if place.input(2) is not None and _ends_the_graph(last.outputs[0]):
        numbers = _numbers(weight, scales, weight_zero)
        held = weights.constant(
            place, place.required(1), (weight, scales, weight_zero), "int8 (MatMulInteger, the last)", numbers
        )
        x = _dequantised(place, run_scale)
        place.take_over(last.outputs[0], place.op("MatMul", x, held))
        return
    zero = place.input(2) or place.initializer(ir.Tensor(np.zeros((), np.uint8)), "zero")
    w_zero = place.initializer(_zeros(weight, weight_zero), "zeros")
    w_scale = place.initializer(ir.Tensor(np.broadcast_to(_vector(scales), dims(weight)[1:]).copy()), "scales")
    inputs = (place.required(0), run_scale, zero, place.required(1), w_scale, w_zero)
    weights.products += 1
    place.take_over(last.outputs[0], place.op("IntegerLinear", *inputs, domain=DOMAIN))


def _scales_after(node: ir.Node) -> tuple[ir.Node, ir.Value, ir.Value] | None:
    """Of MatMulInteger > Cast > Mul(scale of A * scale of B): the last node, the scale of A, that of B; else None.

    The scale of A comes from the DynamicQuantizeLinear that makes A.
    """
    cast = _only_reader(node.outputs[0])
    last = _only_reader(cast.outputs[0]) if is_op(cast, "Cast") and cast is not None else None
    if cast is None or last is None or not is_op(last, "Mul"):
        return None
    scale = last.inputs[1] if last.inputs[0] is cast.outputs[0] else last.inputs[0]
    both = producer(scale, "Mul")
    maker = producer(node.inputs[0], "DynamicQuantizeLinear")
    if both is None or maker is None or maker.outputs[1] not in both.inputs:
        return None
    other = both.inputs[1] if both.inputs[0] is maker.outputs[1] else both.inputs[0]
    return None if other is None else (last, maker.outputs[1], other)


def _only_reader(value: ir.Value) -> ir.Node | None:
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def _ends_the_graph(value: ir.Value) -> bool:
    """Whether a value reaches an output of the graph through nothing that mixes its channels."""
    while not value.is_graph_output():
        reader = _only_reader(value)
        if reader is None or not is_op(reader, *_HANDS_ON):
            return False
        value = reader.outputs[0]
    return True


def _dequantised(place: Place, scale: ir.Value) -> ir.Value:
    """(codes - zero point) * scale of the first operand, in float32."""
    codes, zero = (place.op("Cast", place.required(i), to=ir.DataType.FLOAT) for i in (0, 2))
    return place.op("Mul", place.op("Sub", codes, zero), scale)


def _vector(tensor: ir.TensorProtocol) -> np.ndarray:
    return tensor.numpy().reshape(-1)


def _zeros(weight: ir.TensorProtocol, zeros: ir.TensorProtocol | None) -> ir.TensorProtocol:
    """A zero point for each output channel, of the weight's type."""
    channels = dims(weight)[1:]
    array = np.zeros(1, weight.dtype.numpy()) if zeros is None else _vector(zeros)
    return ir.Tensor(np.broadcast_to(array, channels).copy())


def _numbers(weight: ir.TensorProtocol, scales: ir.TensorProtocol, zeros: ir.TensorProtocol | None) -> Stored:
    """The numbers of a weight [K, N] with a scale for each output channel or for all."""
    k, n = dims(weight)

    def affine() -> Affine:
        spread = np.broadcast_to(_vector(scales), (n,)).reshape(1, 1, n)
        zero = 0 if zeros is None else np.broadcast_to(_vector(zeros), (n,)).reshape(1, 1, n)
        return Affine(PlainCodes(weight.numpy().reshape(1, k, n)), spread, zero, np.zeros(k, np.int64))

    return Stored(affine, (k, n), ir.DataType.FLOAT)
