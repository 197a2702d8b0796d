"""Rows of a hand-written blob: strides, masks, relocations and records from plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from npurt.abi import blob
from npurt.abi.dtypes import DType
from npurt.abi.records import NO_NODE


def mask(ids: tuple[int, ...]) -> tuple[int, int]:
    bits = sum(1 << n for n in ids)
    return bits & (2**64 - 1), bits >> 64


def nbytes(dtype: DType, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.nbytes


def strides(size: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * int(np.prod(size[i + 1 :], dtype=np.int64)) for i in range(len(size)))


def padded(values: tuple[int, ...], neutral: int) -> tuple[int, ...]:
    return (neutral,) * (4 - len(values)) + tuple(values)


def rela(offset: int, symbol: int, kind: int, addend: int) -> tuple[int, int, int]:
    return offset, symbol << 32 | int(kind), addend


def rows_of(rows: Any) -> np.ndarray:
    return np.array(list(rows), blob.RELA)


def records(dtype: np.dtype, rows: list[dict[str, Any]]) -> np.ndarray:
    table = np.zeros(len(rows), dtype)
    for record, fields in zip(table, rows, strict=True):
        for name, value in fields.items():
            record[name] = value
    return table


def with_masks(fields: dict[str, Any]) -> dict[str, Any]:
    """wait and post as tuples of ids become masks."""
    found = {"node": NO_NODE} | fields
    for name in ("wait", "post"):
        if name in found:
            found[name] = mask(found[name])
    return found
