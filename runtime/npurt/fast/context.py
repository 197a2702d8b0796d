"""What the makers of calls share: memory, the step block, temporary arrays, and rounding to narrow floats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.abi.records import Step
from npurt.fast.memory import Memory

Array = np.ndarray
Call = tuple[Callable[..., Any], tuple[Any, ...]]

_EXPONENT = np.array(0x7F800000, np.int32)
_SMALLEST = np.array((127 - 14) << 23, np.int32)  # exponent of 2^-14, below which the f16 grid is as wide as at it
_LARGEST = np.array((127 + 16) << 23, np.int32)  # a larger one overflows anyway, and its anchor must not
_ANCHOR = np.array((13 << 23) | 0x400000, np.int32)  # from 2^e to 1.5 * 2^(e + 13)
_UP, _DOWN = np.array(2.0**112, np.float32), np.array(2.0**-112, np.float32)


def into(function: Callable[..., Any], out: Array, *operands: Array) -> Call:
    """A call of a ufunc that takes its output by keyword alone, as maximum and minimum do."""
    return partial(function, *operands, out=out), ()


class Pool:
    """Temporary float32-sized words. An array given back is taken again by the next that needs no more."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self.bytes = 0

    def take(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """An array of 4-byte elements or bools, C-contiguous, with anything in it."""
        count = max(prod(shape), 1)
        words = 1 << (count - 1).bit_length()
        free = self._free.setdefault(words, [])
        if free:
            block = free.pop()
        else:
            block = np.zeros(words, np.float32)
            self.bytes += block.nbytes
        return np.ndarray(shape, np.dtype(dtype), block)

    def give(self, array: Array) -> None:
        """Gives an array of `take` back."""
        block = array.base
        assert isinstance(block, np.ndarray), "only arrays of this pool come back"
        self._free[block.size].append(block)


class Context:
    """Of one device. step: the current values of the step block by `Step`. grid: stores round to the narrow type."""

    def __init__(self, memory: Memory, grid: bool) -> None:
        self.memory, self.grid = memory, grid
        self.pool, self.spare = Pool(), Pool()
        self.step = [0] * (max(Step) + 1)
        self.step_arrays = {field: np.zeros((), np.int32) for field in Step}

    def set_step(self, values: dict[Step, int]) -> None:
        for field, value in values.items():
            self.step[field] = value
            self.step_arrays[field][...] = value

    def round_now(self, source: Array, target: Array, dtype: DType) -> None:
        """Does what the calls of `rounding` do. For shapes that are known in a run only: the blocks of `pool` are taken
        by then."""
        for function, arguments in self.rounding(source, target, dtype, self.spare):
            function(*arguments)

    def rounding(self, source: Array, target: Array, dtype: DType, pool: Pool | None = None) -> list[Call]:
        """Calls that put `source` into `target` (float32, may be the same array), on the grid of a type."""
        pool = pool or self.pool
        if not self.grid or dtype not in (DType.F16, DType.BF16):
            return [] if target is source else [(np.copyto, (target, source))]
        if dtype is DType.BF16:
            return [(_round_bf16, (source, target))]
        bits = pool.take(source.shape, np.int32)
        anchor = bits.view(np.float32)
        calls: list[Call] = [
            (np.bitwise_and, (source.view(np.int32), _EXPONENT, bits)),
            into(np.maximum, bits, bits, _SMALLEST),
            into(np.minimum, bits, bits, _LARGEST),
            (np.add, (bits, _ANCHOR, bits)),
            (np.add, (source, anchor, target)),
            (np.subtract, (target, anchor, target)),
            (np.multiply, (target, _UP, target)),  # 2^16 and beyond become infinity
            (np.multiply, (target, _DOWN, target)),
        ]
        pool.give(bits)
        return calls


def _round_bf16(source: Array, target: Array) -> None:
    target[...] = numerics.round_bf16(source)
