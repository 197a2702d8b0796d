"""Who made what a task reads, and who reads what it made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npurt.fast.cells import Cells
from npurt.fast.ops import Call, Mma, Op
from npurt.fast.refs import Plane


def uses(ops: Sequence[Op], cells: Cells) -> tuple[dict[int, list[int]], dict[int, set[int]]]:
    """Of each task the tasks that made what it reads, and those that read what it made."""
    track = cells.track(-1, np.int32)
    makers: dict[int, list[int]] = {}
    readers: dict[int, set[int]] = {}
    for number, op in enumerate(ops):
        found: set[int] = set()
        for access in op.reads:
            if access.ref.base != cells.constant:
                found |= track.values(access)
        makers[number] = sorted(found - {-1})
        for maker in makers[number]:
            readers.setdefault(maker, set()).add(number)
        for access in op.writes:
            track.mark(access, number)
    return makers, readers


def widen(ops: Sequence[Op], cells: Cells, local: set[int]) -> None:
    """Marks products whose result vector programs alone read: it stays float32, as rounding it would cost more than the
    product. What a vector program stores is rounded, so that values between kernels are on the device's grid.
    """
    narrow = [
        number for number, op in enumerate(ops)
        if isinstance(op, Mma) and not op.adds and op.c.plane is not Plane.RAW and op.c.base in local
    ]  # fmt: skip
    if not narrow:
        return
    _, readers = uses(ops, cells)
    for number in narrow:
        op, found = ops[number], readers.get(number, set())
        if isinstance(op, Mma) and found and all(isinstance(ops[reader], Call) for reader in found):
            op.wide = True
