"""Rates that several queues draw on at once: transfers that want more than there is all slow down alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npurt.timing.job import Job, Shared


def contended(job: Job) -> list[bool]:
    """Of each pool, whether the queues can ask for more than it has: else its transfers run at their own rates."""
    found = []
    for number, shared in enumerate(job.pools):
        chosen = (job.costs.pools == number).any(1)
        demands = [job.costs.demand[chosen & (job.queue == q)].max(initial=0) for q in range(len(job.queues))]
        found.append(sum(map(int, demands)) > shared.rate)
    return found


class Flows:
    """The transfers in flight on contended pools. Work is counted in picoseconds at the transfer's own rate.

    A transfer on several pools goes as fast as the fullest one lets it. lost: of each transfer, the time that others
    cost it, [on a way, on a bank].
    """

    def __init__(self, pools: Sequence[Shared]) -> None:
        self._pools, self._now = pools, 0
        self._wanted = [0] * len(pools)
        self._left: dict[int, int] = {}
        self._of: dict[int, tuple[tuple[int, ...], int]] = {}
        self.lost: dict[int, list[int]] = {}

    def join(self, now: int, task: int, work: int, pools: tuple[int, ...], demand: int) -> None:
        self._advance(now)
        self._left[task], self._of[task], self.lost[task] = work, (pools, demand), [0, 0]
        for number in pools:
            self._wanted[number] += demand

    def leave(self, now: int, task: int) -> None:
        self._advance(now)
        pools, demand = self._of.pop(task)
        for number in pools:
            self._wanted[number] -= demand
        del self._left[task]

    def finishes(self) -> Iterator[tuple[int, int]]:
        """(task, when it will have ended if nothing changes) of each transfer."""
        for task, left in self._left.items():
            wanted, rate, _ = self._slowest(task)
            yield task, self._now - (-left * wanted // rate)

    def _advance(self, now: int) -> None:
        passed = now - self._now
        if passed:
            for task, left in self._left.items():
                wanted, rate, bank = self._slowest(task)
                done = passed * rate // wanted
                self._left[task] = max(0, left - done)
                self.lost[task][bank] += passed - min(done, left)
        self._now = now

    def _slowest(self, task: int) -> tuple[int, int, bool]:
        """Work takes wanted / rate times as long as alone, because of a bank or of a way."""
        worst = (1, 1, False)
        for number in self._of[task][0]:
            wanted, shared = self._wanted[number], self._pools[number]
            if wanted * worst[1] > worst[0] * shared.rate:
                worst = (wanted, shared.rate, shared.bank)
        return worst
