"""A look at the outer fields of a model file before it is parsed.

The parser of the protobuf library says no more than "corrupt". The outer fields (protobuf's encoding: a tag of field
number and wire type, then a number, or a length and as many bytes) tell a file that ends too early from one that
never was a model.
"""

from __future__ import annotations

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_IR_VERSION, _GRAPH = 1, 7  # field numbers of onnx.ModelProto; all writers put ir_version first
MAX_FILE_BYTES = (1 << 31) - 1  # protobuf's own limit for a message


def fault(data: memoryview) -> str | None:
    """What is wrong with the outer fields of a ModelProto, or None."""
    if len(data) == 0:
        return "the file is empty"
    seen: set[int] = set()
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if tag < 8 or not (wire in _FIXED_BYTES or wire in (_VARINT, _LENGTH)):
            return _verdict(seen, "damaged")
        size = _FIXED_BYTES.get(wire, 0)
        if not size:
            size, at = _varint(data, at)
            if size < 0:
                return _verdict(seen, "cut short")
        missing = at + size - len(data) if wire != _VARINT else 0
        if missing > 0:
            return _verdict(seen, f"cut short: {missing} bytes are missing at its end")
        at += size if wire != _VARINT else 0
        seen.add(number)
    return None if _GRAPH in seen else "not an ONNX model: it holds no graph"


def _verdict(seen: set[int], what: str) -> str:
    return what if _IR_VERSION in seen else "not an ONNX model"


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at `at` and the place after it; the number is -1 where the data end or ten bytes do not end it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return -1, at
        byte = data[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value, at
    return -1, at
