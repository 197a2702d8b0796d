"""Dependencies between tasks, from the bytes they touch on placed addresses.

Two tasks depend when their regions share a byte and at least one writes it, whatever the buffers: reuse of memory is
the same thing as use of a value. A task is ordered after all earlier tasks of its queue, so only the latest task of
each other queue matters, and that only where it is not already known to be complete. "Known" is one number per queue:
because a queue is in order, the highest completed task says everything.

Rows of state: a load with `valid` = n_past reads rows below n_past, a store shifted by n_past writes rows from n_past
on. These two never meet, so that a load of the past need not wait for the store of the new rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from npuc.schedule.bytes import Shape, overlap, shape_of
from npuc.schedule.place import Placement
from npuc.tasks.graph import Buffer, CopyOp, Region, Role, Task, TaskGraph


@dataclass(frozen=True)
class Dependencies:
    """producers: for each task the tasks of other queues that it must wait for, in rising order; already reduced.

    conflicts: pairs (latest conflicting task of another queue, task) that queue order did not imply, before the
    reduction.
    """

    producers: list[tuple[int, ...]]
    conflicts: int


@dataclass(frozen=True, slots=True)
class Access:
    """One region of one task on addresses of its space. shift: the step field that moves it; below: the one that
    bounds it.
    """

    task: int
    queue: int
    low: int
    shape: Shape
    shift: str
    below: str

    @property
    def solid(self) -> bool:
        """Whether it touches every byte of its span, whatever the step."""
        return not self.shape.steps and not self.shift

    def covers(self, other: Access) -> bool:
        """Whether it surely touches every byte that the other touches (cheap, so only the two usual cases)."""
        if self.solid and not other.shift:
            return self.low <= other.low and other.low + other.shape.reach <= self.low + self.shape.reach
        return self.low == other.low and self.shape == other.shape and self.shift == other.shift

    def meets(self, other: Access) -> bool:
        """Whether the two share a byte, for some values of the step block."""
        if self.shift == other.shift:
            return overlap(self.low, self.shape, other.low, other.shape)
        return not ((self.shift and self.shift == other.below) or (other.shift and other.shift == self.below))


class _Space:
    """Accesses of one address space that a later access may still have to wait for, by segment of addresses.

    Segments are adjacent and sorted; a write that fills a segment ends the life of all accesses before it.
    """

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.writers: list[list[Access]] = [[]]
        self.readers: list[list[Access]] = [[]]

    def read(self, access: Access, low: int, high: int, latest: list[int]) -> None:
        """Notes a read of [low, high) and raises `latest` (the last task to wait for, per queue) by the writers it
        meets.
        """
        for at in range(self._split(low), self._split(high)):
            _raise(latest, access, self.writers[at])
            readers = self.readers[at]
            readers[:] = [old for old in readers if old.queue != access.queue or not self._within(at, access, old)]
            readers.append(access)

    def write(self, access: Access, low: int, high: int, latest: list[int]) -> None:
        """Notes a write of [low, high) and raises `latest` by the readers and writers it meets."""
        first, stop = self._split(low), self._split(high)
        for at in range(first, stop):
            _raise(latest, access, self.writers[at])
            _raise(latest, access, self.readers[at])
        if access.solid:
            self.starts[first:stop] = [low]
            self.writers[first:stop] = [[access]]
            self.readers[first:stop] = [[]]
            return
        for at in range(first, stop):
            self.writers[at] = [old for old in self.writers[at] if not access.covers(old)]
            self.readers[at] = [old for old in self.readers[at] if not access.covers(old)]
            self.writers[at].append(access)

    def _split(self, address: int) -> int:
        """Index of the segment that starts at `address`, made by cutting one in two where needed."""
        at = bisect_left(self.starts, address)
        if at == len(self.starts) or self.starts[at] != address:
            self.starts.insert(at, address)
            self.writers.insert(at, self.writers[at - 1].copy())
            self.readers.insert(at, self.readers[at - 1].copy())
        return at

    def _within(self, at: int, access: Access, old: Access) -> bool:
        """Whether `access` stands for `old` inside segment `at`: solid accesses fill each segment that they touch."""
        return access.solid or access.covers(old)


def _raise(latest: list[int], access: Access, others: list[Access]) -> None:
    for other in reversed(others):  # the latest first: it makes most of the others irrelevant
        if other.task > latest[other.queue] and access.meets(other):
            latest[other.queue] = other.task


def depend(graph: TaskGraph, placement: Placement, queues: list[str]) -> Dependencies:
    """Reduced dependencies of the graph's tasks. queues: for each task the name of its queue."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(queues))}
    queue_of = [numbers[name] for name in queues]
    written = {_space_key(region.buffer) for task in graph.tasks for region in task.writes}
    spaces: dict[str | Buffer, _Space] = {}
    known: list[list[int]] = []  # per task and queue: the last task that is complete when this task starts
    last = [-1] * len(numbers)
    producers: list[tuple[int, ...]] = []
    conflicts = 0
    for index, task in enumerate(graph.tasks):
        queue = queue_of[index]
        own = last[queue]
        clock = known[own].copy() if own >= 0 else [-1] * len(numbers)
        clock[queue] = index  # so that nothing of the own queue counts
        latest = clock.copy()
        for region in task.reads:
            if _space_key(region.buffer) in written:
                _note(spaces, placement, task, index, queue, region, False, latest)
        for region in task.writes:
            _note(spaces, placement, task, index, queue, region, True, latest)
        wanted = sorted((at for at, seen in zip(latest, clock, strict=True) if at > seen), reverse=True)
        conflicts += len(wanted)
        kept = []
        for producer in wanted:  # the latest first: it knows most
            if clock[queue_of[producer]] < producer:
                kept.append(producer)
                clock = [max(a, b) for a, b in zip(clock, known[producer], strict=True)]
                clock[queue_of[producer]] = max(clock[queue_of[producer]], producer)
        clock[queue] = own
        producers.append(tuple(reversed(kept)))
        known.append(clock)
        last[queue] = index
    return Dependencies(producers, conflicts)


def _space_key(buffer: Buffer) -> str | Buffer:
    """Local buffers of one memory share its addresses; every other buffer is memory of its own."""
    return buffer.memory if buffer.role is Role.LOCAL else buffer


def _note(
    spaces: dict[str | Buffer, _Space],
    placement: Placement,
    task: Task,
    index: int,
    queue: int,
    region: Region,
    writes: bool,
    latest: list[int],
) -> None:
    """Enters one region of a task into its space."""
    shape = shape_of(region.dtype, region.shape, region.stride)
    if shape is None:
        return
    buffer = region.buffer
    low = placement.offsets.get(buffer, 0) + region.offset - shape.back
    shift = below = ""
    if isinstance(task.op, CopyOp):
        shift = (task.op.shift_dst if writes else task.op.shift_src) or ""
        if not writes and not shift and task.op.valid is not None:
            below = task.op.valid.field
    high = placement.offsets.get(buffer, 0) + buffer.nbytes if shift else low + shape.reach
    space = spaces.setdefault(_space_key(buffer), _Space())
    access = Access(index, queue, low, shape, shift, below)
    (space.write if writes else space.read)(access, low, high, latest)
