"""What the scheduler needs to know about a machine, and options of a schedule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The scheduler's view of a target.

    queues: for each engine name of the tasks the in-order queue that runs it. memory_bytes: size of each memory of limited
    size. barriers: physical barriers of one tile. slots: most producers, and most consumers, of one barrier.
    slots_total: most of both together.
    """

    queues: dict[str, str]
    memory_bytes: dict[str, int]
    barriers: int
    slots: int
    slots_total: int


@dataclass(frozen=True)
class ScheduleOptions:
    """prefetch: by how many tasks in trace order a transfer's buffer may live longer than its use, so that the transfer can
    run while other tiles compute. More costs memory; it is given up by itself where memory is short."""

    prefetch: int = 16
