"""Which plane holds each byte of memory, in task order; conversions where a task wants another plane than the last
writer's.

In a program that reads each value in the type in which it was written there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from npurt.abi.dtypes import DType
from npurt.fast.cells import Cells, Track, exact
from npurt.fast.lift import LinkError
from npurt.fast.ops import Convert, Op
from npurt.fast.refs import Plane, Ref, raw
from npurt.image import TaskRef

_NARROW = {Plane.HALF: DType.F16, Plane.BRAIN: DType.BF16}


def settle(ops: Sequence[Op], constant: int, homes: Mapping[int, Ref], ignored: Callable[[Op], str]) -> list[Op]:
    """The tasks with conversions between them.

    homes: of each base whose contents outlive a run all of it, on its plane before and after. ignored: the operand of a
    task that may hold anything where this run has not written it. Errors: LinkError where narrow elements lie at odd
    bytes.
    """
    touched = [access.ref for op in ops for access in (*op.reads, *op.writes) if access.ref.base != constant]
    if all(ref.plane is Plane.RAW for ref in (*touched, *homes.values())):
        return list(ops)
    cells = Cells(ops, constant, homes.values())
    kept = _kept(ops, cells, homes, ignored)
    owner = cells.track(int(Plane.RAW), np.int8)
    for home in homes.values():
        owner.put(raw(home), int(home.plane))
    settled: list[Op] = []
    for number, op in enumerate(ops):
        skipped = ignored(op)
        for access in op.reads:
            if access.ref.base != constant and access.slot != skipped:
                settled += _fetch(op.task, access.ref, owner, cells)
        for access in op.writes:
            if (number, access.slot) in kept:
                settled += _fetch(op.task, access.ref, owner, cells)
        settled.append(op)
        for access in op.writes:
            owner.put(raw(access.ref), int(access.ref.plane))
    for home in homes.values():
        settled += _fetch(ops[-1].task, home, owner, cells) if ops else []
    return settled


def _kept(
    ops: Sequence[Op], cells: Cells, homes: Mapping[int, Ref], ignored: Callable[[Op], str]
) -> set[tuple[int, str]]:
    """Operands, by task and slot, that are written in part while what lay there before is still read later."""
    live = cells.track(0, np.bool_)
    for home in homes.values():
        live.put(raw(home), 1)
    kept: set[tuple[int, str]] = set()
    for number in reversed(range(len(ops))):
        op = ops[number]
        for access in op.writes:
            if access.sure and op.pred is None and exact(access.ref):
                live.put(raw(access.ref), 0)
            elif live.at(raw(access.ref)).any():
                kept.add((number, access.slot))
        skipped = ignored(op)
        for access in op.reads:
            if access.ref.base != cells.constant and access.slot != skipped:
                live.put(raw(access.ref), 1)
    return kept


def _fetch(task: TaskRef, ref: Ref, owner: Track, cells: Cells) -> list[Op]:
    """Conversions that bring all of a view to its plane."""
    found = owner.at(raw(ref))
    wrong = np.flatnonzero(found != int(ref.plane))
    if not wrong.size:
        return []
    places = cells.places(ref)
    made: list[Op] = []
    breaks = np.flatnonzero((np.diff(places[wrong]) != 1) | (np.diff(found[wrong]) != 0)) + 1
    for run in np.split(wrong, breaks):
        low, high = cells.range_of(ref.base, int(places[run[0]]), int(places[run[-1]]))
        if low % 2 or high % 2:
            raise LinkError(f"{task} wants bytes {low} to {high} of base {ref.base} in another element type: odd ends")
        for source, target in _ways(Plane(int(found[run[0]])), ref.plane):
            dtype = _NARROW[source if source is not Plane.RAW else target]
            there = Ref(ref.base, target, dtype, low, ((high - low) // 2,), (2,))
            made.append(Convert(task, None, Ref(ref.base, source, dtype, low, there.shape, (2,)), there))
        owner.put(raw(there), int(ref.plane))
    return made


def _ways(source: Plane, target: Plane) -> list[tuple[Plane, Plane]]:
    """The conversions from one plane to another, by way of the bytes."""
    steps = [(source, Plane.RAW), (Plane.RAW, target)]
    return [(a, b) for a, b in steps if a is not b]
