"""The period of a task list: layers repeat, and so do their tasks, but for the weights, states and names they use.

Two tasks are alike when engine, operation, predicates and regions are equal, a region's buffer being known by its
size and memory and by how many tasks ago it was touched last. So alike stretches use their buffers alike, also those
that pass from one to the next. Buffers that nothing writes are free to differ: no order depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.tasks.graph import Buffer, Task, TaskGraph

_SHORT = 128  # tasks; lives are stretched by some tens, beyond these more than one period is of no use
_TURNS = 3


@dataclass(frozen=True, slots=True)
class Period:
    """Tasks start to stop - 1 are `count` stretches of `length` tasks, each alike to the one before it."""

    start: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.length * self.count

    def multiples(self) -> list[Period]:
        """The period, and where it is short several of it as one: buffers that take turns need as many to repeat."""
        longer = list(range(2, _SHORT // self.length + 1))[:_TURNS]
        return [Period(self.start, self.length * times, self.count // times) for times in (1, *longer)]


def find_period(graph: TaskGraph, keep: int) -> Period | None:
    """The repetition that leaves the fewest tasks when all but `keep` of its stretches are dropped, if there is one."""
    kinds = task_kinds(graph)
    best, saved = None, 0
    for length in _lags(kinds):
        start, stop = _longest_run(kinds[length:] == kinds[:-length])
        count = (stop - start) // length + 1
        if (count - keep) * length > saved:
            best, saved = Period(start, length, count), (count - keep) * length
    return best


def task_kinds(graph: TaskGraph) -> np.ndarray:
    """[tasks] int64: equal numbers for tasks that are alike."""
    mutable = {region.buffer for task in graph.tasks for region in task.writes}
    numbers: dict[object, int] = {}
    last: dict[Buffer, tuple[int, int]] = {}
    kinds = np.zeros(len(graph.tasks), np.int64)
    for index, task in enumerate(graph.tasks):
        kinds[index] = numbers.setdefault(_kind(index, task, mutable, last), len(numbers))
    return kinds


def _kind(index: int, task: Task, mutable: set[Buffer], last: dict[Buffer, tuple[int, int]]) -> object:
    """What must be equal for two tasks to be alike. last: (task, place of the region) of each buffer's last touch."""
    regions = []
    for place, region in enumerate((*task.reads, *task.writes)):
        buffer = region.buffer
        about: object = buffer.role
        if buffer in mutable:
            before = last.get(buffer)
            ago = None if before is None else (index - before[0], before[1])
            last[buffer] = index, place
            about = (buffer.role, buffer.memory, buffer.nbytes, buffer.align, buffer.pinned, region.offset, ago)
        regions.append((region.dtype, region.shape, region.stride, about))
    return task.engine, task.op, task.when, task.flag, len(task.reads), tuple(regions)


def _lags(kinds: np.ndarray) -> list[int]:
    """Distances worth a look, rising: those at which some kind of task keeps coming back."""
    order = np.argsort(kinds, kind="stable")
    sorted_kinds = kinds[order]
    bounds = np.flatnonzero(np.diff(sorted_kinds)) + 1
    lags: set[int] = set()
    for places in np.split(order, bounds):
        if len(places) > 2:
            steps = np.diff(places)
            middle = int(np.sort(steps)[len(steps) // 2])
            if 2 * np.count_nonzero(steps == middle) > len(steps):
                lags.add(middle)
    return sorted(lags)


def _longest_run(same: np.ndarray) -> tuple[int, int]:
    """Bounds of the longest stretch of True, the first of equals."""
    edges = np.diff(np.concatenate(([0], same.astype(np.int8), [0])))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(starts):
        return 0, 0
    longest = int(np.argmax(stops - starts))
    return int(starts[longest]), int(stops[longest])
