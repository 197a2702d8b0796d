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
    """The time of one queue, in picoseconds; busy + idle is the makespan.

    busy is work (at the full rate), launch (and issue), latency (held by the port), and shared (more time because
    others drew on the same bandwidth). stalls: idle time by reason: "wait <queue>", "barriers", "outstanding", "done".
    """

    name: str
    tasks: int
    work: int
    launch: int
    latency: int
    shared: int
    stalls: Mapping[str, int]

    @property
    def busy(self) -> int:
        return self.work + self.launch + self.latency + self.shared

    @property
    def idle(self) -> int:
        return sum(self.stalls.values())


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
        busy = int((times.release - times.start)[chosen].sum())
        work, launch = int(job.costs.work[chosen].sum()), int(job.costs.setup[chosen].sum())
        latency = int(job.costs.latency[chosen].sum()) if self.held else 0
        stalls: dict[str, int] = {}
        for reason in (Stall.WAIT, Stall.BARRIER, Stall.OUTSTANDING):
            picked = chosen & (times.reason == reason)
            if reason is not Stall.WAIT:
                stalls[STALL_NAMES[reason]] = int(times.stall[picked].sum())
                continue
            other = job.queue[times.cause[picked]]
            for q, name in enumerate(job.queues):
                stalls[f"wait {name}"] = int(times.stall[picked][other == q].sum())
        last = int(times.release[chosen].max(initial=0))
        stalls[STALL_NAMES[Stall.DONE]] = self.makespan - last
        kept = {name: time for name, time in stalls.items() if time}
        return QueueTime(
            job.queues[number], int(chosen.sum()), work, launch, latency, busy - work - launch - latency, kept
        )


STALL_NAMES = {Stall.BARRIER: "barriers", Stall.OUTSTANDING: "outstanding", Stall.DONE: "done"}
