"""Lives of local buffers in trace order, and how far they may be stretched so that transfers overlap computation.

A life is the range of tasks that touch a buffer. A buffer that a transfer fills gets its memory a few tasks before the
transfer stands in the trace, so that the transfer need not wait for the previous user of these bytes: double buffering
without a second name. A buffer that a transfer empties keeps its memory a few tasks longer for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.tasks.graph import Buffer, CopyOp, GatherOp, Role, Task, TaskGraph


@dataclass(eq=False, slots=True)
class Lives:
    """Local buffers of one memory. Arrays are int64, one element a buffer; task indices are inclusive.

    first, last: first and last task that touch the buffer. early, late: tasks by which the life is stretched.
    """

    buffers: list[Buffer]
    first: np.ndarray
    last: np.ndarray
    early: np.ndarray
    late: np.ndarray
    nbytes: np.ndarray

    @property
    def begin(self) -> np.ndarray:
        """First task of the stretched life."""
        begin: np.ndarray = self.first - self.early
        return begin

    @property
    def end(self) -> np.ndarray:
        """Last task of the stretched life."""
        end: np.ndarray = self.last + self.late
        return end

    def load(self, tasks: int, stretched: bool) -> np.ndarray:
        """Bytes live at each of `tasks` tasks."""
        begin, end = (self.begin, self.end) if stretched else (self.first, self.last)
        change = np.zeros(tasks + 1, np.int64)
        np.add.at(change, begin, self.nbytes)
        np.add.at(change, end + 1, -self.nbytes)
        return np.cumsum(change)[:tasks]


OV=4
LT=1
def local_lives(graph: TaskGraph, prefetch: int) -> dict[str, Lives]:
    """Lives of the LOCAL buffers by memory, in order of first use, stretched by up to `prefetch` tasks on a
    transfer's side.
    """
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
    end = len(graph.tasks) - 1
    lives = {}
    for memory, buffers in by_memory.items():
        begins = [first[buffer] for buffer in buffers]
        ends = [last[buffer] for buffer in buffers]
        filled = [_fills(graph.tasks[at], buffer) for at, buffer in zip(begins, buffers, strict=True)]
        emptied = [_empties(graph.tasks[at], buffer) for at, buffer in zip(ends, buffers, strict=True)]
        begin_array, end_array = np.array(begins, np.int64), np.array(ends, np.int64)
        lives[memory] = Lives(
            buffers,
            begin_array,
            end_array,
            np.minimum(np.where(filled, prefetch, OV), begin_array),
            np.where(emptied, np.minimum(OV*LT, end - end_array), 0),
            np.array([buffer.nbytes for buffer in buffers], np.int64),
        )
    return lives


def _fills(task: Task, buffer: Buffer) -> bool:
    """Whether the task is a transfer into the buffer from another memory."""
    return (
        isinstance(task.op, CopyOp | GatherOp)
        and task.writes[0].buffer is buffer
        and task.reads[0].buffer.memory != buffer.memory
    )


def _empties(task: Task, buffer: Buffer) -> bool:
    """Whether the task is a transfer out of the buffer into another memory."""
    return (
        isinstance(task.op, CopyOp) and task.reads[0].buffer is buffer and task.writes[0].buffer.memory != buffer.memory
    )
