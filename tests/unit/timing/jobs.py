"""Jobs by hand: each task a queue, its costs and the tasks that it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npurt.exec.barriers import Sync
from npurt.timing import Costs, Job, Shared


@dataclass(frozen=True)
class Step:
    """One task. after: indices of tasks that must have ended; costs in picoseconds; rate: of its pool 0."""

    queue: int
    work: int
    latency: int = 0
    setup: int = 0
    after: tuple[int, ...] = ()
    rate: int = 0


def job(
    steps: Sequence[Step], *, queues: int = 3, pool: int = 0, outstanding: int = 2, flag: int = 0, ids: int = 100
) -> Job:
    """One barrier for each task that others wait for; ids: how many physical ones they share in turn."""
    waiters = {at: [t for t, step in enumerate(steps) if at in step.after] for at in range(len(steps))}
    rows = {at: row for row, at in enumerate(at for at in waiters if waiters[at])}
    barriers = [(row % ids, 1, len(waiters[at])) for at, row in rows.items()]
    sync = []
    for at, step in enumerate(steps):
        wait = [rows[producer] for producer in step.after]
        touched = [*wait, *([rows[at]] if at in rows else [])]
        post = (rows[at] % ids,) if at in rows else ()
        sync.append(Sync(tuple(sorted(row % ids for row in wait)), post, max(touched, default=-1) + 1))

    def column(name: str) -> np.ndarray:
        return np.array([getattr(step, name) for step in steps], np.int64)

    costs = Costs(
        column("setup"),
        column("latency"),
        column("work"),
        np.zeros(len(steps), np.int64),
        np.where(column("rate") > 0, 0, -1).reshape(-1, 1),
        column("rate"),
    )
    return Job(
        tuple(f"q{number}" for number in range(queues)), column("queue"), costs, sync, barriers,
        (Shared(pool),) if pool else (), (outstanding,) * queues, flag,
    )  # fmt: skip
