"""Bandwidth that several queues draw on at once: transfers that want more than there is all slow down alike."""

from __future__ import annotations

from collections.abc import Iterator

from npurt.timing.job import Job


def contended(job: Job) -> list[bool]:
    """Of each pool, whether the queues can ask for more than it has: else its transfers run at their own rates."""
    found = []
    for number, rate in enumerate(job.pools):
        chosen = job.costs.pool == number
        demands = [job.costs.demand[chosen & (job.queue == q)].max(initial=0) for q in range(len(job.queues))]
        found.append(sum(map(int, demands)) > rate)
    return found


class Pool:
    """The transfers of one pool in flight. Work is counted in picoseconds at the transfer's own rate."""

    def __init__(self, rate: int) -> None:
        self._rate, self._now = rate, 0
        self._left: dict[int, int] = {}
        self._demand: dict[int, int] = {}

    def join(self, now: int, task: int, work: int, demand: int) -> None:
        self._advance(now)
        self._left[task], self._demand[task] = work, demand

    def leave(self, now: int, task: int) -> None:
        self._advance(now)
        del self._left[task], self._demand[task]

    def finishes(self) -> Iterator[tuple[int, int]]:
        """(task, when it will have ended if nothing changes) of each transfer."""
        wanted, rate = self._wanted()
        for task, left in self._left.items():
            yield task, self._now - (-left * wanted // rate)

    def _advance(self, now: int) -> None:
        wanted, rate = self._wanted()
        passed = (now - self._now) * rate // wanted
        for task in self._left:
            self._left[task] = max(0, self._left[task] - passed)
        self._now = now

    def _wanted(self) -> tuple[int, int]:
        """Work takes wanted / rate times as long as alone."""
        wanted = sum(self._demand.values())
        return (wanted, self._rate) if wanted > self._rate else (1, 1)
