"""Weights that stay codes: npuc's operators that stand for them in a graph, and their operands.

A weight is n rows of k unsigned codes of 2, 4 or 8 bits in bytes, the first code of a byte in its low bits, each row
from a fresh byte; number i of a row is (code i - zero) * scale, both of group i / block. Signed codes are shifted to
unsigned ones, and their zero points with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.nodes import DOMAIN, attributes
from npurt.numerics import pack_codes, unpack_codes

ROWS, WEIGHT = "DequantizedRows", "DequantizedWeight"
"""The numbers [n, k] of a packed weight, and their transpose [k, n], which MatMul reads."""


@dataclass(frozen=True)
class PackedForm:
    """bits, block, n, k: see above.

    codes: uint8 [n, code_bytes]; scales: [n, groups]; zeros: float32 [zero_rows, groups], with 1 row where all share
    them. All three read the file's tensors when called.
    """

    bits: int
    block: int
    n: int
    k: int
    code_bytes: int
    zero_rows: int
    codes: Callable[[], np.ndarray]
    scales: Callable[[], np.ndarray]
    zeros: Callable[[], np.ndarray]
    scale_type: ir.DataType

    @property
    def groups(self) -> int:
        return -(-self.k // self.block)


def operands(place: Place, stem: str, form: PackedForm) -> list[ir.Value]:
    """Initializers of codes, scales and zero points that keep no numbers."""
    wanted: Sequence[tuple[str, Callable[[], np.ndarray], ir.DataType, tuple[int, int]]] = (
        ("codes", form.codes, ir.DataType.UINT8, (form.n, form.code_bytes)),
        ("scales", form.scales, form.scale_type, (form.n, form.groups)),
        ("zeros", form.zeros, ir.DataType.FLOAT, (form.zero_rows, form.groups)),
    )
    return [place.initializer(_lazy(read, kind, shape), f"{stem}~{name}") for name, read, kind, shape in wanted]


def numbers(
    place: Place, held: Sequence[ir.Value], form: PackedForm, turned: bool, dense: ir.TensorProtocol
) -> ir.Value:
    """The value of a packed weight. dense: the same numbers as a tensor, for readers that want a constant."""
    op_type, shape = (WEIGHT, (form.k, form.n)) if turned else (ROWS, (form.n, form.k))
    attrs = {"bits": form.bits, "block": form.block, "k": form.k, "to": dense.dtype.value}
    value = place.op(op_type, *held, domain=DOMAIN, **attrs)
    value.shape, value.type = ir.Shape(shape), ir.TensorType(dense.dtype)
    dense.name = value.name
    value.const_value = dense
    return value


def _lazy(read: Callable[[], np.ndarray], kind: ir.DataType, shape: tuple[int, int]) -> ir.TensorProtocol:
    extents = ir.Shape(shape)

    def tensor() -> ir.TensorProtocol:
        return ir.Tensor(np.ascontiguousarray(read()), kind, shape=extents)

    return ir.LazyTensor(tensor, kind, extents, cache=False)


def unsigned_rows(codes: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    """Bytes [n, bytes] of codes [n, k], one an element; signed ones are shifted by 2^(bits - 1)."""
    wide = codes.astype(np.int16) + ((1 << (bits - 1)) if signed else 0)
    return pack_codes(wide.astype(np.uint8), bits)


def in_order(rows: np.ndarray, bits: int, order: np.ndarray) -> np.ndarray:
    """Rows of bytes with their codes in another order."""
    return pack_codes(unpack_codes(rows, bits)[:, order], bits)


def packed_node(value: ir.Value | None) -> ir.Node | None:
    """The node that a value comes from if it is a packed weight."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == DOMAIN and node.op_type in (ROWS, WEIGHT) else None


def stored_bytes(node: ir.Node) -> int:
    """Bytes that a packed weight takes at least: codes, scales, and zero points as narrow as the codes."""
    codes, scales, zeros = _held(node)
    return codes.nbytes + scales.nbytes + zeros.size * int(attributes(node)["bits"]) // 8


def _held(node: ir.Node) -> list[ir.TensorProtocol]:
    """Codes, scales and zero points."""
    tensors = [value.const_value for value in node.inputs if value is not None]
    return [tensor for tensor in tensors if tensor is not None]


def attach(graph: ir.Graph) -> None:
    """Gives packed weights of a saved stage the content that readers of constants ask for, in place."""
    for node in graph:
        value = node.outputs[0]
        if packed_node(value) is None or value.const_value is not None:
            continue
        attrs, codes = attributes(node), _held(node)[0]
        kind, n = ir.DataType(attrs["to"]), codes.shape.numpy()[0]
        shape = (attrs["k"], n) if node.op_type == WEIGHT else (n, attrs["k"])
        value.shape, value.type = ir.Shape(shape), ir.TensorType(kind)
        value.const_value = _lazy(_dense(node), kind, (shape[0], shape[1]))


def _dense(node: ir.Node) -> Callable[[], np.ndarray]:
    attrs = attributes(node)

    def read() -> np.ndarray:
        rows, scales, zeros = (tensor.numpy() for tensor in _held(node))
        codes = unpack_codes(rows, attrs["bits"])[:, : attrs["k"]].astype(np.float32)
        group = np.arange(attrs["k"]) // attrs["block"]
        found = (codes - zeros[:, group]) * scales[:, group].astype(np.float32)
        made: np.ndarray = found.astype(ir.DataType(attrs["to"]).numpy())
        return made.T if node.op_type == WEIGHT else made

    return read


_HEAD = "<bits: int, block: int, k: int, to: int = 1> (codes, scales, zeros) => (w)"
_NUMBERS = """
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  two = Constant <value_int: int = 2> ()
  eight = Constant <value_int: int = 8> ()
  front = Constant <value_ints: ints = [0]> ()
  last = Constant <value_ints: ints = [-1]> ()
  second = Constant <value_ints: ints = [1]> ()
  width = Constant <value_int: int = @bits> ()
  count = Constant <value_int: int = @k> ()
  size = Constant <value_int: int = @block> ()
  per_byte = Div (eight, width)
  place = Range (zero, per_byte, one)
  bit = Mul (place, width)
  step = Pow (two, bit)
  limit = Pow (two, width)
  wide = Cast <to = 7> (codes)
  spread = Unsqueeze (wide, last)
  moved = Div (spread, step)
  code = Mod (moved, limit)
  height = Shape <start = 0, end = 1> (codes)
  flat_shape = Concat <axis = 0> (height, last)
  flat = Reshape (code, flat_shape)
  end = Reshape (count, last)
  kept = Slice (flat, front, end, second)
  channel = Range (zero, count, one)
  group = Div (channel, size)
  scale = Gather <axis = 1> (scales, group)
  shift = Gather <axis = 1> (zeros, group)
  scale_32 = Cast <to = 1> (scale)
  number = Cast <to = 1> (kept)
  centred = Sub (number, shift)
  scaled = Mul (centred, scale_32)"""
BODIES = {
    ROWS: f"\n{ROWS} {_HEAD} {{{_NUMBERS}\n  w = Cast <to: int = @to> (scaled)\n}}",
    WEIGHT: f"\n{WEIGHT} {_HEAD} {{{_NUMBERS}\n  rows = Cast <to: int = @to> (scaled)\n"
    "  w = Transpose <perm = [1, 0]> (rows)\n}",
}
"""What the two mean: an ONNX function body each."""
