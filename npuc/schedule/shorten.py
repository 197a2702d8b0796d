"""Long graphs of equal layers by way of short ones: three stretches stand for all, and are stamped out again.

The short graph is the long one without its stretches from the third to the last but one; what follows them uses the
buffers of the stretch before it, as it does in the long graph. It is arranged like any other graph. Its second and
third stretch then show whether it is steady: every region lies at the same bytes, every task waits for the same tasks
of its own stretch and the one before. If so, stretches like these may stand between them in any number:

- Buffers that live at the same time in the long graph have likenesses that do so in these stretches of the short one.
- Two tasks of the long graph that share a byte are less than a stretch apart, and then their likenesses are ordered in
  the short graph by tasks between them; or the earlier one shares the byte with the later one's likeness one stretch
  before, which runs in the same queue.
- As many barriers are open at a task as at its likeness.

(The checker, which knows nothing of stretches, proves the whole program all the same.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuc.schedule.arrange import Arranged, Waits
from npuc.schedule.period import Period
from npuc.schedule.place import Placement
from npuc.tasks.graph import Buffer, Region, Role, Task, TaskGraph

KEPT = 3  # stretches of the short graph: one that may differ, two that must be equal


@dataclass(frozen=True)
class Short:
    """A graph with KEPT of its stretches; `period` is that of the long graph."""

    graph: TaskGraph
    period: Period

    @property
    def dropped(self) -> int:
        """Tasks of the long graph that the short one lacks."""
        return (self.period.count - KEPT) * self.period.length

    def likeness(self, task: int) -> int:
        """The task of the short graph that stands for a task of the long one."""
        period = self.period
        third = period.start + (KEPT - 1) * period.length
        if task < third:
            return task
        if task < third + self.dropped:
            return third + (task - third) % period.length
        return task - self.dropped


def shorten(graph: TaskGraph, period: Period) -> Short | None:
    """The short graph of a long one whose period counts more than KEPT stretches; None where a buffer of an early
    stretch is used after the last: what waits there grows with the number of stretches.
    """
    short = Short(TaskGraph(graph.entry, [], graph.rows, graph.capacity), period)
    cut = period.start + KEPT * period.length
    last: dict[Buffer, tuple[int, int]] = {}
    for index in range(cut, period.stop):
        for place, region in enumerate(_regions(graph.tasks[index])):
            last[region.buffer] = index, place
    instead: dict[Buffer, Buffer] = {}
    for task in graph.tasks[period.stop :]:
        for region in _regions(task):
            if region.buffer in last:
                index, place = last[region.buffer]
                if index - short.dropped < period.start:
                    return None
                instead[region.buffer] = _regions(graph.tasks[index - short.dropped])[place].buffer
    short.graph.tasks += graph.tasks[:cut]
    short.graph.tasks += [_with_buffers(task, instead) for task in graph.tasks[period.stop :]]
    return short


def together(short: Short) -> dict[Buffer, Buffer] | None:
    """The buffers that must lie at the same place for the last two stretches to be equal: for each the first of them.

    None where two of them live at the same time, so that no single stretch can repeat.
    """
    period, tasks = short.period, short.graph.tasks
    second = period.start + (KEPT - 2) * period.length
    stands: dict[Buffer, Buffer] = {}

    def root(buffer: Buffer) -> Buffer:
        while stands.setdefault(buffer, buffer) is not buffer:
            buffer = stands[buffer]
        return buffer

    for task in range(second, second + period.length):
        for one, other in zip(_regions(tasks[task]), _regions(tasks[task + period.length]), strict=True):
            if one.buffer.role is Role.LOCAL:
                stands[root(other.buffer)] = root(one.buffer)
    ends: dict[Buffer, list[int]] = {}
    for index, each in enumerate(tasks):
        for region in _regions(each):
            if region.buffer in stands:
                ends.setdefault(region.buffer, [index, index])[1] = index
    latest: dict[Buffer, int] = {}
    for buffer, (first, last) in ends.items():
        if latest.get(root(buffer), -1) >= first:
            return None
        latest[root(buffer)] = last
    return {buffer: root(buffer) for buffer in ends}


def unsteady(short: Short, arranged: Arranged) -> str:
    """Why nothing can be stamped between the last two stretches; empty if it can."""
    period, tasks = short.period, short.graph.tasks
    second = period.start + (KEPT - 2) * period.length
    offsets = arranged.placement.offsets
    for task in range(second, second + period.length):
        pairs = zip(_regions(tasks[task]), _regions(tasks[task + period.length]), strict=True)
        for one, other in pairs:
            if one.buffer.role is Role.LOCAL and offsets[one.buffer] != offsets[other.buffer]:
                return f"{one.buffer.name} and {other.buffer.name} of the next period lie at different addresses"
        waited = arranged.waits[task + period.length]
        if any(producers[0] < second for producers in waited):
            return f"task {task + period.length} waits for a task more than a period before its own"
        if arranged.waits[task] != _shifted(waited, -period.length, 0):
            return f"tasks {task} and {task + period.length} of the next period wait for different tasks"
    return ""


def lengthen(short: Short, arranged: Arranged, graph: TaskGraph) -> Arranged:
    """Placement and waits of the long graph, from those of its steady short one."""
    known = arranged.placement.offsets
    second = short.period.start + (KEPT - 2) * short.period.length
    offsets: dict[Buffer, int] = {}
    waits: Waits = []
    for index, task in enumerate(graph.tasks):
        like = short.likeness(index)
        for region, stands in zip(_regions(task), _regions(short.graph.tasks[like]), strict=True):
            if region.buffer.role is Role.LOCAL:
                offsets.setdefault(region.buffer, known[stands.buffer])
        waits.append(_shifted(arranged.waits[like], index - like, second))
    return Arranged(Placement(offsets, arranged.placement.peaks), waits)


def _shifted(waited: tuple[tuple[int, ...], ...], by: int, start: int) -> tuple[tuple[int, ...], ...]:
    """The same barriers with every producer from task `start` on moved."""
    if not by:
        return waited
    return tuple(tuple(task + by if task >= start else task for task in producers) for producers in waited)


def _regions(task: Task) -> tuple[Region, ...]:
    return (*task.reads, *task.writes)


def _with_buffers(task: Task, instead: dict[Buffer, Buffer]) -> Task:
    """The task on other buffers; the task itself where it touches none of those replaced."""
    if not any(region.buffer in instead for region in _regions(task)):
        return task
    reads, writes = (
        tuple(replace(region, buffer=instead.get(region.buffer, region.buffer)) for region in regions)
        for regions in (task.reads, task.writes)
    )
    return replace(task, reads=reads, writes=writes)
