"""The critical path of a run: which tasks, one after the other, made it as long as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npurt.timing.result import Timing


@dataclass(frozen=True)
class Share:
    """What one graph node (or queue) has of the makespan, in picoseconds, and by how many tasks of the path."""

    time: int
    tasks: int


def critical_path(timing: Timing) -> list[tuple[int, int]]:
    """(task, picoseconds) backwards from the last end. The times sum to the makespan.

    A task's time is that from its start to the moment at which the path leaves it for the next one: its end, or the
    release of its queue. Where it waited for its issue, the time of the issues before it is its own.
    """
    times = timing.times
    if not len(times.end):
        return []
    task, until = int(times.end.argmax()), timing.makespan
    cause, at_start = times.cause.tolist(), times.at_start.tolist()
    start = (times.start - times.issued).tolist()
    path = []
    while True:
        path.append((task, until - start[task]))
        until = start[task]
        leaves_at_start = at_start[task]
        task = cause[task]
        while leaves_at_start and task >= 0:
            # the event was the start of this task: go on with what that start waited for
            leaves_at_start, task = at_start[task], cause[task]
        if task < 0:
            return path


def shares(timing: Timing) -> tuple[Mapping[str, Share], Mapping[str, Share]]:
    """The critical path by graph node and by queue, largest first; each sums to the makespan."""
    nodes: dict[str, list[int]] = {}
    queues: dict[str, list[int]] = {}
    queue = timing.job.queue.tolist()
    for task, time in critical_path(timing):
        for table, key in ((nodes, timing.nodes[task]), (queues, timing.job.queues[queue[task]])):
            row = table.setdefault(key, [0, 0])
            row[0] += time
            row[1] += 1
    return _sorted(nodes), _sorted(queues)


def _sorted(table: Mapping[str, list[int]]) -> dict[str, Share]:
    rows = sorted(table.items(), key=lambda row: (-row[1][0], row[0]))
    return {key: Share(time, tasks) for key, (time, tasks) in rows}
