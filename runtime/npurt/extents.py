"""Do strided views stay inside their bases? Whole columns of records at once.

Byte positions are summed in float64: exact below 2^53, and a sum that is not is larger than any base anyway, because
low ends add only what is negative and high ends only what is positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npurt.abi.dtypes import DType
from npurt.abi.records import BaseKind
from npurt.errors import BlobError

WRITABLE = (BaseKind.CMX, BaseKind.SCRATCH, BaseKind.OUTPUT, BaseKind.STATE)
_ITEM_BYTES = np.array(
    [DType(code).nbytes if code in DType._value2member_map_ else 0 for code in range(256)], np.float64
)
_FLOATS = np.array([code in (DType.F32, DType.F16, DType.BF16, DType.E4M3, DType.E5M2) for code in range(256)])
_INTEGERS = np.array([code in (DType.I32, DType.I8, DType.U8) for code in range(256)])


_BITS = np.array([DType(code).bits if code in DType._value2member_map_ else 0 for code in range(256)], np.int64)
_CODES = np.array([code in (DType.I8, DType.U8, DType.I4, DType.U4, DType.U2, DType.E2M1) for code in range(256)])
_SCALES = np.array([code in (DType.F32, DType.F16, DType.BF16, DType.E4M3, DType.E8M0) for code in range(256)])


def bits_of(types: np.ndarray) -> np.ndarray:
    """Bits of an element of each type code, 0 for an unknown code."""
    found: np.ndarray = _BITS[types]
    return found


def is_code(types: np.ndarray) -> np.ndarray:
    """Types of codes that the matrix engine widens beside operands of any other type."""
    found: np.ndarray = _CODES[types]
    return found


def is_scale(types: np.ndarray) -> np.ndarray:
    """Types that the scales of groups may have."""
    found: np.ndarray = _SCALES[types]
    return found


def item_bytes(types: np.ndarray) -> np.ndarray:
    """Bytes of an element of each type code, 0 for an unknown code."""
    found: np.ndarray = _ITEM_BYTES[types]
    return found


def is_float(types: np.ndarray) -> np.ndarray:
    found: np.ndarray = _FLOATS[types]
    return found


def is_integer(types: np.ndarray) -> np.ndarray:
    """Integer types that the matrix engine computes with."""
    found: np.ndarray = _INTEGERS[types]
    return found


@dataclass(frozen=True)
class Views:
    """One strided view per record. base: row of the base table; offset, low, high: bytes.

    low <= 0 <= high: reach of the view around its first element, high with that element; empty views reach nothing.
    nbytes: of all elements, which is more than high - low where elements overlap.
    """

    base: np.ndarray
    offset: np.ndarray
    low: np.ndarray
    high: np.ndarray
    nbytes: np.ndarray


def views(base: np.ndarray, offset: np.ndarray, size: np.ndarray, stride: np.ndarray, nbytes: np.ndarray) -> Views:
    """size, stride: [records, dims]; nbytes: of one element, [records]."""
    extent = size.astype(np.float64)
    reach = (extent - 1) * stride.astype(np.float64)
    empty = (extent == 0).any(axis=1)
    low = np.where(empty, 0, np.minimum(reach, 0).sum(axis=1))
    high = np.where(empty, 0, np.maximum(reach, 0).sum(axis=1) + nbytes)
    return Views(base, offset.astype(np.float64), low, high, extent.prod(axis=1) * nbytes)


Refuse = Callable[[int, str], BlobError]
"""Makes the error of one record of a table from its row and what is wrong."""


def check_views(what: str, found: Views, bases: np.ndarray, writes: bool, used: np.ndarray, refuse: Refuse) -> None:
    """Every used view lies in an existing base, in a writable one where it is written. BlobError by `refuse`."""
    unknown = used & (found.base >= len(bases))
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        raise refuse(row, f"{what} has base {int(found.base[row])}, there are {len(bases)}")
    base = np.where(used, found.base, 0)
    if writes:
        fixed = used & ~np.isin(bases["kind"][base], WRITABLE)
        if fixed.any():
            row = int(np.flatnonzero(fixed)[0])
            raise refuse(
                row, f"{what} writes base {int(base[row])}, which is {BaseKind(int(bases['kind'][base[row]])).name}"
            )
    first, last = found.offset + found.low, found.offset + found.high
    outside = used & ((first < 0) | (last > bases["size"][base].astype(np.float64)))
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise refuse(
            row,
            f"{what} spans bytes {first[row]:.0f} to {last[row]:.0f} of base {int(base[row])}, "
            f"which has {int(bases['size'][base[row]])}",
        )


def check_distinct(what: str, found: Views, bases: np.ndarray, used: np.ndarray, refuse: Refuse) -> None:
    """No used view has more bytes of elements than its base has bytes: what it holds may be copied out whole."""
    more = used & (found.nbytes > bases["size"][np.where(used, found.base, 0)].astype(np.float64))
    if more.any():
        row = int(np.flatnonzero(more)[0])
        raise refuse(row, f"{what} has {found.nbytes[row]:.0f} bytes of elements, more than its base")


def check_rows(bad: np.ndarray, what: str, refuse: Refuse) -> None:
    """BlobError for the first record that `bad` marks."""
    if bad.any():
        raise refuse(int(np.flatnonzero(bad)[0]), what)
