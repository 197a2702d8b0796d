"""What the timing machine runs: tasks on queues with their costs and barriers, without records and without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from npurt.exec.barriers import Sync

PS = 10**12
"""Picoseconds of a second: times are whole picoseconds, so that sums are exact and equal on every host."""


class Stall(IntEnum):
    """Why a queue stands still before a task."""

    NONE = 0
    WAIT = 1  # a barrier that another queue has to post
    BARRIER = 2  # a row of the barrier table that no physical id is free for
    OUTSTANDING = 3  # as many transfers in flight as the engine can have
    ISSUE = 4  # the scalar unit has not issued the task yet


@dataclass(frozen=True)
class Costs:
    """Of each task, [tasks] int64 in picoseconds unless said otherwise.

    setup: issue and launch. latency: of a transfer, after which its data are there. work: transfer or computation at
    the full rate. conflicts: the part of work that is lost to bank conflicts inside the task. pools: [tasks, most of a
    task], numbers of the pools that the transfer draws on, -1 for none. demand: its full rate in bytes per second.
    """

    setup: np.ndarray
    latency: np.ndarray
    work: np.ndarray
    conflicts: np.ndarray
    pools: np.ndarray
    demand: np.ndarray


@dataclass(frozen=True)
class Shared:
    """A rate that transfers share, in bytes per second. bank: of one bank of a memory, else of a way to memory."""

    rate: int
    bank: bool = False


@dataclass(frozen=True)
class Issue:
    """Scalar units that issue the tasks one after the other, in the order of their index.

    unit: [tasks] int64, number of the unit that issues the task, -1 where none does. queues: of each unit, the number
    of the queue of the tasks that it runs itself, -1 where it has none: it issues nothing else until such a task has
    ended. cost: picoseconds of each issue.
    """

    unit: np.ndarray
    queues: tuple[int, ...]
    cost: int


@dataclass(frozen=True)
class Job:
    """One run. A queue takes its tasks in the order of their index.

    queues: names. queue: number of each task's queue. barriers: (id, producers, consumers) in programming order.
    sync: barriers of each task. outstanding: of each queue. flag_latency: picoseconds from a task's end to where its
    barriers see it. issue: None where a task needs no unit to issue it.
    """

    queues: tuple[str, ...]
    queue: np.ndarray
    costs: Costs
    sync: Sequence[Sync]
    barriers: Sequence[tuple[int, int, int]]
    pools: tuple[Shared, ...]
    outstanding: tuple[int, ...]
    flag_latency: int
    issue: Issue | None = None


@dataclass(frozen=True)
class Times:
    """What happened, [tasks] int64 each, times in picoseconds.

    start, release, end: of the task on its queue, of the queue for the next task, and of the task's effect. stall: how
    long the queue stood still before the start; reason: a `Stall`. bandwidth, bank: how much longer the task took
    because others drew on the same way, or on the same bank. cause: the task that the start waited for, -1 for none;
    at_start: that task's start was the event, and not its end. issued: of a start that waited for its issue, the time
    since the scalar unit began to issue.
    """

    start: np.ndarray
    release: np.ndarray
    end: np.ndarray
    stall: np.ndarray
    reason: np.ndarray
    bandwidth: np.ndarray
    bank: np.ndarray
    cause: np.ndarray
    issued: np.ndarray
    at_start: np.ndarray

    @property
    def makespan(self) -> int:
        return int(self.end.max(initial=0))
