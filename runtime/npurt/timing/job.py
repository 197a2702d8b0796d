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
    """Why a queue stands still."""

    NONE = 0
    WAIT = 1  # a barrier that another queue has to post
    BARRIER = 2  # a row of the barrier table that no physical id is free for
    OUTSTANDING = 3  # as many transfers in flight as the engine can have
    DONE = 4  # no task is left


@dataclass(frozen=True)
class Costs:
    """Of each task, [tasks] int64 in picoseconds unless said otherwise.

    setup: issue and launch. latency: of a transfer, after which its data are there. work: transfer or computation at
    the full rate. pool: number of the pool that the transfer draws on, -1 for none. demand: its full rate in bytes per
    second.
    """

    setup: np.ndarray
    latency: np.ndarray
    work: np.ndarray
    pool: np.ndarray
    demand: np.ndarray


@dataclass(frozen=True)
class Job:
    """One run. A queue takes its tasks in the order of their index.

    queues: names. queue: number of each task's queue. barriers: (id, producers, consumers) in programming order.
    sync: barriers of each task. pools: bytes per second. outstanding: of each queue. flag_latency: picoseconds from
    a task's end to where its barriers see it.
    """

    queues: tuple[str, ...]
    queue: np.ndarray
    costs: Costs
    sync: Sequence[Sync]
    barriers: Sequence[tuple[int, int, int]]
    pools: tuple[int, ...]
    outstanding: tuple[int, ...]
    flag_latency: int


@dataclass(frozen=True)
class Times:
    """What happened, [tasks] int64 each, times in picoseconds.

    start, release, end: of the task on its queue, of the queue for the next task, and of the task's effect. stall: how
    long the queue stood still before the start; reason: a `Stall`. cause: the task that the start waited for, -1 for
    none; at_start: that task's start was the event, and not its end.
    """

    start: np.ndarray
    release: np.ndarray
    end: np.ndarray
    stall: np.ndarray
    reason: np.ndarray
    cause: np.ndarray
    at_start: np.ndarray

    @property
    def makespan(self) -> int:
        return int(self.end.max(initial=0))
