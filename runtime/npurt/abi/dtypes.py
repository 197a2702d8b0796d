"""Element types of device memory, with their codes in the blob, widths and NumPy storage types."""

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

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _BYTES[self]

    @property
    def storage(self) -> np.dtype:
        """NumPy dtype of the bytes in memory (bf16 as raw uint16)."""
        return np.dtype(_STORAGE[self])

    @property
    def label(self) -> str:
        """Name in texts and messages, for example ``f16``."""
        return self.name.lower()

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F16, DType.BF16)


_STORAGE = {
    DType.F32: "<f4",
    DType.F16: "<f2",
    DType.BF16: "<u2",
    DType.I32: "<i4",
    DType.I8: "i1",
    DType.U8: "u1",
    DType.BOOL: "u1",
    DType.I64: "<i8",
}
_BYTES = {dtype: np.dtype(code).itemsize for dtype, code in _STORAGE.items()}
