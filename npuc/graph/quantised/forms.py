"""Which stored weights can stay codes, and how their tensors read as rows of unsigned codes; else why not."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.nodes import attributes
from npuc.graph.quantised.codes import bytes_of, unpacked
from npuc.graph.quantised.packed import PackedForm, in_order, unsigned_rows
from npuc.graph.quantised.weights import dims

Tensor = ir.TensorProtocol
_CODES = {
    ir.DataType.INT4: (4, True),
    ir.DataType.UINT4: (4, False),
    ir.DataType.INT8: (8, True),
    ir.DataType.UINT8: (8, False),
}
"""Types of one code an element: bits, and whether they are signed."""
_SCALES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def of_blocks(
    shape: tuple[int, int], bits: int, block: int, packed: Tensor, scales: Tensor, zeros: Tensor | None,
    order: np.ndarray | None,
) -> PackedForm | str:  # fmt: skip
    """Rows of packed codes [n, k] in blocks, as MatMulNBits and GatherBlockQuantized have them.

    zeros: uint8 packed as the codes are, floats one each, or None for 2^(bits - 1). order: of the channels, if theirs
    is another one.
    """
    n, k = shape
    if scales.dtype not in _SCALES:
        return f"its scales are {scales.dtype.name.lower()}"
    reason = _ends(k, bits)
    if reason:
        return reason
    groups, row_bytes = -(-k // block), math.prod(dims(packed)) // n
    whole = zeros is not None and zeros.dtype == ir.DataType.UINT8

    def codes() -> np.ndarray:
        rows = packed.numpy().reshape(n, row_bytes)
        return rows if order is None else in_order(rows, bits, order)

    def points() -> np.ndarray:
        if zeros is None:
            return np.full((1, groups), 1 << (bits - 1), np.float32)
        held = zeros.numpy().reshape(n, -1)
        return (unpacked(held, bits)[:, :groups] if whole else held).astype(np.float32)

    code_bytes = row_bytes if order is None else bytes_of(order.size, bits)
    rows_of_zeros = 1 if zeros is None else n
    return PackedForm(bits, min(block, k), n, k, code_bytes, rows_of_zeros, codes,
                      lambda: scales.numpy().reshape(n, groups), points, scales.dtype)  # fmt: skip


def order_of(groups: np.ndarray, k: int, block: int) -> np.ndarray | str | None:
    """An order of the channels in which their groups are blocks: None where they are, or the reason why none is."""
    named = groups.reshape(-1)[:k]
    wanted = np.arange(k) // block
    if np.array_equal(named, wanted):
        return None
    order = np.argsort(named, kind="stable")
    return order if np.array_equal(named[order], wanted) else "its groups differ in size"


def of_linear(
    data: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, block: int, channels: int
) -> PackedForm | str:
    """Codes of DequantizeLinear [A, B], one an element, whose output channels are the axis `channels`.

    axis: of its scales; block: along it, 0 for a scale for each index of the axis, or one for all.
    """
    shape = dims(data)
    if len(shape) != 2 or data.dtype not in _CODES:
        return (
            f"{data.dtype.name.lower()} of rank {len(shape)}" if len(shape) != 2 else f"{data.dtype.name.lower()} codes"
        )
    if scales.dtype not in _SCALES:
        return f"its scales are {scales.dtype.name.lower()}"
    bits, signed = _CODES[data.dtype]
    n, k = shape[channels], shape[1 - channels]
    count = math.prod(dims(scales))
    if (block and axis % 2 == channels) or (not block and count > 1 and axis % 2 != channels):
        return "its scales differ along the channels that a product adds up"
    reason = _ends(k, bits)
    if reason:
        return reason
    size = block or k
    groups = -(-k // size)
    offset = (1 << (bits - 1)) if signed else 0

    def spread(parameter: np.ndarray) -> np.ndarray:
        if block:
            return parameter if channels == 0 else parameter.T
        return np.broadcast_to(parameter.reshape(-1, 1), (n, 1))

    def points() -> np.ndarray:
        if zeros is None:
            return np.full((1, groups), offset, np.float32)
        return spread(zeros.numpy().astype(np.int32)).astype(np.float32) + offset

    def codes() -> np.ndarray:
        held = data.numpy()
        return unsigned_rows(held if channels == 0 else held.T, bits, signed)

    return PackedForm(bits, size, n, k, bytes_of(k, bits), 1 if zeros is None else n, codes,
                      lambda: spread(scales.numpy()), points, scales.dtype)  # fmt: skip


def channels_of(place: Place) -> int | str:
    """The axis of output channels that the readers of a weight's numbers agree on, or the reason why there is none.

    Products and lookups are such readers; a Transpose stands for its own readers with the axes changed.
    """
    found = {_channels(use.node, use.idx) for use in place.node.outputs[0].uses()}
    if len(found) != 1 or place.node.outputs[0].is_graph_output():
        return "it is read by more than products or lookups"
    (axis,) = found
    return "it is read by more than products or lookups" if axis < 0 else axis


def _channels(node: ir.Node, operand: int) -> int:
    """0 or 1, -1 for any other reader."""
    attrs = attributes(node)
    if node.domain != "":
        return -1
    if node.op_type == "MatMul" and operand == 1:
        return 1
    if node.op_type == "Gemm" and operand == 1:
        return 0 if attrs.get("transB", 0) else 1
    if node.op_type == "Gather" and operand == 0 and attrs.get("axis", 0) == 0:
        return 0
    if node.op_type == "Transpose" and list(attrs.get("perm", (1, 0))) == [1, 0]:
        output = node.outputs[0]
        behind = {_channels(use.node, use.idx) for use in output.uses()}
        if behind == {1} and not output.is_graph_output():
            return 0
    return -1


def _ends(k: int, bits: int) -> str:
    """Why k codes cannot fill a row of bytes, "" where they can; lowering may widen 2 bits to 4."""
    return f"{k} codes of {bits} bits end within a byte" if k * max(bits, 4) % 8 else ""
