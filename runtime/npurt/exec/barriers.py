"""The queues and barriers of one entry as a machine without time.

Rules: a queue runs its tasks in table order. Barrier rows are programmed in order, row v as soon as row v - 1 has been
and its physical id is free. A task may start when `start_after` rows have been programmed and every id in its wait mask
has no producer left; starting takes one consumer from each of these. Completion takes one producer from each id in its
post mask. An id is free again when producers and consumers are both zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npurt.errors import BlobError, DeadlockError
from npurt.image import TaskRef

BARRIER_IDS = 128  # width of the masks


@dataclass(frozen=True, slots=True)
class Sync:
    """Barriers of one task: physical ids, and how many rows must have been programmed before it starts."""

    wait: tuple[int, ...]
    post: tuple[int, ...]
    start_after: int


def mask_ids(words: Sequence[int]) -> tuple[int, ...]:
    """The set bits of a mask of two 64-bit words."""
    mask = int(words[0]) | int(words[1]) << 64
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


class BarrierMachine:
    """State of one entry's queues and barriers. barriers: (id, producers, consumers) rows in programming order."""

    def __init__(
        self, queues: Sequence[Sequence[TaskRef]], sync: Sequence[Sync], barriers: Sequence[tuple[int, int, int]]
    ):
        self._queues, self._sync, self._barriers = queues, sync, barriers
        self._next = [0] * len(queues)
        self._producers = [0] * BARRIER_IDS
        self._consumers = [0] * BARRIER_IDS
        self._programmed = 0
        self._program()

    def run(self) -> Iterator[TaskRef]:
        """The tasks in an allowed order: in turn each queue runs what it may. DeadlockError names the stuck tasks."""
        moved = True
        while moved:
            moved = False
            for number, queue in enumerate(self._queues):
                while self._next[number] < len(queue) and self._may_start(queue[self._next[number]]):
                    task = queue[self._next[number]]
                    self._next[number] += 1
                    self._take(self._consumers, self._sync[task.index].wait, task, "waits for")
                    yield task
                    self._take(self._producers, self._sync[task.index].post, task, "posts")
                    moved = True
        stuck = [queue[at] for queue, at in zip(self._queues, self._next, strict=True) if at < len(queue)]
        if stuck:
            heads = "; ".join(f"{task} waits for {self._reason(task)}" for task in stuck)
            raise DeadlockError(f"no queue can go on: {heads}")
        if self._programmed < len(self._barriers) or any(self._producers) or any(self._consumers):
            raise BlobError("all tasks have run and barriers are left that no task posted or waited for")

    def _may_start(self, task: TaskRef) -> bool:
        sync = self._sync[task.index]
        return sync.start_after <= self._programmed and not any(self._producers[number] for number in sync.wait)

    def _reason(self, task: TaskRef) -> str:
        sync = self._sync[task.index]
        if sync.start_after > self._programmed:
            return f"barrier row {sync.start_after - 1}, {self._programmed} rows are programmed"
        return ", ".join(f"barrier {n} ({self._producers[n]} producers left)" for n in sync.wait if self._producers[n])

    def _take(self, counts: list[int], ids: tuple[int, ...], task: TaskRef, verb: str) -> None:
        for number in ids:
            if not counts[number]:
                raise BlobError(f"{task} {verb} barrier {number} once more than the barrier table says")
            counts[number] -= 1
        if ids:
            self._program()

    def _program(self) -> None:
        while self._programmed < len(self._barriers):
            number, producers, consumers = self._barriers[self._programmed]
            if self._producers[number] or self._consumers[number]:
                return
            self._producers[number], self._consumers[number] = producers, consumers
            self._programmed += 1
