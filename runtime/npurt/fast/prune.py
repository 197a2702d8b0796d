"""Link pass: drops tasks and outputs of vector programs that write what nobody reads.

Scratchpad and scratch hold nothing from one run to the next, so a backward walk knows all readers.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from npurt.fast.cells import Cells
from npurt.fast.ops import Call, Op


def prune(ops: Sequence[Op], constant: int, local: Set[int]) -> list[Op]:
    """The tasks that matter. local: bases whose contents end with the run."""
    cells = Cells(ops, constant)
    live = cells.track(0, np.bool_)
    kept: list[Op] = []
    for op in reversed(ops):
        needed = [access for access in op.writes if access.ref.base not in local or live.get(access.ref).any()]
        if not needed:
            continue
        if isinstance(op, Call):
            op.dead |= {int(access.slot) for access in op.writes} - {int(access.slot) for access in needed}
        for access in needed:
            if access.sure and op.pred is None and cells.exact(access.ref):
                live.set(access.ref, 0)
        for access in op.reads:
            if access.ref.base != constant:
                live.set(access.ref, 1)
        kept.append(op)
    return kept[::-1]
