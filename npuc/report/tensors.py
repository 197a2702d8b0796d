"""A strided tensor in words."""

from __future__ import annotations

from collections.abc import Sequence

from npurt.abi.dtypes import DType

LABELS = {int(dtype): dtype.label for dtype in DType}
_BYTES = {int(dtype): dtype.nbytes for dtype in DType}


def tensor_text(dtype: int, size: Sequence[int], stride: Sequence[int]) -> str:
    """``f16[4,24] stride [96,2]``; strides (bytes) are left out where rows follow each other without a gap."""
    packed, step = True, _BYTES[dtype]
    for extent, found in zip(reversed(size), reversed(stride), strict=True):
        packed = packed and (extent == 1 or found == step)
        step *= extent
    return f"{LABELS[dtype]}{extents(size)}" + ("" if packed else f" stride {extents(stride)}")


def extents(values: Sequence[int]) -> str:
    """``[4,24]``."""
    return f"[{','.join(map(str, values))}]"
