"""Scalar units: each issues the tasks of its core in order, and stands still while it runs a task of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npurt.timing.job import Job


class Issuers:
    """When each task has been issued. A unit runs ahead of the engines as far as its program goes."""

    def __init__(self, job: Job) -> None:
        issue = job.issue
        self._on = issue is not None
        if issue is None:
            return
        self._cost, self._unit = issue.cost, issue.unit.tolist()
        self._order = [np.flatnonzero(issue.unit == unit).tolist() for unit in range(len(issue.queues))]
        self._next = [0] * len(self._order)
        own = np.isin(issue.unit, [unit for unit, queue in enumerate(issue.queues) if queue >= 0])
        places = np.array([*issue.queues, -1])[issue.unit]
        self._stops = (own & (job.queue == places)).tolist()
        # of each task, when it has been issued; -1: not known yet, or nobody has to issue it
        self._at = [-1] * len(self._unit)
        self._since = [(0, -1)] * len(self._order)  # when the unit last began to issue, behind which task

    def begin(self) -> Iterator[tuple[int, int]]:
        """(task, time) of everything that the units issue before the first task of their own."""
        if self._on:
            for unit in range(len(self._order)):
                yield from self._run(unit, 0, -1)

    def ended(self, task: int, now: int) -> Iterator[tuple[int, int]]:
        """The same after a task that a unit has run itself."""
        if self._on and self._stops[task]:
            yield from self._run(self._unit[task], now, task)

    def ready(self, task: int, now: int) -> bool:
        return not self._on or self._unit[task] < 0 or 0 <= self._at[task] <= now

    def opened(self, task: int, now: int) -> tuple[int, int] | None:
        """(when its unit began to issue, behind which task) where the task has been issued at this very moment."""
        if not self._on or self._unit[task] < 0 or self._at[task] != now:
            return None
        since: tuple[int, int] = self._since[self._unit[task]]
        return since

    def _run(self, unit: int, now: int, behind: int) -> Iterator[tuple[int, int]]:
        order = self._order[unit]
        self._since[unit] = now, behind
        while self._next[unit] < len(order):
            task = order[self._next[unit]]
            self._next[unit] += 1
            now += self._cost
            self._at[task] = now
            yield task, now
            if self._stops[task]:
                return
