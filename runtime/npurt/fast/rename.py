"""Link pass `rename`: tiles of one product that take turns in a few buffers get places beside each other.

On the device two or three small buffers serve all tiles of a product, each of which a vector program reads before the
next one comes. Here the tiles get a wide buffer of their own, so that `join` makes one product of them. Legal for a
tile that a product alone has made, that is read by vector programs and products alone, each of which reads nothing but
this tile in that operand.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from npurt.fast.cells import Cells
from npurt.fast.ops import Call, Mma, Op
from npurt.fast.refs import Ref, through

ALIGN = 64


@dataclass
class _Row:
    """Tiles side by side: products by number, in order of their columns. last: the last task that reads any."""

    makers: list[int] = field(default_factory=list)
    width: int = 0
    last: int = 0


def rename(ops: Sequence[Op], cells: Cells, local: Set[int], base: int) -> int:
    """Replaces operands in place. base: of the new buffers; returns its size in bytes, 0 where nothing has changed."""
    uses = _uses(ops, cells, local)
    taken: list[tuple[int, int, int]] = []  # last reader, first and last byte
    for row in _rows(ops, cells, uses):
        first = row.makers[0]
        item, height = _tile(ops[first]).dtype.nbytes, _tile(ops[first]).shape[1]
        size = height * row.width * item
        offset = _free([(low, high) for last, low, high in taken if last >= first], size)
        taken.append((row.last, offset, offset + size))
        column = 0
        for maker in row.makers:
            old = _tile(ops[maker])
            new = replace(
                old, base=base, offset=offset + column * item, stride=(size, row.width * item, item),
            )  # fmt: skip
            for reader, slot, view in uses[maker]:
                moved = through(old, new, view)
                assert moved is not None, "it has been asked before"
                ops[reader].put(slot, moved.ref)
            ops[maker].put("c", new)
            column += old.shape[2]
    return max((place[2] for place in taken), default=0)


_Uses = dict[int, list[tuple[int, str, Ref]]]


def _uses(ops: Sequence[Op], cells: Cells, local: Set[int]) -> _Uses:
    """Of each product whose result may move: task, operand and view of each that reads it."""
    writer = cells.track(-1, np.int32)
    found: _Uses = {}
    for number, op in enumerate(ops):
        for access in op.reads:
            if access.ref.base not in local:
                continue
            for maker in writer.values(access) & found.keys():
                if writer.only(access) == maker and _may_read(op, access.slot, access.ref, _tile(ops[maker])):
                    found[maker].append((number, access.slot, access.ref))
                else:
                    del found[maker]
        for access in op.writes:
            if access.ref.base in local:
                writer.mark(access, number)
        if isinstance(op, Mma) and op.c.base in local and _may_move(op, cells.constant):
            found[number] = []
    return {maker: readers for maker, readers in found.items() if readers}


def _may_move(op: Mma, constant: int) -> bool:
    whole = op.pred is None and op.cut is None and not op.adds and op.c.shape[0] == 1
    return whole and not op.kn and op.b.base == constant and op.c.stride[2] == op.c.dtype.nbytes


def _may_read(op: Op, slot: str, view: Ref, tile: Ref) -> bool:
    if isinstance(op, Call):
        plain = not op.program.args[int(slot)].writes
    else:
        plain = isinstance(op, Mma) and slot == "a"
    _, height, width = tile.shape
    pace = 2 * width * tile.dtype.nbytes  # with room between the rows
    apart = replace(tile, stride=(height * pace, pace, tile.dtype.nbytes))
    return plain and view.dtype is tile.dtype and view.plane is tile.plane and through(tile, apart, view) is not None


def _rows(ops: Sequence[Op], cells: Cells, uses: _Uses) -> list[_Row]:
    """Products of one a with rows of one b behind each other, whose results do not lie side by side yet."""
    writer = cells.track(-1, np.int32)
    rows: dict[Hashable, _Row] = {}
    for number, op in enumerate(ops):
        if number in uses and isinstance(op, Mma):
            version = -1 if op.a.base == cells.constant else writer.largest(op.a)
            after = op.scale, op.table, op.clamp, op.codes, op.c.dtype
            kind = (op.a, version, after, op.b.base, op.b.shape[2], op.b.stride)
            row = rows.pop((*kind, op.b.offset), None) or _Row()
            row.makers.append(number)
            row.width += op.c.shape[2]
            row.last = max(row.last, *(reader for reader, _, _ in uses[number]))
            rows[*kind, op.b.offset + op.c.shape[2] * op.b.stride[1]] = row
        for access in op.writes:
            if access.ref.base != cells.constant:
                writer.mark(access, number)
    apart = [row for row in rows.values() if len(row.makers) > 1 and not _together(ops, row)]
    return sorted(apart, key=lambda row: row.makers)


def _together(ops: Sequence[Op], row: _Row) -> bool:
    """Whether the tiles lie side by side already."""
    tiles = [_tile(ops[maker]) for maker in row.makers]
    ends = [tile.offset + tile.shape[2] * tile.dtype.nbytes for tile in tiles]
    return all(tile.offset == end and tile.base == tiles[0].base for tile, end in zip(tiles[1:], ends, strict=False))


def _free(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The first place for so many bytes."""
    at = 0
    for low, high in sorted(taken):
        if low - at >= size:
            break
        at = max(at, -(-high // ALIGN) * ALIGN)
    return at


def _tile(op: Op) -> Ref:
    assert isinstance(op, Mma)
    return op.c
