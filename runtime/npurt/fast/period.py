"""Equal layers are linked once: a few of them stand for all, and what becomes of one is stamped out for the others.

Two tasks are alike when they differ in nothing but where their constants lie and which states they touch. An entry
whose tasks are alike from stretch to stretch is linked with the first KEPT stretches alone, and what follows the last.
If the model, the last but one of them, comes out as the one before it, copies of it fill the gap: constants move as
they do between the tasks that were given, and states are exchanged likewise. The last one of those kept, which has seen
what follows, becomes the last of all in the same way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from npurt.fast.ops import Convert, Op
from npurt.fast.stamp import Moves, plain, refs_of, stamped

KEPT = 4  # stretches that are linked: two that may differ, the model, and the last


@dataclass(frozen=True)
class Period:
    """Tasks start to start + length * count - 1 are `count` stretches of `length` tasks, each alike to the next."""

    start: int
    length: int
    count: int

    def stretch(self, number: int) -> range:
        """The tasks of a stretch."""
        return range(self.start + number * self.length, self.start + (number + 1) * self.length)

    @property
    def gap(self) -> range:
        """The tasks that are not linked."""
        return range(self.start + KEPT * self.length, self.start + self.count * self.length)


def find_period(ops: Sequence[Op], constant: int, states: Set[int]) -> Period | None:
    """The repetition whose gap is the longest, None where there is no gap. constant: base of the constants; states:
    bases that are states."""
    numbers: dict[Hashable, int] = {}
    kinds = np.array([numbers.setdefault(plain(op, constant, states), len(numbers)) for op in ops], np.int64)
    best = None
    for length in _lags(kinds):
        start, stop = _longest_run(kinds[length:] == kinds[:-length])
        found = Period(start, length, (stop - start) // length + 1)
        if len(found.gap) > (0 if best is None else len(best.gap)):
            best = found
    return best


class Shortened:
    """An entry's tasks without the gap. ops: what is to be linked; the passes may change them."""

    def __init__(self, ops: Sequence[Op], period: Period, constant: int, states: Set[int]) -> None:
        self._period, self._constant, self._states = period, constant, states
        self.ops = [*ops[: period.gap.start], *ops[period.gap.stop :]]
        self._tasks = [op.task for op in ops]
        self._place = {task: number for number, task in enumerate(self._tasks)}
        views = [[ref for number in period.stretch(at) for ref in refs_of(ops[number])] for at in range(period.count)]
        model, last = KEPT - 2, period.count - 1
        self._model = [
            Moves(views[model - 1 : model + 2], views[at - 1 : at + 2], constant, states)
            for at in range(model + 1, last)
        ]
        self._last = Moves(views[model : model + 2], views[last - 1 :], constant, states)
        self._behind = [ref for op in ops[period.gap.stop :] for ref in refs_of(op)]

    def lengthened(self, linked: Sequence[Op]) -> list[Op] | None:
        """All tasks of the entry, from the linked ones of the short one; None where that cannot be told."""
        period = self._period
        before, model, last = (self._of(linked, period.stretch(KEPT - back)) for back in (3, 2, 1))
        if self._like(before, KEPT - 3) != self._like(model, KEPT - 2) or any(map(self._fetches, linked)):
            return None
        if not all(self._last.keeps(ref) for ref in self._behind):
            return None
        found: list[Op | None] = []
        for turn, moves in enumerate(self._model, 1):
            found += [stamped(op, self._tasks[self._place[op.task] + turn * period.length], moves) for op in model]
        found += [stamped(op, self._tasks[self._place[op.task] + len(period.gap)], self._last) for op in last]
        behind = self._of(linked, range(period.gap.stop, len(self._tasks)))
        found += [stamped(op, op.task, self._last, others=True) for op in behind]
        known = [op for op in found if op is not None]
        return [*self._of(linked, range(period.stretch(KEPT - 1).start)), *known] if len(known) == len(found) else None

    def _of(self, linked: Sequence[Op], span: range) -> list[Op]:
        return [op for op in linked if self._place[op.task] in span]

    def _like(self, ops: Sequence[Op], number: int) -> list[Hashable]:
        """What linked tasks of a stretch are, and which of its tasks."""
        first = self._period.stretch(number).start
        return [(self._place[op.task] - first, plain(op, self._constant, self._states)) for op in ops]

    def _fetches(self, op: Op) -> bool:
        """Whether a task converts a state: for those of the gap nobody has asked."""
        return isinstance(op, Convert) and op.src.base in self._states


def _lags(kinds: np.ndarray) -> list[int]:
    """Distances at which most tasks of some kind come back, rising."""
    order = np.argsort(kinds, kind="stable")
    lags: set[int] = set()
    for places in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        if len(places) > KEPT:
            steps, counts = np.unique(np.diff(places), return_counts=True)
            if 2 * counts.max() > len(places) - 1:
                lags.add(int(steps[counts.argmax()]))
    return sorted(lags)


def _longest_run(same: np.ndarray) -> tuple[int, int]:
    """Bounds of the longest stretch of True, the first of equals."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    if not len(edges):
        return 0, 0
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    return int(edges[2 * longest]), int(edges[2 * longest + 1])
