"""The host's storage of device memory: bytes, float32 shadows of narrow floats, and decoded constants."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping

import numpy as np

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.exec.memory import Bases
from npurt.fast.refs import Plane, Ref

Array = np.ndarray
BLOCK = 1 << 16  # f16 elements decoded at a time: source and result stay in the second-level cache
_SCALE = np.float32(2.0**112)  # from the exponent bias of f16 bits at their float32 place to that of float32


def default_budget() -> int:
    """Bytes for decoded constants: a quarter of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, OSError, ValueError):
        return 1 << 32


def decode_f16(bits: Array, out: Array) -> None:
    """float32 values of contiguous f16 bits (uint16) into `out`, exactly.

    Sign and magnitude move to their places in a float32; the exponent is then too small by 112, subnormals included.
    """
    signed = bits.view(np.int16)
    for start in range(0, bits.size, BLOCK):
        part, into = signed[start : start + BLOCK], out[start : start + BLOCK]
        word = into.view(np.int32)
        np.left_shift(part, 13, out=word, dtype=np.int32)  # a negative number's sign fills all bits above
        np.bitwise_and(word, np.int32(-0x70002000), out=word)
        if (word & np.int32(0x0F800000)).max(initial=0) == 0x0F800000:
            into[...] = numerics.load(part.view(np.float16), DType.F16)
        else:
            np.multiply(into, _SCALE, out=into)


class RawBases(Bases):
    """The bytes of all bases, for the calls of exact mode."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __call__(self, base: int, offset: int) -> tuple[Array, int]:
        return self._memory.raw[base], offset


class Memory:
    """Storage behind the bases of one device.

    raw: the bytes of each base. spare: a base for what link passes need, which is no base of the image. constant: the
    row of the constants, whose f16 parts are decoded once, up to `budget` bytes; `decoded` counts them.
    """

    def __init__(self, raw: Mapping[int, Array], constant: int, budget: int) -> None:
        self.raw = dict(raw)
        self.constant = constant
        self.spare = max(self.raw) + 1
        self.budget = budget
        self.decoded = 0
        self._kept: dict[Hashable, Array] = {}
        self._shadows: dict[tuple[int, Plane], Array] = {}
        self._ranges: dict[Plane, list[tuple[int, int]]] = {Plane.HALF: [], Plane.BRAIN: []}

    def put(self, base: int, memory: Array) -> None:
        """Other bytes behind a base; its shadow is forgotten."""
        self.raw[base] = memory
        for plane in (Plane.HALF, Plane.BRAIN):
            self._shadows.pop((base, plane), None)

    def shadow(self, base: int, plane: Plane) -> Array:
        """The float32 shadow [bytes / 2] of a base."""
        found = self._shadows.get((base, plane))
        if found is None:
            make = np.empty if base == self.constant else np.zeros
            found = self._shadows[base, plane] = make(self.raw[base].size // 2, np.float32)
        return found

    def view(self, ref: Ref) -> Array:
        """The view on its plane: float32 on a shadow, the storage type of the elements on bytes."""
        if ref.plane is Plane.RAW:
            return np.ndarray(ref.shape, ref.dtype.storage, self.raw[ref.base], ref.offset, ref.stride)
        shadow = self.shadow(ref.base, ref.plane)
        if ref.base == self.constant:
            self._decode(ref.plane, *ref.hull)
        stride = tuple(2 * pace for pace in ref.stride)
        return np.ndarray(ref.shape, np.dtype(np.float32), shadow, 2 * ref.offset, stride)

    def kept(self, key: Hashable, nbytes: int, compute: Callable[[], Array]) -> Array | None:
        """Numbers made of constants, computed once and counted as decoded; None where the budget has no room."""
        if key not in self._kept:
            if self.decoded + nbytes > self.budget:
                return None
            self._kept[key] = np.ascontiguousarray(compute())
            self.decoded += nbytes
        return self._kept[key]

    def affordable(self, ref: Ref) -> bool:
        """Whether a view of constants is decoded, or may be within the budget."""
        missing = sum(high - low for low, high in self._missing(ref.plane, *ref.hull))
        return self.decoded + 2 * missing <= self.budget

    def _missing(self, plane: Plane, low: int, high: int) -> list[tuple[int, int]]:
        """The parts of a byte range of the constants that are not decoded."""
        parts, at = [], low
        for first, last in self._ranges[plane]:
            if last <= at or first >= high:
                continue
            if first > at:
                parts.append((at, first))
            at = last
        return [*parts, (at, high)] if at < high else parts

    def _decode(self, plane: Plane, low: int, high: int) -> None:
        parts = self._missing(plane, low, high)
        if not parts:
            return
        for first, last in parts:
            self.decode(self.constant, plane, first, last)
            self.decoded += 2 * (last - first)
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self._ranges[plane], *parts]):
            if joined and first <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(last, joined[-1][1])
            else:
                joined.append((first, last))
        self._ranges[plane] = joined

    def decode(self, base: int, plane: Plane, low: int, high: int) -> None:
        """The shadow of bytes low to high (even) from the bytes."""
        bits = np.ndarray(((high - low) // 2,), np.dtype("<u2"), self.raw[base], low)
        into = self.shadow(base, plane)[low // 2 : high // 2]
        if plane is Plane.HALF:
            decode_f16(bits, into)
        else:
            into[...] = numerics.load(bits, DType.BF16)

    def encode(self, base: int, plane: Plane, low: int, high: int) -> None:
        """The bytes low to high (even) from their shadow; each value is rounded, which changes none on the grid."""
        dtype = DType.F16 if plane is Plane.HALF else DType.BF16
        into: Array = np.ndarray(((high - low) // 2,), dtype.storage, self.raw[base], low)
        into[...] = numerics.store(self.shadow(base, plane)[low // 2 : high // 2], dtype)
