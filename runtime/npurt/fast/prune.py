"""Link pass: drops tasks and outputs of vector programs that write what nobody reads.

Scratchpad and scratch hold nothing from one run to the next, so a backward walk knows all readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import numpy as np

from npurt.fast.cells import Cells, exact
from npurt.fast.ops import Access, Call, Op

Touched = Callable[[Op], tuple[list[Access], list[Access]] | None]


def prune(ops: Sequence[Op], cells: Cells, local: Set[int], members: Touched = lambda op: None) -> list[Op]:
    """The tasks that matter. local: bases whose contents end with the run.

    members: what tasks that stay anyway read and write, None for all others.
    """
    live = cells.track(0, np.bool_)
    kept: list[Op] = []
    for op in reversed(ops):
        member = members(op)
        reads, writes = (op.reads, op.writes) if member is None else member
        needed = [access for access in writes if access.ref.base not in local or live.get(access).any()]
        if member is None and not needed:
            continue
        if isinstance(op, Call) and member is None:
            op.dead |= {int(access.slot) for access in writes} - {int(access.slot) for access in needed}
            op.changed()
        for access in needed:
            if access.sure and op.pred is None and exact(access.ref):
                live.mark(access, 0)
        for access in reads:
            if access.ref.base != cells.constant:
                live.mark(access, 1)
        kept.append(op)
    return kept[::-1]
