"""Integer codes of weights, whole or several in a byte, read in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

PACKED_BITS = (2, 4, 8)
"""Widths that onnxruntime's operators pack (docs/ContribOperators.md, MatMulNBits and GatherBlockQuantized)."""


class Codes(Protocol):
    """Codes [outer, axis, inner] of any integer or narrow float type."""

    @property
    def shape(self) -> tuple[int, int, int]: ...

    def part(self, outer: slice, axis: slice) -> np.ndarray:
        """The codes [outer, axis, inner] of a piece."""
        ...


@dataclass(frozen=True)
class PlainCodes:
    """One code an element. array: [outer, axis, inner]."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, int, int]:
        outer, axis, inner = self.array.shape
        return outer, axis, inner

    def part(self, outer: slice, axis: slice) -> np.ndarray:
        return self.array[outer, axis]


@dataclass(frozen=True)
class PackedCodes:
    """Rows of packed codes. rows: uint8 [outer, bytes]; count: how many codes of a row, from its front,
    mean something."""

    rows: np.ndarray
    bits: int
    count: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows.shape[0], self.count, 1

    def part(self, outer: slice, axis: slice) -> np.ndarray:
        return unpacked(self.rows[outer], self.bits)[:, : self.count][:, axis, None]


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """The codes of uint8 [..., bytes], as uint8 [..., bytes * 8 / bits]: the low bits of a byte come first."""
    if bits == 8:
        return packed
    per_byte = 8 // bits
    codes = np.empty((*packed.shape, per_byte), np.uint8)
    for place in range(per_byte):
        np.bitwise_and(packed >> np.uint8(place * bits), np.uint8((1 << bits) - 1), out=codes[..., place])
    return codes.reshape(*packed.shape[:-1], packed.shape[-1] * per_byte)


def bytes_of(count: int, bits: int) -> int:
    """Bytes that `count` codes take, the last of which may have room left."""
    return -(-count * bits // 8)
