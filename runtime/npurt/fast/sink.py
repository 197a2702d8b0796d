"""Link pass `alias`, second half: a result that one copy moves on is written where the copy would put it.

Legal where that copy is the only reader of the result, the result is all that the copy reads, and no task between the
two touches the copy's destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npurt.fast.cells import Cells
from npurt.fast.ops import Call, Copy, Gather, Mma, Op
from npurt.fast.refs import Ref, through


@dataclass(frozen=True)
class _Move:
    """Task `maker` writes `ref` in its operand `slot` and task `copy` goes."""

    maker: int
    slot: str
    copy: int
    ref: Ref


def sink(ops: Sequence[Op], cells: Cells) -> list[Op]:
    """The tasks without the copies that are not needed; operands are replaced in place."""
    constant = cells.constant
    writer, touched = cells.track(-1, np.int32), cells.track(-1, np.int32)
    readers: dict[int, list[tuple[int, Ref]]] = {}  # of each task's results
    moves: list[_Move] = []
    for number, op in enumerate(ops):
        for access in op.reads:
            if access.ref.base == constant:
                continue
            for maker in writer.values(access):
                readers.setdefault(maker, []).append((number, access.ref))
        if isinstance(op, Copy) and op.pred is None and op.whole and op.src.base != constant:
            move = _move(number, op, ops, writer.only(op.reads[0]))
            if move is not None and touched.largest(op.dst) < move.maker:
                moves.append(move)
        for access in (*op.reads, *op.writes):
            if access.ref.base != constant:
                touched.mark(access, number)
        for access in op.writes:
            writer.mark(access, number)
    gone = set()
    for move in moves:
        others = [
            number
            for number, ref in readers[move.maker]
            if number != move.copy and _overlap(ref, ops[move.copy], cells)
        ]
        if not others:
            ops[move.maker].put(move.slot, move.ref)
            gone.add(move.copy)
    return [op for number, op in enumerate(ops) if number not in gone]


def _move(number: int, copy: Copy, ops: Sequence[Op], last: int | None) -> _Move | None:
    """The move that a copy allows, by its operands alone."""
    maker = ops[last] if last is not None and last >= 0 else None
    if copy.src.plane is not copy.dst.plane or copy.src.dtype is not copy.dst.dtype:
        return None
    if (
        not isinstance(maker, Mma | Call | Gather)
        or maker.pred is not None
        or (isinstance(maker, Mma) and (maker.adds or maker.cut))
    ):
        return None
    for access in maker.writes:
        ref = access.ref
        if (
            ref.base != copy.src.base
            or ref.plane is not copy.src.plane
            or ref.dtype is not copy.src.dtype
            or not access.sure
        ):
            continue
        if isinstance(maker, Call) and maker.program.args[int(access.slot)].reads:
            continue
        if ref.count != copy.src.count or ref.hull != copy.src.hull:
            continue
        found = through(copy.src, copy.dst, ref)
        if found is not None:
            return _Move(last or 0, access.slot, number, found.ref)
    return None


def _overlap(ref: Ref, copy: Op, cells: Cells) -> bool:
    """Whether a view shares cells with a copy's source."""
    assert isinstance(copy, Copy)
    if (ref.base, ref.plane) != (copy.src.base, copy.src.plane):
        return False
    mine, others = cells.of(ref), cells.of(copy.src)
    if isinstance(mine, slice) and isinstance(others, slice):
        return bool(max(mine.start, others.start) < min(mine.stop, others.stop))
    return bool(np.intersect1d(cells.places(ref), cells.places(copy.src), assume_unique=True).size)
