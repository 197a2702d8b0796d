"""Queues and barriers with time: the device's rules (npurt.exec.barriers), each task for as long as it costs.

A task begins when its queue is free, it has been issued, `start_after` barrier rows have been programmed, nothing that
it waits for is left and the engine can have another transfer in flight. Two readings of a transfer's latency are
possible: held, the queue's port stands still for it; or overlapped, the port goes on to the next transfer. Where no
pool is contended, no task ends later when any cost falls: every start is a maximum of ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

import numpy as np

from npurt.errors import DeadlockError
from npurt.timing.issue import Issuers
from npurt.timing.job import Job, Stall, Times
from npurt.timing.pools import Flows, contended

# what an event means; several at one time are one event
_TRANSFERRED, _RELEASE, _END, _POST, _ISSUED = 1, 2, 4, 8, 16


def simulate(job: Job, *, held: bool) -> Times:
    """Runs the job. held: the reading of transfer latencies. DeadlockError where no queue can go on."""
    return _Machine(job, held).run()


class _Machine:
    def __init__(self, job: Job, held: bool) -> None:
        count = len(job.queue)
        self._job, self._held, self._now = job, held, 0
        self._queue, self._sync = job.queue.tolist(), job.sync
        self._setup, self._latency, self._work = (
            column.tolist() for column in (job.costs.setup, job.costs.latency, job.costs.work)
        )
        self._order = [np.flatnonzero(job.queue == q).tolist() for q in range(len(job.queues))]
        self._next = [0] * len(self._order)
        self._idle = [True] * len(self._order)
        self._free_at = [0] * len(self._order)
        self._flying = [0] * len(self._order)
        self._events: list[tuple[int, int, int, int]] = []  # time, meaning, task, version
        self._version = [0] * count
        limits = contended(job)
        self._flows = Flows(job.pools)
        self._pools = [tuple(n for n in row if n >= 0 and limits[n]) for row in job.costs.pools.tolist()]
        ids = 1 + max((number for number, _, _ in job.barriers), default=-1)
        self._producers, self._consumers = [0] * ids, [0] * ids
        self._closed = [(0, -1)] * ids  # when the last producer posted, and which task it was
        self._programmed: list[tuple[int, int, bool]] = []  # when, by the start (or end) of which task
        self._landed = [(0, -1)] * len(self._order)  # the newest end of a transfer of each queue
        names = ("start", "release", "end", "stall", "reason", "bandwidth", "bank", "cause", "issued")
        self._times = {name: [0] * count for name in names}
        self._at_start = [False] * count
        self._issuers = Issuers(job)

    def run(self) -> Times:
        self._program(-1, False)
        self._tell(self._issuers.begin())
        while True:
            self._start_all()
            if not self._events:
                break
            self._now = self._events[0][0]
            while self._events and self._events[0][0] == self._now:
                self._happen(*heappop(self._events)[1:])
        left = [f"{self._job.queues[q]} task {order[at]}" for q, (order, at) in
                enumerate(zip(self._order, self._next, strict=True)) if at < len(order)]  # fmt: skip
        if left:
            raise DeadlockError(f"no queue can go on: {', '.join(left)}")
        columns = {name: np.array(column, np.int64) for name, column in self._times.items()}
        return Times(**columns, at_start=np.array(self._at_start, np.bool_))

    def _start_all(self) -> None:
        moved = True
        while moved:
            moved = False
            for q, order in enumerate(self._order):
                if self._idle[q] and self._next[q] < len(order) and self._may_start(q, order[self._next[q]]):
                    self._start(q, order[self._next[q]])
                    moved = True

    def _may_start(self, q: int, task: int) -> bool:
        sync = self._sync[task]
        if sync.start_after > len(self._programmed) or not self._issuers.ready(task, self._now):
            return False
        for number in sync.wait:
            if self._producers[number]:
                return False
        return self._held or self._flying[q] < self._job.outstanding[q]

    def _start(self, q: int, task: int) -> None:
        times, now = self._times, self._now
        times["start"][task] = now
        self._blame(q, task)
        self._next[q] += 1
        self._idle[q] = False
        self._flying[q] += 1
        pools = self._pools[task]
        if pools:
            self._flows.join(now, task, self._work[task], pools, int(self._job.costs.demand[task]))
            self._replan()
        else:
            self._finish(task, now + self._setup[task] + self._work[task])
        wait = self._sync[task].wait
        for number in wait:
            self._consumers[number] -= 1
        if wait:
            self._program(task, True)

    def _blame(self, q: int, task: int) -> None:
        """Which of the conditions was met last. A queue that did not stand still waited for its own last task."""
        sync, stall = self._sync[task], self._now - self._free_at[q]
        last = self._order[q][self._next[q] - 1] if self._next[q] else -1
        reason, cause, at_start = Stall.NONE, last, False
        if stall:
            ready = max((self._closed[number] for number in sync.wait), default=(0, -1))
            programmed = self._programmed[sync.start_after - 1] if sync.start_after else (0, -1, False)
            opened = self._issuers.opened(task, self._now)
            if ready[0] == self._now:
                reason, cause = Stall.WAIT, ready[1]
            elif opened is not None:
                reason, (since, cause) = Stall.ISSUE, opened
                self._times["issued"][task] = self._now - since
            elif programmed[0] == self._now:
                reason, (_, cause, at_start) = Stall.BARRIER, programmed
            else:
                reason, cause = Stall.OUTSTANDING, self._landed[q][1]
        self._times["stall"][task], self._times["reason"][task], self._times["cause"][task] = stall, reason, cause
        self._at_start[task] = at_start

    def _finish(self, task: int, moved: int) -> None:
        """Plans the end of a task whose work will have been done at `moved`."""
        end = moved + self._latency[task]
        release = end if self._held else moved
        self._times["release"][task], self._times["end"][task] = release, end
        plan: dict[int, int] = {}
        for time, meaning in ((release, _RELEASE), (end, _END), (end + self._job.flag_latency, _POST)):
            plan[time] = plan.get(time, 0) | meaning
        for time, meaning in plan.items():
            heappush(self._events, (time, meaning, task, 0))

    def _tell(self, issued: Iterable[tuple[int, int]]) -> None:
        for task, time in issued:
            heappush(self._events, (time, _ISSUED, task, 0))

    def _replan(self) -> None:
        for task, time in self._flows.finishes():
            self._version[task] += 1
            heappush(self._events, (time, _TRANSFERRED, task, self._version[task]))

    def _happen(self, meaning: int, task: int, version: int) -> None:
        q = self._queue[task]
        if meaning & _TRANSFERRED:
            if version == self._version[task]:
                self._version[task] = -1
                self._flows.leave(self._now, task)
                self._times["bandwidth"][task], self._times["bank"][task] = self._flows.lost.pop(task)
                self._finish(task, self._now + self._setup[task])
                self._replan()
            return
        if meaning & _RELEASE:
            self._idle[q], self._free_at[q] = True, self._now
            self._tell(self._issuers.ended(task, self._now))
        if meaning & _END:
            self._flying[q] -= 1
            self._landed[q] = self._now, task
        if meaning & _POST and self._sync[task].post:
            for number in self._sync[task].post:
                self._producers[number] -= 1
                if not self._producers[number]:
                    self._closed[number] = self._now, task
            self._program(task, False)

    def _program(self, task: int, at_start: bool) -> None:
        rows, barriers = self._programmed, self._job.barriers
        while len(rows) < len(barriers):
            number, producers, consumers = barriers[len(rows)]
            if self._producers[number] or self._consumers[number]:
                return
            self._producers[number], self._consumers[number] = producers, consumers
            rows.append((self._now, task, at_start))
