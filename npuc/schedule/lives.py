"""Lives of local buffers in trace order, and how far they may be stretched so that queues run beside each other.

A life is the range of tasks that touch a buffer. It is stretched to begin some tasks earlier, so that the task that
first writes the buffer need not wait for the previous user of these bytes: double buffering without a second name. A
buffer that a transfer fills is stretched further than one that is computed, because a transfer can run ahead of
everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.tasks.graph import Buffer, CopyOp, GatherOp, Role, Task, TaskGraph


@dataclass(eq=False, slots=True)
class Lives:
    """Local buffers of one memory, in order of first use. Arrays are int64, one element a buffer.

    first, last: first and last task that touch the buffer. early: tasks by which the life is stretched to begin
    earlier. group: number of the buffer's group; buffers of one group lie at the same place, one after the other.
    """

    buffers: list[Buffer]
    first: np.ndarray
    last: np.ndarray
    early: np.ndarray
    nbytes: np.ndarray
    group: np.ndarray

    @property
    def begin(self) -> np.ndarray:
        """First task of the stretched life."""
        begin: np.ndarray = self.first - self.early
        return begin

    def ends(self, chosen: Sequence[int]) -> list[tuple[int, int]]:
        """First and last task of the chosen buffers."""
        return list(zip(self.first[chosen].tolist(), self.last[chosen].tolist(), strict=True))

    def groups(self) -> dict[int, list[int]]:
        """Buffers of each group, in order of first use."""
        found: dict[int, list[int]] = {}
        for index, number in enumerate(self.group.tolist()):
            found.setdefault(number, []).append(index)
        return found

    def load(self, tasks: int, stretched: bool) -> np.ndarray:
        """Bytes live at each of `tasks` tasks."""
        change = np.zeros(tasks + 1, np.int64)
        np.add.at(change, self.begin if stretched else self.first, self.nbytes)
        np.add.at(change, self.last + 1, -self.nbytes)
        return np.cumsum(change)[:tasks]

    def shrink(self, tight: np.ndarray) -> bool:
        """Halves the longest of the stretches that cover a tight task (bool per task); False if there is none."""
        upto = np.concatenate(([0], np.cumsum(tight)))
        covering = (upto[self.first] > upto[self.begin]) & (self.early > 0)
        if not covering.any():
            return False
        longest = int(self.early[covering].max())
        self.early[covering & (self.early > longest // 2)] //= 2
        return True


def local_lives(
    graph: TaskGraph, prefetch: int, overlap: int, together: Mapping[Buffer, Buffer] | None = None
) -> dict[str, Lives]:
    """Lives of the LOCAL buffers by memory.

    prefetch: tasks by which the life of a buffer that a transfer fills begins earlier; overlap: of any other buffer.
    together: for each buffer of a group the one that stands for it; their lives, as they are, do not meet.
    """
    together = together or {}
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for index, task in enumerate(graph.tasks):
        for region in (*task.reads, *task.writes):
            first.setdefault(region.buffer, index)
            last[region.buffer] = index
    by_memory: dict[str, list[Buffer]] = {}
    for buffer in first:
        if buffer.role is Role.LOCAL:
            by_memory.setdefault(buffer.memory, []).append(buffer)
    lives = {}
    for memory, buffers in by_memory.items():
        begins = [first[buffer] for buffer in buffers]
        wanted = [
            prefetch if _fills(graph.tasks[at], buffer) else overlap for at, buffer in zip(begins, buffers, strict=True)
        ]
        numbers: dict[Buffer, int] = {}
        ends: dict[int, int] = {}
        groups = [numbers.setdefault(together.get(buffer, buffer), len(numbers)) for buffer in buffers]
        for at, (buffer, group) in enumerate(zip(buffers, groups, strict=True)):
            wanted[at] = min(wanted[at], begins[at] - ends.get(group, -1) - 1)
            ends[group] = last[buffer]
        lives[memory] = Lives(
            buffers,
            np.array(begins, np.int64),
            np.array([last[buffer] for buffer in buffers], np.int64),
            np.array(wanted, np.int64),
            np.array([buffer.nbytes for buffer in buffers], np.int64),
            np.array(groups, np.int64),
        )
    return lives


def _fills(task: Task, buffer: Buffer) -> bool:
    """Whether the task is a transfer into the buffer from another memory."""
    return isinstance(task.op, CopyOp | GatherOp) and task.reads[0].buffer.memory != buffer.memory
