"""Spilling: where on-chip buffers do not fit together, one that nothing uses for a while leaves the chip meanwhile.

A buffer's life has a gap between two tasks in a row that touch it. Over a gap its content can be had back in one of
two ways: where only loads made it, and their sources have not changed, the loads are repeated; else it is stored to a
DDR scratch buffer after its last write, and loaded from there. Either way the content returns right before its next
use, under a new buffer, so that the life is two lives with nothing between them.

Choice at the first task that holds too much, until it fits: of the gaps that free enough the one that moves the
fewest bytes, of those the one whose next use is furthest (Belady); where none frees enough, the one with the fewest
bytes moved for each byte freed. Everything is judged in trace order, by counts and sizes alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from npuc.schedule.access import Access, accesses_of
from npuc.tasks.graph import Buffer, CopyOp, Role, Task, TaskGraph


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of a buffer's life without a task that touches it, and how its content comes back.

    before, after: tasks that touch the buffer last before and first after the gap. loads: tasks to repeat; where there
    are none, the content is stored after task `stored` (stores: whether no earlier gap had it stored already). moved:
    bytes that this costs.
    """

    buffer: Buffer
    before: int
    after: int
    loads: tuple[int, ...]
    stored: int
    stores: bool
    moved: int


@dataclass(slots=True)
class _Touches:
    """Tasks that touch one buffer in trace order, and those of them that write it."""

    tasks: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)


class Spiller:
    """Picks gaps of the buffers of one memory until no task holds more than its ceiling."""

    def __init__(self, graph: TaskGraph, memory: str) -> None:
        self.graph, self.memory = graph, memory
        self.chosen: list[Gap] = []
        self._touches: dict[Buffer, _Touches] = {}
        self._taken: set[tuple[Buffer, int]] = set()
        self._kept: set[tuple[Buffer, int]] = set()  # stored already: (buffer, the write behind which it was)
        for index, task in enumerate(graph.tasks):
            for buffer in dict.fromkeys(region.buffer for region in (*task.reads, *task.writes)):
                self._touches.setdefault(buffer, _Touches()).tasks.append(index)
            for buffer in dict.fromkeys(region.buffer for region in task.writes):
                self._touches[buffer].writes.append(index)
        self._local = [b for b in self._touches if b.memory == memory and b.role is Role.LOCAL]
        self.load = self._load()

    def relieve(self, ceiling: np.ndarray) -> bool:
        """Chooses gaps so that `load` (bytes live at each task) is nowhere above `ceiling`; False where it stays."""
        held = True
        for task in np.flatnonzero(self.load > ceiling).tolist():
            while self.load[task] > ceiling[task]:
                gaps = self._gaps(task)
                if not gaps:
                    held = False
                    break
                self._take(_best(gaps, int(self.load[task] - ceiling[task])))
        return held

    def _load(self) -> np.ndarray:
        change = np.zeros(len(self.graph.tasks) + 1, np.int64)
        for buffer in self._local:
            tasks = self._touches[buffer].tasks
            change[tasks[0]] += buffer.nbytes
            change[tasks[-1] + 1] -= buffer.nbytes
        return np.cumsum(change)[:-1]

    def _take(self, gap: Gap) -> None:
        self.chosen.append(gap)
        self._taken.add((gap.buffer, gap.before))
        if not gap.loads:
            self._kept.add((gap.buffer, gap.stored))
        self.load[gap.before + 1 : gap.after] -= gap.buffer.nbytes

    def _gaps(self, task: int) -> list[Gap]:
        """The gaps around a task that are not taken yet, in order of the buffers' first use."""
        gaps = []
        for buffer in self._local:
            tasks = self._touches[buffer].tasks
            if not tasks[0] < task < tasks[-1] or buffer.pinned is not None:
                continue
            at = bisect_left(tasks, task)
            written = self._touches[buffer].writes
            if tasks[at] != task and (buffer, tasks[at - 1]) not in self._taken and written and written[0] < task:
                gaps.append(self._gap(buffer, tasks[at - 1], tasks[at]))
        return gaps

    def _gap(self, buffer: Buffer, before: int, after: int) -> Gap:
        writes = self._touches[buffer].writes
        made = tuple(writes[: bisect_left(writes, after)])
        again = sum(region.nbytes for at in made for region in self.graph.tasks[at].writes)
        kept = (buffer, made[-1]) in self._kept
        stored_bytes = buffer.nbytes if kept else 2 * buffer.nbytes
        if again <= stored_bytes and all(self._repeatable(at, after) for at in made):
            return Gap(buffer, before, after, made, made[-1], False, again)
        return Gap(buffer, before, after, (), made[-1], not kept, stored_bytes)

    def _repeatable(self, index: int, until: int) -> bool:
        """Whether the task is a load that gives the same bytes again right before task `until`."""
        task = self.graph.tasks[index]
        if not isinstance(task.op, CopyOp) or task.flag is not None or len(task.reads) != 1 or len(task.writes) != 1:
            return False
        source = task.reads[0].buffer
        if source.memory != "ddr":
            return False
        writes = self._touches[source].writes
        between = writes[bisect_left(writes, index) : bisect_left(writes, until)]
        read = [access for access in _of_buffer(index, task, source) if not access.writes]
        return not any(
            access.conflicts(other)
            for at in between
            for other in _of_buffer(at, self.graph.tasks[at], source)
            for access in read
        )


def _of_buffer(index: int, task: Task, buffer: Buffer) -> Sequence[Access]:
    """The task's accesses of one buffer, at addresses from its start."""
    kept = Task(
        task.engine,
        task.op,
        tuple(region for region in task.reads if region.buffer is buffer),
        tuple(region for region in task.writes if region.buffer is buffer),
    )
    return list(accesses_of(index, kept, _AT_START))


_AT_START: Mapping[Buffer, int] = {}


def _best(gaps: Sequence[Gap], missing: int) -> Gap:
    """Of the gaps that free `missing` bytes the cheapest, then the one with the furthest use; else the best ratio."""
    enough = [gap for gap in gaps if gap.buffer.nbytes >= missing]
    if enough:
        return min(enough, key=lambda gap: (gap.moved, -gap.after))
    return min(gaps, key=lambda gap: (Fraction(gap.moved, gap.buffer.nbytes), -gap.after, -gap.buffer.nbytes))
