"""Dependencies between tasks, from the bytes they touch on placed addresses.

Two tasks depend when their regions share a byte and at least one writes it, whatever the buffers: reuse of memory is
the same thing as use of a value. A task is ordered after all earlier tasks of its queue, so only the latest task of
each other queue matters, and that only where it is not already known to be complete. "Known" is one number per queue:
because a queue is in order, the highest completed task says everything. It also bounds the search: what is known to be
complete is never looked at again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from npuc.schedule.access import Access, Space, accesses_of, space_of
from npuc.schedule.place import Placement
from npuc.tasks.graph import TaskGraph

_FEW = 12  # accesses that are faster to compare one by one than as arrays


@dataclass(frozen=True)
class Dependencies:
    """producers: for each task the tasks of other queues that it must wait for, in rising order; already reduced.

    conflicts: pairs (latest conflicting task of another queue, task) that queue order did not imply, before the
    reduction.
    """

    producers: list[tuple[int, ...]]
    conflicts: int


@dataclass
class _History:
    """Accesses of one queue to one space, in trace order."""

    accesses: list[Access] = field(default_factory=list)

    def freeze(self) -> None:
        """Makes the columns that searches compare."""
        self.tasks = [access.task for access in self.accesses]
        self.low = np.array([access.low for access in self.accesses], np.int64)
        self.high = np.array([access.high for access in self.accesses], np.int64)
        self.writes = np.array([access.writes for access in self.accesses], np.bool_)

    def latest(self, access: Access, known: int) -> int:
        """The last task after `known` and before the access's own that it must wait for; `known` if there is none."""
        start, stop = bisect_right(self.tasks, known), bisect_left(self.tasks, access.task)
        near: Sequence[int] = range(start, stop)
        if stop - start > _FEW:
            meets = (self.low[start:stop] < access.high) & (self.high[start:stop] > access.low)
            if not access.writes:
                meets &= self.writes[start:stop]
            near = (np.flatnonzero(meets) + start).tolist()
        for at in reversed(near):
            if access.conflicts(self.accesses[at]):
                return self.tasks[at]
        return known


def depend(graph: TaskGraph, placement: Placement, queues: Sequence[str]) -> Dependencies:
    """Reduced dependencies of the graph's tasks. queues: for each task the name of its queue."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(queues))}
    queue_of = [numbers[name] for name in queues]
    accesses, histories = _collect(graph, placement, queue_of)
    known: list[list[int]] = []  # per task and queue: the last task that is complete when this task starts
    last = [-1] * len(numbers)
    producers: list[tuple[int, ...]] = []
    conflicts = 0
    for index, queue in enumerate(queue_of):
        clock = known[last[queue]].copy() if last[queue] >= 0 else [-1] * len(numbers)
        clock[queue] = last[queue]
        latest = clock.copy()
        for access in accesses[index]:
            for other, history in histories[access.space].items():
                if other != queue:
                    latest[other] = history.latest(access, latest[other])
        wanted = sorted((at for at, seen in zip(latest, clock, strict=True) if at > seen), reverse=True)
        conflicts += len(wanted)
        kept = []
        for producer in wanted:  # the latest first: it knows most
            if clock[queue_of[producer]] < producer:
                kept.append(producer)
                clock = [max(a, b) for a, b in zip(clock, known[producer], strict=True)]
                clock[queue_of[producer]] = producer
        producers.append(tuple(reversed(kept)))
        known.append(clock)
        last[queue] = index
    return Dependencies(producers, conflicts)


def _collect(
    graph: TaskGraph, placement: Placement, queue_of: Sequence[int]
) -> tuple[list[list[Access]], dict[Space, dict[int, _History]]]:
    """(accesses of each task, histories by space and queue), without the spaces that nothing writes."""
    mutable = {space_of(region.buffer) for task in graph.tasks for region in task.writes}
    accesses: list[list[Access]] = []
    histories: dict[Space, dict[int, _History]] = {}
    for index, task in enumerate(graph.tasks):
        found = [access for access in accesses_of(index, task, placement.offsets) if access.space in mutable]
        accesses.append(found)
        for access in found:
            by_queue = histories.setdefault(access.space, {})
            by_queue.setdefault(queue_of[index], _History()).accesses.append(access)
    for by_queue in histories.values():
        for history in by_queue.values():
            history.freeze()
    return accesses, histories
