"""Long graphs of equal layers by way of short ones: a few stretches stand for all, and are stamped out again.

The short graph is the long one without most of its stretches; what follows them uses the buffers of the stretch before
it, as it does in the long graph. It is arranged like any other graph. Two neighbouring stretches of it, the model and
the one before, then show whether it is steady: every region lies at the same bytes, every task waits for the same tasks
of its own stretch and the one before. If so, stretches like the model may follow it in any number:

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


@dataclass(frozen=True)
class Short:
    """A graph with `kept` of the stretches of a long one, whose period is `period`.

    model: which of the stretches stands for the dropped ones, counted from 0; those before it, but for the last, and
    those behind it may differ.
    """

    graph: TaskGraph
    period: Period
    kept: int
    model: int

    @property
    def dropped(self) -> int:
        """Tasks of the long graph that the short one lacks."""
        return (self.period.count - self.kept) * self.period.length

    @property
    def first(self) -> int:
        """First task of the model stretch."""
        return self.period.start + self.model * self.period.length

    def likeness(self, task: int) -> int:
        """The task of the short graph that stands for a task of the long one."""
        if task < self.first:
            return task
        if task < self.first + self.dropped:
            return self.first + (task - self.first) % self.period.length
        return task - self.dropped


def shorten(graph: TaskGraph, period: Period, kept: int, model: int) -> Short | None:
    """The short graph of a long one whose period counts more than `kept` (at least 3) stretches.

    None where buffers of several stretches are used after the last: what waits there grows with their number.
    """
    short = Short(TaskGraph(graph.entry, [], graph.rows, graph.capacity), period, kept, model)
    cut = period.start + kept * period.length
    last: dict[Buffer, tuple[int, int]] = {}
    for index in range(cut, period.stop):
        for place, region in enumerate(_regions(graph.tasks[index])):
            last[region.buffer] = index, place
    rest = graph.tasks[period.stop :]
    instead: dict[Buffer, Buffer] = {}
    for buffer in dict.fromkeys(region.buffer for task in rest for region in _regions(task)):
        index, place = last.get(buffer, (-1, 0))
        if 0 <= index < period.start + short.dropped:
            return None
        instead[buffer] = _regions(graph.tasks[index - short.dropped])[place].buffer if index >= 0 else buffer
    if len(set(instead.values())) < len(instead):
        return None
    short.graph.tasks += graph.tasks[:cut]
    short.graph.tasks += [_with_buffers(task, instead) for task in rest]
    return short


def together(short: Short) -> dict[Buffer, Buffer] | None:
    """The buffers that must lie at the same place for all stretches to be equal: for each the one that stands for it.

    None where two of them live at the same time, so that no single stretch can repeat.
    """
    period, tasks = short.period, short.graph.tasks
    stands: dict[Buffer, Buffer] = {}

    def root(buffer: Buffer) -> Buffer:
        while stands.setdefault(buffer, buffer) is not buffer:
            buffer = stands[buffer]
        return buffer

    ends: dict[Buffer, list[int]] = {}
    for index, task in enumerate(tasks):
        for place, region in enumerate(_regions(task)):
            if region.buffer.role is Role.LOCAL:
                ends.setdefault(region.buffer, [index, index])[1] = index
                if period.start + period.length <= index < period.start + short.kept * period.length:
                    stands[root(region.buffer)] = root(_regions(tasks[index - period.length])[place].buffer)
    latest: dict[Buffer, int] = {}
    for buffer, (first, last) in ends.items():
        if latest.get(root(buffer), -1) >= first:
            return None
        latest[root(buffer)] = last
    return {buffer: root(buffer) for buffer in ends}


def unsteady(short: Short, arranged: Arranged) -> str:
    """Why the model cannot be stamped behind itself; empty if it can."""
    length, tasks = short.period.length, short.graph.tasks
    offsets = arranged.placement.offsets
    written = {region.buffer for task in tasks for region in task.writes}
    old = written.intersection(region.buffer for task in tasks[: short.first - length] for region in _regions(task))
    for task in range(short.first, short.first + length):
        before = task - length
        for one, other in zip(_regions(tasks[before]), _regions(tasks[task]), strict=True):
            if one.buffer.role is Role.LOCAL and offsets[one.buffer] != offsets[other.buffer]:
                return f"{one.buffer.name} and {other.buffer.name} of the next period lie at different addresses"
            if other.buffer in old and one.buffer is not other.buffer and one.buffer.role is not Role.LOCAL:
                return f"{other.buffer.name} is used again after more than one period"
        if any(producers[0] < short.first - length for producers in arranged.waits[task]):
            return f"task {task} waits for a task more than a period before its own"
        if arranged.waits[before] != _shifted(arranged.waits[task], -length, 0):
            return f"task {before} and its likeness of the next period, {task}, wait for different tasks"
    return ""


def lengthen(short: Short, arranged: Arranged, graph: TaskGraph) -> Arranged:
    """Placement and waits of the long graph, from those of its steady short one."""
    known = arranged.placement.offsets
    offsets: dict[Buffer, int] = {}
    waits: Waits = []
    for index, task in enumerate(graph.tasks):
        like = short.likeness(index)
        for region, stands in zip(_regions(task), _regions(short.graph.tasks[like]), strict=True):
            if region.buffer.role is Role.LOCAL:
                offsets.setdefault(region.buffer, known[stands.buffer])
        waits.append(_shifted(arranged.waits[like], index - like, short.first - short.period.length))
    return Arranged(Placement(offsets, arranged.placement.peaks), waits)


def _shifted(waited: tuple[tuple[int, ...], ...], by: int, start: int) -> tuple[tuple[int, ...], ...]:
    """The same barriers with every producer from task `start` on moved."""
    if not by:
        return waited
    return tuple(tuple(task + by if task >= start else task for task in producers) for producers in waited)


def _regions(task: Task) -> tuple[Region, ...]:
    return (*task.reads, *task.writes)


def _with_buffers(task: Task, instead: dict[Buffer, Buffer]) -> Task:
    """The task on other buffers; the task itself where these are its own."""
    if all(instead[region.buffer] is region.buffer for region in _regions(task)):
        return task
    reads, writes = (
        tuple(replace(region, buffer=instead[region.buffer]) for region in regions)
        for regions in (task.reads, task.writes)
    )
    return replace(task, reads=reads, writes=writes)
