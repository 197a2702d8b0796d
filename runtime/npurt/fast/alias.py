"""Link pass `alias`: a task that reads what a copy has made reads the copy's source instead.

Legal where the whole view was last written by that one copy, which ran if the reader runs, and nothing has written the
source since. A cache's rows below n_past count as unwritten by an append, which starts at row n_past. The copy itself
goes in `prune` when no reader is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npurt.abi.records import Step
from npurt.fast.cells import Cells, Track
from npurt.fast.ops import FLAG, Call, Copy, Cut, Gather, Mma, Op
from npurt.fast.refs import Ref, through
from npurt.fast.steps import Amount, Predicate


def alias(ops: Sequence[Op], cells: Cells) -> None:
    """Replaces operands in place."""
    writer = cells.track(-1, np.int32)
    for number, op in enumerate(ops):
        if isinstance(op, Mma | Call | Copy | Gather):
            _redirect(op, ops, writer, cells.constant)
        for access in op.writes:
            writer.mark(access, number)


def _redirect(op: Op, ops: Sequence[Op], writer: Track, constant: int) -> None:
    for access in op.reads:
        ref = access.ref
        if ref.base == constant or not _replaceable(op, access.slot):
            continue
        last = writer.only(access)
        copy = ops[last] if last is not None and last >= 0 else None
        if (
            not isinstance(copy, Copy)
            or not _plain(copy)
            or copy.pred not in (None, op.pred)
            or ref.dtype is not copy.dst.dtype
        ):
            continue
        cuts = isinstance(copy.valid, Amount)
        found = through(copy.dst, copy.src, ref, copy.row_dim if cuts else -1)
        if found is None:
            continue
        cut = None
        if cuts:
            cut = _cut(op, access.slot, copy, found.dim, found.first)
            if cut is None:
                continue
        if found.ref.base != constant and not _intact(found.ref, cut, last or 0, ops, writer):
            continue
        op.put(access.slot, found.ref)
        if cut is not None and isinstance(op, Mma):
            op.cut = cut
            op.changed()
            _drop_predicate(op, cut)


def _replaceable(op: Op, slot: str) -> bool:
    """Whether an operand may lie anywhere: not one that is written too, and no flag."""
    if slot == FLAG:
        return False
    if isinstance(op, Mma):
        return slot in ("a", "b", "table", "scales")
    if isinstance(op, Call):
        return not op.program.args[int(slot)].writes
    if isinstance(op, Copy):
        return False  # its reader may do without it; what it reads stays where another pass can look for it
    return slot == "index"


def _plain(copy: Copy) -> bool:
    """A copy without conversion and shifts, all of whose destination is written."""
    moves = copy.src.plane is copy.dst.plane and copy.src.dtype is copy.dst.dtype
    all_valid = copy.valid == copy.dst.shape[copy.row_dim] or (isinstance(copy.valid, Amount) and copy.clears)
    return moves and all_valid and copy.src_shift is None and copy.dst_shift is None


def _cut(op: Op, slot: str, copy: Copy, dim: int, first: int) -> Cut | None:
    """The cut of a product's b that comes from a copy with a changing number of valid rows."""
    if not isinstance(op, Mma) or slot != "b" or op.cut is not None or dim != 1 or not (op.kn or op.plain):
        return None
    assert isinstance(copy.valid, Amount)
    rows = op.b.shape[1]
    if first and first + rows > copy.valid.most:
        return None
    return Cut(Amount(copy.valid.step, copy.valid.plus - first, rows), ())


def _drop_predicate(op: Mma, cut: Cut) -> None:
    """A predicate that says no more than that there is a valid row goes: the cut says it."""
    if op.pred == Predicate(cut.amount.step, -cut.amount.plus) and (not op.kn or op.adds):
        op.pred = None
        op.cut = replace(cut, edges=(cut.amount.most,))
        op.changed()


def _intact(source: Ref, cut: Cut | None, copied: int, ops: Sequence[Op], writer: Track) -> bool:
    """Whether nothing has written `source` since task `copied`."""
    found = writer.at(source)
    late = found[found > copied]
    if not late.size:
        return True
    return cut is not None and all(appends_beyond(ops[int(number)], source, cut) for number in np.unique(late))


def appends_beyond(op: Op, source: Ref, cut: Cut) -> bool:
    """Whether `op` writes rows from n_past on of a cache of whose rows `source` only has those below n_past.

    Both views must have rows of one length in buffers of one layout, [groups, rows, elements] or [rows, elements].
    """
    amount = cut.amount
    if (
        not isinstance(op, Copy)
        or op.dst_shift is None
        or op.dst_shift.step is not Step.N_PAST
        or amount.step is not Step.N_PAST
    ):
        return False
    target = op.dst
    pace = target.stride[op.row_dim]
    if pace <= 0 or source.stride[1] != pace or op.dst_shift.stride != pace:
        return False
    inner = [
        (extent, step)
        for extent, step in zip(target.shape[op.row_dim + 1 :], target.stride[op.row_dim + 1 :], strict=True)
    ]
    inner_end = sum((extent - 1) * step for extent, step in inner) + target.dtype.nbytes
    groups = {
        step for extent, step in zip(target.shape[: op.row_dim], target.stride[: op.row_dim], strict=True) if extent > 1
    } | ({source.stride[0]} if source.shape[0] > 1 else set())
    first_read, first_write = source.offset // pace, target.offset // pace
    if source.shape[2] * source.stride[2] > pace - source.offset % pace or inner_end > pace - target.offset % pace:
        return False
    if any(step < 0 for _, step in inner) or len(groups) > 1 or source.stride[2] < 0:
        return False
    last_write = first_write + op.dst_shift.most + target.shape[op.row_dim]
    if groups:
        group = next(iter(groups))
        if group % pace:
            return False
        rows = group // pace
        # a group's rows neither reach the next group in reading nor in writing
        if (
            first_read // rows * rows + rows < first_read + source.shape[1]
            or last_write - first_write // rows * rows > rows
        ):
            return False
        first_read, first_write = first_read % rows, first_write % rows
    return first_read + amount.plus <= first_write
