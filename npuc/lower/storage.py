"""Which element type a graph value has in device memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npurt.abi.dtypes import DType

_INTEGERS = {
    ir.DataType.INT64,
    ir.DataType.INT32,
    ir.DataType.INT16,
    ir.DataType.UINT16,
    ir.DataType.UINT32,
    ir.DataType.UINT64,
}
_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}


class UnsupportedType(ValueError):
    """A graph element type that no device type can hold."""


@dataclass(frozen=True)
class Storage:
    """floats: what every float value is stored as (`--precision`); sums are float32 or wider in either case.

    Integers of any width are int32 on the device: an index or a position fits, and a constant that does not is refused.
    """

    floats: DType

    def of(self, dtype: ir.DataType) -> DType:
        if dtype in _FLOATS:
            return self.floats
        if dtype in _INTEGERS:
            return DType.I32
        if dtype == ir.DataType.BOOL:
            return DType.BOOL
        if dtype == ir.DataType.INT8:
            return DType.I8
        if dtype == ir.DataType.UINT8:
            return DType.U8
        raise UnsupportedType(f"element type {dtype.name} has no device form; float, integer and bool types do")

    def pack(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        """`array` in the bytes of `dtype`, C order. Floats round to nearest even; an int64 outside int32 is refused."""
        if dtype is DType.F16:
            with np.errstate(over="ignore"):
                return np.asarray(array, dtype="<f2", order="C")
        if dtype is DType.I32 and array.dtype.kind in "iu" and array.size:
            low, high = int(array.min()), int(array.max())
            # the ends of int64 are the exporters' "to the end" and mean the same at the ends of int32
            if (low < -(2**31) and low != -(2**63)) or (high > 2**31 - 1 and high != 2**63 - 1):
                raise UnsupportedType(f"a constant holds {low} to {high}, and the device computes integers in 32 bits")
            return np.asarray(np.clip(array, -(2**31), 2**31 - 1), dtype="<i4", order="C")
        return np.asarray(array, dtype=dtype.storage, order="C")
