"""The one formula of quantised weights: number = (code - zero point) * scale, the latter two shared by groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npuc.graph.quantised.codes import Codes

_PIECE = 1 << 19  # elements computed at a time: what a piece needs beside the result stays in the processor's cache


@dataclass(frozen=True)
class Affine:
    """Codes [outer, axis, inner] and how they become numbers.

    scales: [outer or 1, groups, inner or 1], of any float type; zeros: the same, integers or floats, or one number.
    group: int [axis], the group of each place along the axis. An axis per tensor is one group, an axis of channels has
    a group for each.
    """

    codes: Codes
    scales: np.ndarray
    zeros: np.ndarray | int
    group: np.ndarray

    def numbers(self, dtype: np.dtype) -> np.ndarray:
        """(code - zero) * scale in float32, as onnxruntime computes it, rounded to `dtype`; [outer, axis, inner]."""
        result = np.empty(self.codes.shape, dtype)
        for outer, axis in _pieces(self.codes.shape):
            codes, group = self.codes.part(outer, axis), self.group[axis]
            # float32 holds the codes and their differences exactly, but for int32
            wide = codes.astype(np.float64 if codes.dtype == np.int32 else np.float32)
            if isinstance(self.zeros, np.ndarray):
                np.subtract(wide, _of_group(self.zeros, outer, group).astype(wide.dtype), out=wide)
            elif self.zeros:
                np.subtract(wide, self.zeros, out=wide)
            numbers = wide.astype(np.float32, copy=False)
            scales = _of_group(self.scales, outer, group).astype(np.float32)
            with np.errstate(over="ignore"):
                result[outer, axis] = np.multiply(numbers, scales, out=numbers)
        return result


def _of_group(parameter: np.ndarray, outer: slice, group: np.ndarray) -> np.ndarray:
    """A parameter at the places of a piece; it broadcasts against the piece."""
    rows = parameter if parameter.shape[0] == 1 else parameter[outer]
    return rows if rows.shape[1] == 1 else np.take(rows, group, axis=1)


def _pieces(shape: tuple[int, int, int]) -> Iterator[tuple[slice, slice]]:
    outer, axis, inner = shape
    rows = max(1, _PIECE // max(1, axis * inner))
    places = max(1, _PIECE // max(1, inner * min(rows, outer)))
    for start in range(0, outer, rows):
        for first in range(0, axis, places):
            yield slice(start, start + rows), slice(first, first + places)


def blocks(extent: int, block: int) -> np.ndarray:
    """The group of each place of an axis in blocks of `block`, the last of which may be short."""
    return np.arange(extent) // block
