"""Link pass `join`: neighbouring tiles of one product become one call.

Three ways to be neighbours: along k (a second product adds to the same c), along n (next rows of b, next columns of c)
and along m (next rows of a and of c). A later tile moves up to the first one. That is legal where its operands were
complete there already, and nothing has touched its part of c since: the same as flushing pending tiles before any
reader or writer of their buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np

from npurt.abi.dtypes import DType
from npurt.fast.alias import appends_beyond
from npurt.fast.cells import Cells, Track
from npurt.fast.ops import Cut, Mma, Op
from npurt.fast.refs import Ref
from npurt.fast.steps import Amount

_TABLE_ROW = 8


def join(ops: Sequence[Op], cells: Cells) -> list[Op]:
    """The tasks with joined products: first along k, then n, then m."""
    joined = list(ops)
    for keys, merge in ((_k_keys, _merge_k), (_n_keys, _merge_n), (_m_keys, _merge_m)):
        if _any(joined, keys):
            joined = _pass(joined, cells, keys, merge)
    return joined


Keys = Callable[[Mma], tuple[Hashable, Hashable] | None]
"""What a product offers to a next one, and what it needs of the one before; equal where they are neighbours."""


def _any(ops: list[Op], keys: Keys) -> bool:
    """Whether any two products may be neighbours."""
    pairs = [pair for op in ops if isinstance(op, Mma) and (pair := keys(op)) is not None]
    return not {offer for offer, _ in pairs}.isdisjoint(need for _, need in pairs)


def _pass(ops: list[Op], cells: Cells, keys: Keys, merge: Callable[[Mma, Mma], None]) -> list[Op]:
    constant = cells.constant
    writer, touched = cells.track(-1, np.int32), cells.track(-1, np.int32)
    open_: dict[Hashable, int] = {}
    kept: list[Op] = []
    for number, op in enumerate(ops):
        place = number
        pair = keys(op) if isinstance(op, Mma) else None
        if isinstance(op, Mma) and pair is not None:
            first = open_.get(pair[1])
            head = ops[first] if first is not None else None
            if first is not None and isinstance(head, Mma) and _may_move(op, first, ops, constant, writer, touched):
                merge(head, op)
                head.changed()
                place = first
                open_.pop(pair[1])
                again = keys(head)
                pair = again or pair
            open_[pair[0]] = place
        for access in op.reads:
            if access.ref.base != constant:
                touched.mark(access, number)
        for access in op.writes:
            touched.mark(access, place)
            writer.mark(access, place)
        if place == number:
            kept.append(op)
    return kept


def _may_move(op: Mma, first: int, ops: Sequence[Op], constant: int, writer: Track, touched: Track) -> bool:
    """Whether a product may run at place `first` instead of its own."""
    if touched.largest(op.c) > first:
        return False
    scales = None if op.codes is None else op.codes.scales
    fixed = [ref for ref in (op.a, op.table, scales) if ref is not None]
    if any(ref.base != constant and writer.largest(ref) >= first for ref in fixed):
        return False
    if op.b.base == constant:
        return True
    found = writer.at(op.b)
    late = np.unique(found[found >= first]).tolist()
    return all(op.cut is not None and appends_beyond(ops[number], op.b, op.cut) for number in late)


def _common(op: Mma) -> tuple[Hashable, ...] | None:
    if op.clamp is not None and op.table is None:
        post: Hashable = op.clamp
    else:
        post = (op.clamp, op.table is None)
    return (op.pred, op.kn, op.scale, post)


def _k_keys(op: Mma) -> tuple[Hashable, Hashable] | None:
    """Along k: same c; a's next columns, b's next columns or, with kn, rows."""
    if op.c.dtype is not DType.F32 or not op.plain or (op.cut is not None and not op.kn):
        return None
    k = op.a.shape[2]
    pace = op.b.stride[1] if op.kn else op.b.stride[2]
    step = (op.cut.amount.step, bool(op.cut.edges)) if op.cut else None
    shared = (op.pred, op.kn, op.scale, op.c, step, _frame(op.a, 2), _frame(op.b, 1 if op.kn else 2))

    def key(a: int, b: int, plus: int | None) -> Hashable:
        return (*shared, a, b, plus)

    plus = op.cut.amount.plus if op.cut else None
    offers = key(op.a.offset + k * op.a.stride[2], op.b.offset + k * pace, None if plus is None else plus - k)
    needs = key(op.a.offset, op.b.offset, plus) if op.adds else ("first", id(op))
    return offers, needs


def _n_keys(op: Mma) -> tuple[Hashable, Hashable] | None:
    """Along n: same a; b's next rows or, with kn, columns; c's next columns."""
    if (op.cut is not None and op.kn) or (op.cut is not None and not op.plain):
        return None
    n = op.c.shape[2]
    pace = op.b.stride[2] if op.kn else op.b.stride[1]
    step = (op.cut.amount.step, bool(op.cut.edges)) if op.cut else None
    scales = None if op.codes is None else op.codes.scales
    shared = (
        _common(op),
        None if op.codes is None else replace(op.codes, scales=None),
        scales and _frame(scales, 0),
        op.adds,
        op.a,
        step,
        _frame(op.b, 2 if op.kn else 1),
        _frame(op.c, 2),
        op.table and op.table.base,
    )

    def key(b: int, c: int, table: int, plus: int | None, scale: int) -> Hashable:
        return (*shared, b, c, table, plus, scale)

    scale = 0 if scales is None else scales.offset
    table = op.table.offset if op.table else 0
    plus = op.cut.amount.plus if op.cut else None
    after = key(op.b.offset + n * pace, op.c.offset + n * op.c.stride[2], table + n * _TABLE_ROW if op.table else 0,
                None if plus is None else plus - n, scale + n * scales.stride[0] if scales else 0)  # fmt: skip
    return after, key(op.b.offset, op.c.offset, table, plus, scale)


def _m_keys(op: Mma) -> tuple[Hashable, Hashable] | None:
    """Along m: same b; next rows of a and c. Single matrices only."""
    if op.cut is not None or op.c.shape[0] != 1:
        return None
    m = op.c.shape[1]
    shared = (_common(op), op.adds, op.b, op.codes, op.table, _frame(op.a, 1), _frame(op.c, 1))
    after = (*shared, op.a.offset + m * op.a.stride[1], op.c.offset + m * op.c.stride[1])
    return after, (*shared, op.a.offset, op.c.offset)


def _frame(ref: Ref, free: int) -> Hashable:
    """All of a view but its offset and its extent along one dimension."""
    shape = tuple(0 if dim == free else extent for dim, extent in enumerate(ref.shape))
    strides = tuple(0 if extent == 1 else pace for extent, pace in zip(ref.shape, ref.stride, strict=True))
    if ref.shape[free] == 1:
        strides = ref.stride
    return (ref.base, ref.plane, ref.dtype, shape, ref.stride[free], strides[:free], strides[free + 1 :])


def _longer(ref: Ref, dim: int, by: int) -> Ref:
    return replace(ref, shape=(*ref.shape[:dim], ref.shape[dim] + by, *ref.shape[dim + 1 :]))


def _cut(first: Mma, second: Mma) -> Cut | None:
    """The cut of both together; their amounts follow each other (`key` has made sure)."""
    if first.cut is None or second.cut is None:
        return None
    amount = first.cut.amount
    edges = (*first.cut.edges, *(amount.most + edge for edge in second.cut.edges))
    return Cut(Amount(amount.step, amount.plus, amount.most + second.cut.amount.most), edges)


def _merge_k(first: Mma, second: Mma) -> None:
    k = second.a.shape[2]
    first.cut = _cut(first, second)
    first.a, first.b = _longer(first.a, 2, k), _longer(first.b, 1 if first.kn else 2, k)


def _merge_n(first: Mma, second: Mma) -> None:
    n = second.c.shape[2]
    first.cut = _cut(first, second)
    first.b, first.c = _longer(first.b, 2 if first.kn else 1, n), _longer(first.c, 2, n)
    if first.table is not None:
        first.table = _longer(first.table, 0, n)
    if first.codes is not None and first.codes.scales is not None:
        first.codes = replace(first.codes, scales=_longer(first.codes.scales, 0, n))


def _merge_m(first: Mma, second: Mma) -> None:
    m = second.c.shape[1]
    first.a, first.c = _longer(first.a, 1, m), _longer(first.c, 1, m)
