"""Weights that stay codes: how their rows lie in the blob.

A row of the blob is codes, scales and, where zero points differ, shifts (npukernels.codes.Row), so that one transfer
brings all of a channel. Codes and scales are the file's own; shifts, (middle code - zero point) * scale, are stored as
floats of the precision and enter by a product with sums of the activations.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc.graph.nodes import attributes
from npuc.graph.quantised.packed import packed_node
from npuc.lower.consts import ConstPool
from npuc.tasks import Region
from npukernels.codes import Row
from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.target.model import Target

_SCALES = {ir.DataType.FLOAT: DType.F32, ir.DataType.FLOAT16: DType.F16, ir.DataType.BFLOAT16: DType.BF16}
_CODES = {2: DType.U2, 4: DType.U4, 8: DType.U8}


@dataclass(frozen=True)
class Packed:
    """A weight of n channels in the blob. region: u8 [n, row.nbytes]."""

    region: Region
    row: Row

    @property
    def channels(self) -> int:
        return self.region.shape[0]


def packed_form(value: ir.Value | None) -> tuple[Hashable, ...] | None:
    """What two packed weights must share for one kernel to take both; None for any other value."""
    node = packed_node(value)
    if node is None:
        return None
    _, scales, zeros = _operands(node)
    attrs = attributes(node)
    return attrs["bits"], attrs["block"], attrs["k"], scales.dtype, _shared_zero(zeros.numpy(), attrs["bits"])


def _operands(node: ir.Node) -> tuple[ir.TensorProtocol, ir.TensorProtocol, ir.TensorProtocol]:
    codes, scales, zeros = (given.const_value for given in node.inputs if given is not None)
    assert codes is not None and scales is not None and zeros is not None, "operands of packed weights are constants"
    return codes, scales, zeros


def _shared_zero(zeros: np.ndarray, bits: int) -> int | None:
    """The zero point of all codes, None where they differ or are no code."""
    first = float(zeros.flat[0]) if zeros.size else 0.0
    same = bool((zeros == first).all()) and first.is_integer() and 0 <= first < 1 << bits
    return int(first) if same else None


def packed_weight(value: ir.Value | None, consts: ConstPool, target: Target) -> Packed | None:
    """The packed weight behind a value, None for any other value."""
    node = packed_node(value)
    if node is None:
        return None
    codes, scales, zeros = _operands(node)
    attrs = attributes(node)
    narrow = "u2" in target.engine_of("matrix").codes and attrs["k"] % 4 == 0
    bits = 4 if attrs["bits"] == 2 and not narrow else attrs["bits"]
    points = zeros.numpy()
    shared = _shared_zero(points, attrs["bits"])
    zero = 1 << (attrs["bits"] - 1) if shared is None else shared
    shifts = consts.storage.floats if shared is None else None
    row = Row(attrs["k"], _CODES[bits], attrs["block"], zero, _SCALES[scales.dtype], shifts)
    n = int(codes.shape.numpy()[0])

    def produce() -> np.ndarray:
        return _rows(codes.numpy(), scales.numpy(), points, attrs["bits"], row)

    key = ".".join(map(consts.digest, (codes, scales, zeros))) + f".{row}"
    return Packed(consts.region(key, DType.U8, (n, row.nbytes), produce), row)


def _rows(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int, row: Row) -> np.ndarray:
    """uint8 [n, row.nbytes]; what lies between the parts is zero."""
    made = np.zeros((len(codes), row.nbytes), np.uint8)
    used = row.k * row.codes.bits // 8
    if row.codes.bits == bits:
        made[:, :used] = codes[:, :used]
    else:  # an engine that takes no codes as narrow as the file's
        made[:, :used] = numerics.pack_codes(numerics.unpack_codes(codes, bits)[:, : row.k], row.codes.bits)
    _put(made, row.code_bytes, scales)
    if row.shifts is not None:
        shifts = (np.float32(row.zero) - zeros) * scales.astype(np.float32)
        _put(made, row.code_bytes + row.scale_bytes, numerics.store(shifts, row.shifts))
    return made


def _put(rows: np.ndarray, first: int, values: np.ndarray) -> None:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(len(rows), -1)
    rows[:, first : first + data.shape[1]] = data


def picks(row: Row, consts: ConstPool) -> Region | None:
    """Codes [groups, k] of 0 and 1 whose product with activations is their sums over groups; None without shifts."""
    if row.shifts is None:
        return None
    ones = (np.arange(row.k) // row.group == np.arange(row.groups)[:, None]).astype(np.uint8)
    return consts.array(ones if row.k % 2 else numerics.pack_codes(ones, 4), DType.U8)
