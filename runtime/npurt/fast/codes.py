"""Operands of products that hold codes: what the prepared form knows of them, and their numbers in float32.

Here the scales are part of the numbers, so that a product is one call of BLAS. Numbers of constants are kept within the
budget for decoded constants; beyond it, and of operands that a run writes, they are computed on use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.fast.memory import Memory
from npurt.fast.refs import Ref

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Codes:
    """How the bytes of an operand read. dtype: of its codes, or of floats among bytes. k: of them in a row; group: of
    them that share a scale.

    scales: bytes [n, groups * size of a scale] of type `scale_type`; None without.
    """

    dtype: DType
    k: int
    zero: int
    group: int
    scale_type: DType
    scales: Ref | None


def numbers_of(b: Ref, codes: Codes, memory: Memory) -> Array | Callable[[], Array]:
    """float32 [n, k] of an operand b [1, n, bytes]: the numbers, or a call that computes them."""
    n = b.shape[1]
    wide = not codes.dtype.packed and codes.dtype.nbytes > 1
    table = None if wide else _table(codes)
    packed = memory.view(b)[0]
    held = None if codes.scales is None else memory.view(codes.scales)
    fixed = b.base == memory.constant and (codes.scales is None or codes.scales.base == memory.constant)

    def compute() -> Array:
        found: Array = numerics.unpack(packed, codes.dtype) if table is None else table[packed]
        numbers = found.reshape(n, codes.k)
        if held is not None:
            _scale(numbers, numerics.unpack(held, codes.scale_type), codes.group)
        return numbers

    if not fixed:
        return compute
    kept = memory.kept((b, codes), 4 * n * codes.k, compute)
    return compute if kept is None else kept


def _table(codes: Codes) -> Array:
    """The numbers in each byte, float32 [256, numbers in a byte]."""
    every = np.arange(256, dtype=np.uint8)[:, None]
    return (numerics.unpack(every, codes.dtype).astype(np.float32) - np.float32(codes.zero)).astype(np.float32)


def _scale(numbers: Array, scales: Array, group: int) -> None:
    """Multiplies [n, k] in place with scales [n, groups]."""
    n, k = numbers.shape
    whole = k // group
    if whole:
        blocks = numbers[:, : whole * group].reshape(n, whole, group)  # a view: only the rows are strided
        np.multiply(blocks, scales[:, :whole, None], out=blocks)
    if k > whole * group:
        numbers[:, whole * group :] *= scales[:, whole:]
