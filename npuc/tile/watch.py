"""What both executors refuse while a kernel's function runs: work without end, and reads of what nothing has stored.

Scratch counts as stored where a store may write: one that a when() block, a runtime extent or an index tile may cut
or skip counts whole, so that eager execution and tracing refuse the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.tile.affine import Affine
from npuc.tile.errors import KernelError
from npuc.tile.trace import Fill, Gather, Load, Memory, Mma, Scatter, Store, TraceOp

MAX_OPERATIONS = 200_000  # of one program; the longest of the library has some thousands

Box = tuple[tuple[int, int], ...]
"""First and one past the last element along each dimension."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a local array; exact: of the same place for all programs that are traced together."""

    box: Box
    exact: bool


class Watch:
    """The operations of one program, counted, and the boxes of its local arrays that were written."""

    def __init__(self) -> None:
        self._count = 0
        self._written: dict[int, list[Box]] = {}

    def see(self, op: TraceOp) -> None:
        """KernelError at the operation's line where it is one too many, or reads scratch that nothing has stored."""
        self._count += 1
        if self._count > MAX_OPERATIONS:
            raise KernelError(
                f"more than {MAX_OPERATIONS} operations in one program: does this loop end? A kernel's loops unroll "
                "while it is traced; take larger tiles, or more programs", op.loc,
            )  # fmt: skip
        match op:
            case Load(memory=memory, out=out) if memory.local:
                self._read(op, memory, _part(op.index, out.shape))
            case Gather(memory=memory, out=out) if memory.local:
                self._read(op, memory, _part(op.index, out.shape, op.axis, memory.type.shape))
            case Store(memory=memory, value=value) if memory.local:
                self._write(memory, _part(op.index, value.shape).box)
            case Scatter(memory=memory, value=value) if memory.local:
                self._write(memory, _part(op.index, value.shape, op.axis, memory.type.shape).box)
            case Fill(memory=memory) | Mma(acc=Memory() as memory):
                self._write(memory, tuple((0, extent) for extent in memory.type.shape))

    def _write(self, memory: Memory, box: Box) -> None:
        boxes = self._written.setdefault(memory.slot, [])
        if not any(_inside(box, other) for other in boxes):
            boxes[:] = [*(other for other in boxes if not _inside(other, box)), box]

    def _read(self, op: Load | Gather, memory: Memory, part: _Part) -> None:
        if any(first == end for first, end in part.box):
            return
        boxes = [box for box in self._written.get(memory.slot, ()) if _meet(part.box, box)]
        whole = _elements(part.box)
        missing = _missing(part.box, boxes) if part.exact or not boxes else 0
        if missing:
            what = "what" if missing == whole else f"{missing} of the {whole} numbers that"
            where = "" if memory.loc is None else f" of {memory.loc.short}"
            raise KernelError(
                f"nothing has stored {what} this reads from the {memory.type} scratch{where}; store there first, "
                "t.zeros(...) for instance", op.loc,
            )  # fmt: skip


def _part(
    index: Sequence[Affine], size: tuple[int, ...], chosen: int | None = None, shape: tuple[int, ...] = ()
) -> _Part:
    """The part at an index, all that it can be where program ids move it. chosen: the dimension of an index tile."""
    box, exact = [], chosen is None
    for dimension, (first, extent) in enumerate(zip(index, size, strict=True)):
        low, high = first.without_step().range()
        exact = exact and low == high
        box.append((0, shape[dimension]) if dimension == chosen else (low, high + extent))
    return _Part(tuple(box), exact)


def _missing(box: Box, written: Sequence[Box]) -> int:
    """How many elements of a box lie in none of the others."""
    if any(_inside(box, other) for other in written):
        return 0
    cuts = [
        sorted({first, end, *(min(max(edge, first), end) for other in written for edge in other[dimension])})
        for dimension, (first, end) in enumerate(box)
    ]
    bare = np.ones([len(edges) - 1 for edges in cuts], np.bool_)
    for other in written:
        bare[tuple(
            slice(*np.searchsorted(edges, np.clip(span, edges[0], edges[-1])))
            for edges, span in zip(cuts, other, strict=True)
        )] = False  # fmt: skip
    sizes = np.ones((), np.int64)
    for edges in cuts:
        sizes = sizes[..., None] * np.diff(edges)
    return int((sizes * bare).sum())


def _inside(inner: Box, outer: Box) -> bool:
    return all(a >= c and b <= d for (a, b), (c, d) in zip(inner, outer, strict=True))


def _meet(one: Box, other: Box) -> bool:
    return all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))


def _elements(box: Box) -> int:
    total = 1
    for first, end in box:
        total *= end - first
    return total
