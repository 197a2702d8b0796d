"""What is known of the values of a model before its dimensions have numbers: element types, shapes, small contents."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from npuc.frontend.text import Dim

_DATA_ELEMENTS = 1024  # constants up to this size can be shapes, axes or scales, which inference looks into
_DATA_TYPES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT})


class Types:
    """Facts by value name (names are unique in a model and its subgraphs). Equal facts are one object."""

    def __init__(self) -> None:
        self.protos: dict[str, onnx.TypeProto] = {}
        self.data: dict[str, onnx.TensorProto] = {}
        self._kinds: dict[bytes, onnx.TypeProto] = {}
        self._contents: dict[bytes, onnx.TensorProto] = {}

    def dtype(self, value: ir.Value) -> int | None:
        """TensorProto element type, or None where not known."""
        proto = self.protos.get(value.name or "")
        return (proto.tensor_type.elem_type or None) if proto is not None and proto.HasField("tensor_type") else None

    def dims(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """Extents, each a number, a name or None; None where not even the rank is known."""
        proto = self.protos.get(value.name or "")
        if proto is None or not proto.tensor_type.HasField("shape"):
            return None
        return tuple(_dim(d) for d in proto.tensor_type.shape.dim)

    def signature(self, value: ir.Value | None) -> tuple[int, int] | None:
        """Equal for two values of which the same is known."""
        if value is None:
            return None
        name = value.name or ""
        return id(self.protos.get(name)), id(self.data.get(name))

    def set_kind(self, name: str, dtype: int, dims: list[Dim] | None) -> None:
        self.set_proto(name, onnx.helper.make_tensor_type_proto(dtype, dims))

    def set_proto(self, name: str, proto: onnx.TypeProto) -> None:
        self.protos[name] = self._kinds.setdefault(proto.SerializeToString(deterministic=True), proto)

    def set_content(self, name: str, tensor: ir.TensorProtocol) -> None:
        """Keeps the content of a constant that may be a shape, an axis or a scale. External data stay unread."""
        if isinstance(tensor, ir.ExternalTensor) or tensor.dtype not in _DATA_TYPES:
            return
        if math.prod(tensor.shape.numpy()) <= _DATA_ELEMENTS:
            proto = ir.serde.serialize_tensor(tensor)
            proto.name = ""
            self.data[name] = self._contents.setdefault(proto.SerializeToString(deterministic=True), proto)

    def declare(self, value: ir.Value) -> None:
        """Takes over what the file says of a value."""
        tensor = value.const_value
        dtype, shape = (tensor.dtype, tensor.shape) if tensor is not None else (value.dtype, value.shape)
        if value.name is None or dtype is None:
            return
        self.set_kind(value.name, int(dtype), None if shape is None else declared_dims(shape))
        if tensor is not None:
            self.set_content(value.name, tensor)


def declared_dims(shape: ir.ShapeProtocol) -> list[Dim]:
    """The extents of an onnx-ir shape."""
    return [d if isinstance(d, int) else d.value for d in shape]


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
