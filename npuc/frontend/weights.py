"""Weights against what they claim: shapes and bytes are compared before anything of the claimed size is allocated."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from npuc.frontend.absent import absent
from npuc.frontend.errors import Problems

MAX_TENSOR_BYTES = 1 << 36  # 64 GiB: no decoder has a weight or value near it; a hostile file may ask for more


def check_weights(model: ir.Model, problems: Problems) -> None:
    """Adds a problem for each initializer or constant whose data are not as large as its shape says."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                _check_tensor(value.const_value, f"weight {value.name}", problems)
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR:
                    _check_tensor(attribute.value, f"node {node.name} ({node.op_type})", problems)


def drop_empty(model: ir.Model, problems: Problems) -> set[str]:
    """Takes initializers that hold no number, though their shape has some, for weights without data; their names."""
    found = set()
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.TensorProtoTensor) and _held(tensor.raw) == 0 and tensor.size:
                found.add(value.name or "")
                value.const_value = absent(tensor, problems)
    return found


def _check_tensor(tensor: ir.TensorProtocol, where: str, problems: Problems) -> None:
    shape = tensor.shape.numpy()
    if any(d < 0 for d in shape):
        problems.add(f"shape {list(shape)} has a negative extent", where)
        return
    if tensor.dtype == ir.DataType.UNDEFINED:
        problems.add("has no element type", where)
    elif isinstance(tensor, ir.TensorProtoTensor):
        held, needed = _held(tensor.raw), math.prod(shape)
        if held is not None and held != _storage(tensor, needed):
            problems.add(
                f"shape {list(shape)} of {tensor.dtype.name.lower()} does not fit its {held} {_unit(tensor.raw)}", where
            )
    elif tensor.dtype != ir.DataType.STRING and tensor.nbytes > MAX_TENSOR_BYTES:
        problems.add(f"shape {list(shape)} is larger than any weight can be", where)


def _unit(proto: onnx.TensorProto) -> str:
    return "bytes" if proto.HasField("raw_data") else "numbers"


def _held(proto: onnx.TensorProto) -> int | None:
    """Bytes of raw data, or count of typed numbers."""
    if proto.HasField("raw_data"):
        return len(proto.raw_data)
    return sum(
        len(f)
        for f in (
            proto.float_data,
            proto.int32_data,
            proto.int64_data,
            proto.double_data,
            proto.uint64_data,
            proto.string_data,
        )
    )


_PER_NUMBER = {ir.DataType.COMPLEX64: 2.0, ir.DataType.COMPLEX128: 2.0}


def _storage(tensor: ir.TensorProtoTensor, elements: int) -> int:
    """What _held should give: sub-byte types share bytes, in raw data and in typed fields alike (onnx.proto)."""
    if tensor.dtype == ir.DataType.STRING:
        return elements
    bits = tensor.dtype.bitwidth
    if tensor.raw.HasField("raw_data"):
        return math.ceil(elements * bits / 8)
    if bits < 8:
        return math.ceil(elements * bits / 8)
    return math.ceil(elements * _PER_NUMBER.get(tensor.dtype, 1.0))
