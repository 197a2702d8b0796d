"""Operators that read quantised weights, in terms of plain ones that read the dequantised weight."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.nodes import producer
from npuc.graph.quantised.activations import dequantize_value
from npuc.graph.quantised.affine import Affine, blocks
from npuc.graph.quantised.codes import PACKED_BITS, Codes, PackedCodes, PlainCodes, bytes_of, unpacked
from npuc.graph.quantised.forms import channels_of, of_blocks, of_linear, order_of
from npuc.graph.quantised.packed import PackedForm, in_order
from npuc.graph.quantised.weights import Stored, Weights, dims


def matmul_n_bits(place: Place, weights: Weights) -> None:
    """com.microsoft MatMulNBits: A [.., K], B uint8 [N, blocks, bytes of a block], scales [N, blocks], zero_points?,
    g_idx?, bias?: A times the transpose of the weight [N, K], plus the bias.

    Zero points are floats [N, blocks], or packed like B, each row from a fresh byte; without them they are 2^(bits-1).
    """
    attrs = place.attrs
    n, k, bits, block = attrs["N"], attrs["K"], attrs.get("bits", 4), attrs["block_size"]
    packed, scales = (weights.required(place, i, what) for i, what in ((1, "B"), (2, "scales")))
    zeros, groups = (weights.tensor(place, i, what) for i, what in ((3, "zero_points"), (4, "g_idx")))
    _check_bits(place, bits, block)
    if attrs.get("weight_prepacked", 0):
        place.refuse("weight_prepacked is the layout of one GPU; quantise the model with weight_prepacked=0")
    count = -(-k // block)
    _check_size(place, "B", packed, n * count * (block * bits // 8))
    _check_size(place, "scales", scales, n * count)
    if groups is not None:
        named = groups.numpy().reshape(-1)[:k]
        if named.size < k or not ((named >= 0) & (named < count)).all():
            place.refuse(f"g_idx must name one of the {count} blocks for each of the {k} input channels")
    whole = zeros is not None and zeros.dtype == ir.DataType.UINT8
    if zeros is not None:
        _check_size(place, "zero_points", zeros, n * (bytes_of(count, bits) if whole else count))

    order = None if groups is None else order_of(groups.numpy(), k, block)
    moved = order if isinstance(order, np.ndarray) else None

    def affine() -> Affine:
        rows = packed.numpy().reshape(n, -1)
        zero: np.ndarray | int = 1 << (bits - 1)
        if zeros is not None:
            zero = zeros.numpy().reshape(n, -1)
            zero = unpacked(zero, bits)[:, :count, None] if whole else zero[:, :, None]
        group = blocks(k, block) if groups is None else groups.numpy().reshape(-1)[:k].astype(np.int64)
        if moved is not None:
            rows, group = in_order(rows, bits, moved), group[moved]
        return Affine(PackedCodes(rows, bits, k), scales.numpy().reshape(n, count, 1), zero, group)

    kind = "" if zeros is None else ", zero points" if whole else ", zero points as floats"
    scheme = f"{bits} bits in blocks of {block}{kind}{', permuted groups' if groups is not None else ''} (MatMulNBits)"
    x = place.required(0)
    dtype = x.dtype if x.dtype is not None and x.dtype.is_floating_point() else scales.dtype
    stored = Stored(affine, (n, k), dtype, turned=True)
    form = order if isinstance(order, str) else of_blocks((n, k), bits, block, packed, scales, zeros, moved)
    if moved is not None:
        x = place.op("Gather", x, place.ints(*moved.tolist()), axis=-1)
    weight = weights.weight(place, place.required(1), (packed, scales, zeros, groups), scheme, stored, form, True)
    if attrs.get("accuracy_level", 0) > 1:
        weights.levels[attrs["accuracy_level"]] += 1
    product, bias = place.op("MatMul", x, weight), place.input(5)
    place.replace(product if bias is None else place.op("Add", product, bias))


def gather_block_quantized(place: Place, weights: Weights) -> None:
    """com.microsoft GatherBlockQuantized: data, indices, scales, zero_points?: rows of the dequantised data.

    uint8 data hold codes of `bits` packed along the last axis, around 2^(bits-1); other types one code an element.
    """
    attrs = place.attrs
    data, scales = (weights.required(place, i, what) for i, what in ((0, "data"), (2, "scales")))
    zeros = weights.tensor(place, 3, "zero_points")
    bits = attrs.get("bits", 4) if data.dtype == ir.DataType.UINT8 else data.dtype.bitwidth
    per_byte = 8 // bits if data.dtype == ir.DataType.UINT8 and bits in PACKED_BITS else 1
    shape = (*dims(data)[:-1], dims(data)[-1] * per_byte)
    axis = attrs.get("quantize_axis", 1) % len(shape)
    block = attrs.get("block_size", 128) or shape[axis]
    if data.dtype == ir.DataType.UINT8:
        _check_bits(place, bits, block)
    if per_byte > 1 and axis != len(shape) - 1:
        place.refuse(f"quantize_axis is {axis}; codes packed along the last axis must be quantised along it")
    default = 1 << (bits - 1) if data.dtype == ir.DataType.UINT8 else 0
    wanted = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    if len(dims(scales)) != len(wanted) or any(d not in (1, w) for d, w in zip(dims(scales), wanted, strict=True)):
        place.refuse(f"scales have the shape {list(dims(scales))}; {list(wanted)} is what data and block_size ask for")

    def affine() -> Affine:
        three = _three(shape, axis)
        codes: Codes = (
            PlainCodes(data.numpy().reshape(three))
            if per_byte == 1
            else PackedCodes(data.numpy().reshape(three[0], -1), bits, three[1])
        )
        zero: np.ndarray | int = default
        if zeros is not None:
            zero = unpacked(zeros.numpy(), bits)[..., : wanted[-1]] if per_byte > 1 else zeros.numpy()
            zero = np.broadcast_to(zero, wanted).reshape(_three(wanted, axis))
        spread = np.broadcast_to(scales.numpy(), wanted).reshape(_three(wanted, axis))
        return Affine(codes, spread, zero, blocks(shape[axis], block))

    name = data.dtype.name.lower() if per_byte == 1 else f"{bits} bits"
    scheme = f"{name} in blocks of {block}{'' if zeros is None else ', zero points'} (GatherBlockQuantized)"
    stored = Stored(affine, shape, scales.dtype)
    form = _table_form(shape, axis, bits, block, data, scales, zeros, attrs.get("gather_axis", 0))
    table = weights.weight(place, place.required(0), (data, scales, zeros), scheme, stored, form, False)
    place.replace(place.op("Gather", table, place.required(1), axis=attrs.get("gather_axis", 0)))


def dequantize_linear(place: Place, weights: Weights) -> None:
    """DequantizeLinear of a constant: one scale for a tensor, for each channel of `axis`, or for each block of it.

    That of rows gathered from a constant with one scale is a Gather of the dequantised table.
    """
    scales, zeros = weights.known.tensor(place.input(1)), weights.known.tensor(place.input(2))
    if scales is None or (zeros is None and place.input(2) is not None):
        dequantize_value(place, weights)
        return
    source = place.required(0)
    rows = producer(source, "Gather") if weights.known.tensor(source) is None and math.prod(dims(scales)) == 1 else None
    table = source if rows is None else rows.inputs[0]
    data = weights.known.tensor(table)
    if data is None or table is None:
        dequantize_value(place, weights)
        return
    stored, kind = _linear(place, data, scales, zeros)
    scheme = f"{data.dtype.name.lower()} {kind}{'' if zeros is None else ', zero points'} (DequantizeLinear)"
    operands = (data, scales, zeros)
    channels = channels_of(place) if rows is None else _rows_first(rows)
    if isinstance(channels, str):
        numbers = weights.constant(place, table, operands, scheme, stored)
    else:
        axis, block = place.attrs.get("axis", 1), place.attrs.get("block_size", 0)
        form = of_linear(data, scales, zeros, axis, block, channels)
        numbers = weights.weight(place, table, operands, scheme, stored, form, turned=channels == 1)
        for transpose in _transposes(place) if not isinstance(form, str) else ():
            other = replace(stored, turned=not stored.turned)
            way = weights.weight(place, table, operands, scheme, other, form, turned=channels == 0)
            transpose.outputs[0].replace_all_uses_with(way)
    if rows is not None:
        numbers = place.op("Gather", numbers, rows.inputs[1], axis=rows.attributes.get_int("axis", 0))
    place.replace(numbers)


def _rows_first(gather: ir.Node) -> int | str:
    """The axis of channels of a table whose codes are gathered, or why it has none."""
    return 0 if gather.attributes.get_int("axis", 0) == 0 else "it is no table of rows"


def _transposes(place: Place) -> list[ir.Node]:
    """Readers of the weight that turn it for a product."""
    readers = {use.node: None for use in place.node.outputs[0].uses()}
    return [node for node in readers if node.op_type == "Transpose" and node.domain == ""]


def _table_form(
    shape: tuple[int, ...], axis: int, bits: int, block: int, data: ir.TensorProtocol, scales: ir.TensorProtocol,
    zeros: ir.TensorProtocol | None, gather_axis: int,
) -> PackedForm | str:  # fmt: skip
    """How a table can stay codes: rows of its first axis, quantised along the second."""
    if len(shape) != 2 or axis != 1 or gather_axis % 2:
        return "only rows of a table that is quantised along its last axis can stay codes"
    if dims(scales) != (shape[0], -(-shape[1] // block)):
        return "its rows share scales"
    if data.dtype == ir.DataType.UINT8:
        return of_blocks((shape[0], shape[1]), bits, block, data, scales, zeros, None)
    return of_linear(data, scales, zeros, 1, block, 0)


def _linear(
    place: Place, data: ir.TensorProtocol, scales: ir.TensorProtocol, zeros: ir.TensorProtocol | None
) -> tuple[Stored, str]:
    """The weight of a DequantizeLinear, and how its scales are spread, in words."""
    axis, block = place.attrs.get("axis", 1), place.attrs.get("block_size", 0)
    shape = dims(data)
    count = math.prod(dims(scales))
    if block:
        axis %= len(shape)
        wanted = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
        if dims(scales) != wanted:
            place.refuse(
                f"its scale has the shape {list(dims(scales))}; blocks along axis {axis} ask for {list(wanted)}"
            )
        three, spread, kind = _three(shape, axis), _three(wanted, axis), f"in blocks of {block}"
    elif len(dims(scales)) == 1 and count != 1:
        axis %= max(len(shape), 1)
        if count != shape[axis]:
            place.refuse(f"its scale has {count} numbers; axis {axis} of its weight {list(shape)} has {shape[axis]}")
        three, spread, kind = _three(shape, axis), (1, count, 1), "with a scale for each channel"
    elif count == 1:
        three, spread, kind = (1, math.prod(shape), 1), (1, 1, 1), "with one scale"
    else:
        place.refuse(f"its scale has the shape {list(dims(scales))}, which without block_size must be a vector")
    if zeros is not None:
        _check_size(place, "x_zero_point", zeros, count)

    def affine() -> Affine:
        group = blocks(three[1], block) if block else np.arange(three[1])
        zero = 0 if zeros is None else zeros.numpy().reshape(spread)
        return Affine(PlainCodes(data.numpy().reshape(three)), scales.numpy().reshape(spread), zero, group)

    return Stored(affine, shape, scales.dtype), kind


def _three(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _check_bits(place: Place, bits: int, block: int) -> None:
    if bits not in PACKED_BITS:
        place.refuse(f"codes of {bits} bits are not supported; {', '.join(map(str, PACKED_BITS))} are")
    if block < 1 or block * bits % 8:
        place.refuse(f"block_size is {block}; a block of {bits}-bit codes must fill whole bytes")


def _check_size(place: Place, what: str, tensor: ir.TensorProtocol, wanted: int) -> None:
    size = math.prod(dims(tensor))
    if size != wanted:
        place.refuse(f"{what} has the shape {list(dims(tensor))}, {size} elements; the attributes ask for {wanted}")
