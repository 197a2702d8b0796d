"""Element types of device memory, with their codes in the blob, widths and NumPy storage types.

Types of less than a byte are codes that only packed bytes hold: no array, transfer or register has them, but operands
of the matrix engine and UNPACK name them (`npurt.numerics.packed` has their order in a byte).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class DType(IntEnum):
    """Element type code, stored in one byte of a record. The value 0 is never valid."""

    F32 = 1
    F16 = 2
    BF16 = 3
    I32 = 4
    I8 = 5
    U8 = 6
    BOOL = 7  # one byte, 0 or 1
    I64 = 8  # only copied, never computed with
    I4 = 9
    U4 = 10
    E4M3 = 11  # 8-bit floats of the OCP: without infinities, largest 448
    E5M2 = 12  # with infinities, largest 57344
    E2M1 = 13  # 4-bit float: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
    E8M0 = 14  # a power of two from 2^-127 to 2^127, or NaN: scales of blocks
    U2 = 15

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS[self]

    @property
    def nbytes(self) -> int:
        """Bytes of one element; 0 for codes of less than a byte, which no array has."""
        return _BITS[self] // 8

    @property
    def packed(self) -> bool:
        """Whether elements are less than a byte."""
        return _BITS[self] < 8

    @property
    def storage(self) -> np.dtype:
        """NumPy dtype of the bytes in memory (bf16 as raw uint16, 8-bit floats and single codes as raw uint8)."""
        return np.dtype(_STORAGE[self])

    @property
    def label(self) -> str:
        """Name in texts and messages, for example ``f16``."""
        return self.name.lower()

    @property
    def is_float(self) -> bool:
        return self in _FLOATS


_STORAGE = {
    DType.F32: "<f4",
    DType.F16: "<f2",
    DType.BF16: "<u2",
    DType.I32: "<i4",
    DType.I8: "i1",
    DType.U8: "u1",
    DType.BOOL: "u1",
    DType.I64: "<i8",
    **dict.fromkeys((DType.I4, DType.U4, DType.E4M3, DType.E5M2, DType.E2M1, DType.E8M0, DType.U2), "u1"),
}
_BITS = {dtype: 8 * np.dtype(code).itemsize for dtype, code in _STORAGE.items()} | {
    DType.I4: 4,
    DType.U4: 4,
    DType.E2M1: 4,
    DType.U2: 2,
}
_FLOATS = frozenset({DType.F32, DType.F16, DType.BF16, DType.E4M3, DType.E5M2, DType.E2M1, DType.E8M0})
