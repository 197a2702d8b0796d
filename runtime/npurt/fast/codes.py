"""Operands of products that hold codes: what the prepared form knows of them, and their numbers in float32.

Here the scales are part of the numbers, so that a product is one call of BLAS. Numbers of constants are kept within the
budget for decoded constants; beyond it, and of operands that a run writes, they are computed on use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Whole:
    """All rows of the constants that tiles of one operand read, and the row where one of them begins."""

    b: Ref
    codes: Codes
    first: int


def whole_of(operands: Sequence[tuple[Ref, Codes]], constant: int) -> list[Whole | None]:
    """For each operand the rows that it and its neighbours take up together; None where it is no constant.

    Tiles of one weight are then parts of one decoded matrix, however an entry cuts it.
    """
    found: list[Whole | None] = [None] * len(operands)
    by_frame: dict[Hashable, list[int]] = {}
    for number, (b, codes) in enumerate(operands):
        scales, pace = codes.scales, b.stride[1]
        if (
            b.base != constant
            or pace <= 0
            or (scales is not None and (scales.base != constant or scales.stride[0] != pace))
        ):
            continue
        gap = None if scales is None else scales.offset - b.offset
        frame = (b.shape[2], pace, b.offset % pace, gap, replace(codes, scales=None))
        by_frame.setdefault(frame, []).append(number)
    for numbers in by_frame.values():
        numbers.sort(key=lambda number: operands[number][0].offset)
        for run in _runs([operands[number][0] for number in numbers]):
            members = [numbers[place] for place in run]
            b, codes = operands[members[0]]
            last = max(operands[m][0].offset // b.stride[1] + operands[m][0].shape[1] for m in members)
            rows = last - b.offset // b.stride[1]
            scales = None if codes.scales is None else replace(codes.scales, shape=(rows, *codes.scales.shape[1:]))
            whole, form = replace(b, shape=(1, rows, b.shape[2])), replace(codes, scales=scales)
            for m in members:
                found[m] = Whole(whole, form, (operands[m][0].offset - b.offset) // b.stride[1])
    return found


def _runs(refs: Sequence[Ref]) -> Iterator[list[int]]:
    """Places of refs, in rising order of offset, that follow each other or overlap."""
    run: list[int] = []
    end = 0
    for place, ref in enumerate(refs):
        if run and ref.offset > end:
            yield run
            run = []
        run.append(place)
        end = max(end if len(run) > 1 else 0, ref.offset + ref.shape[1] * ref.stride[1])
    if run:
        yield run


def numbers_of(b: Ref, codes: Codes, whole: Whole | None, memory: Memory) -> Array | Callable[[], Array]:
    """float32 [n, k] of an operand b [1, n, bytes]: the numbers, or a call that computes them."""
    if whole is not None:
        kept = memory.kept(
            (whole.b, whole.codes), 4 * whole.b.shape[1] * codes.k, _computing(whole.b, whole.codes, memory)
        )
        if kept is not None:
            return kept[whole.first : whole.first + b.shape[1]]
    return _computing(b, codes, memory)


def _computing(b: Ref, codes: Codes, memory: Memory) -> Callable[[], Array]:
    """A call that computes the numbers."""
    n = b.shape[1]
    wide = not codes.dtype.packed and codes.dtype.nbytes > 1
    table = None if wide else _table(codes)
    packed = memory.view(b)[0]
    held = None if codes.scales is None else memory.view(codes.scales)

    def compute() -> Array:
        found: Array = numerics.unpack(packed, codes.dtype) if table is None else table[packed]
        numbers = found.reshape(n, codes.k)
        if held is not None:
            _scale(numbers, numerics.unpack(held, codes.scale_type), codes.group)
        return numbers

    return compute


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
