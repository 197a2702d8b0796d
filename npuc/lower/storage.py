"""Which element type a graph value has in device memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npurt.abi.dtypes import DType

# by name: older releases of onnx-ir do not know the newest types
_FORMS = {
    **dict.fromkeys(("INT64", "INT32", "INT16", "UINT16", "UINT32", "UINT64"), DType.I32),
    **dict.fromkeys(("INT8", "INT4", "INT2"), DType.I8),
    **dict.fromkeys(("UINT8", "UINT4", "UINT2"), DType.U8),
    "BOOL": DType.BOOL,
    "FLOAT8E8M0": DType.F32,  # powers of two from 2^-127 to 2^127
}
_FLOATS = frozenset(
    {"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
     "FLOAT4E2M1"}
)  # fmt: skip


DEVICE_TYPES = frozenset(name.lower() for name in (*_FORMS, *_FLOATS))
"""Names, as ONNX's type constraints have them, of the element types that have a form in device memory."""


class UnsupportedType(ValueError):
    """A graph element type that no device type can hold."""


@dataclass(frozen=True)
class Storage:
    """floats: what every float value is stored as (`--precision`); sums are float32 or wider in either case.

    Integers of 16 bits and more are int32 on the device: an index or a position fits, and an input or a constant that
    does not is refused. Floats of 8 and 4 bits lie on their grid in the type of all floats.
    """

    floats: DType

    def of(self, dtype: ir.DataType) -> DType:
        if dtype.name in _FLOATS:
            return self.floats
        if dtype.name in _FORMS:
            return _FORMS[dtype.name]
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
