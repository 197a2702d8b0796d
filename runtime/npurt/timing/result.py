"""What a timing-only run gives: the makespan, and where the time of each queue went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npurt.abi.records import Step
from npurt.timing.job import Job, Stall, Times

ON_CHIP = ("cmx",)
NOT_DDR = (*ON_CHIP, "fill")


@dataclass(frozen=True)
class QueueInfo:
    """A queue and the engine that serves it. kind: "dma", "matrix" or "vector"."""

    name: str
    engine: str
    kind: str


@dataclass(frozen=True)
class QueueTime:
    """The time of one queue, in picoseconds: busy, stalled and idle time are the makespan.

    busy is work (at the full rate) and launch (with the issue, where no scalar unit does that). stalls by reason:
    "wait <queue>", "barriers" (no free id), "queue full" (as many transfers in flight as there can be), "issue" (by
    the scalar unit), "latency" (held by the port), "bandwidth" and "bank" (others drew on the same way, or on the same
    bank; a bank conflict inside the task counts, too). idle: no task is left.
    """

    name: str
    tasks: int
    work: int
    launch: int
    stalls: Mapping[str, int]
    idle: int

    @property
    def busy(self) -> int:
        return self.work + self.launch

    @property
    def held(self) -> int:
        """Time for which its own tasks keep the queue, however well they are ordered."""
        return self.busy + self.stalls.get("latency", 0) + self.stalls.get("bank", 0)


@dataclass(frozen=True)
class Traffic:
    """Transfers between two classes of memory. read, written: bytes at either end."""

    source: str
    sink: str
    transfers: int
    read: int
    written: int


@dataclass(frozen=True)
class Timing:
    """One run of one entry. nodes, active: of each task, as its columns in `times` and `job.costs`.

    held: the reading of DMA latency. assumed: keys of the target's numbers that the run rests on and that are assumed.
    """

    entry: str
    step: Mapping[Step, int]
    held: bool
    info: tuple[QueueInfo, ...]
    job: Job
    times: Times
    active: np.ndarray
    nodes: tuple[str, ...]
    traffic: tuple[Traffic, ...]
    assumed: tuple[str, ...]

    @property
    def makespan(self) -> int:
        """Picoseconds from the start to the end of the last task."""
        return self.times.makespan

    @property
    def ddr_read(self) -> int:
        """Bytes that cross from DDR."""
        return sum(row.read for row in self.traffic if row.source not in NOT_DDR)

    @property
    def ddr_written(self) -> int:
        """Bytes that cross to DDR."""
        return sum(row.written for row in self.traffic if row.sink not in ON_CHIP)

    @cached_property
    def queues(self) -> tuple[QueueTime, ...]:
        return tuple(self._queue(number) for number in range(len(self.job.queues)))

    def _queue(self, number: int) -> QueueTime:
        job, times = self.job, self.times
        chosen = job.queue == number

        def total(column: np.ndarray) -> int:
            return int(column[chosen].sum())

        conflicts = total(job.costs.conflicts)
        stalls = {
            "latency": total(job.costs.latency) if self.held else 0,
            "bandwidth": total(times.bandwidth),
            "bank": total(times.bank) + conflicts,
        }
        for reason, name in STALL_NAMES.items():
            stalls[name] = int(times.stall[chosen & (times.reason == reason)].sum())
        waiting = chosen & (times.reason == Stall.WAIT)
        other = job.queue[times.cause[waiting]]
        for q, name in enumerate(job.queues):
            stalls[f"wait {name}"] = int(times.stall[waiting][other == q].sum())
        kept = dict(sorted((name, time) for name, time in stalls.items() if time))
        idle = self.makespan - int(times.release[chosen].max(initial=0))
        work = total(job.costs.work) - conflicts
        return QueueTime(job.queues[number], int(chosen.sum()), work, total(job.costs.setup), kept, idle)


STALL_NAMES = {Stall.BARRIER: "barriers", Stall.OUTSTANDING: "queue full", Stall.ISSUE: "issue"}
