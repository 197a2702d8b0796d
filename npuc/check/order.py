"""What the device semantics order: proof that the program runs to completion, and what is complete before each task
starts.

Once ids have a fixed meaning (npuc.check.table), each condition of the semantics names fixed events: the start and
end of a task, the programming of a row. All conditions of an event must hold, there are no alternatives; so the
program completes in every order if and only if the graph of events has no cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.check.finding import Finding
from npuc.check.table import Rows
from npuc.tasks.program import Barrier


def completes(
    queues: Sequence[str], barriers: Sequence[Barrier], start_after: Sequence[int], rows: Rows
) -> list[Finding]:
    """Findings where the program can get stuck. Events: start of t = 2t, end of t = 2t + 1, row v = 2 * tasks + v."""
    tasks = len(queues)
    after: list[list[int]] = [[] for _ in range(2 * tasks + len(barriers))]
    previous: dict[str, int] = {}
    for task, queue in enumerate(queues):
        after[2 * task].append(2 * task + 1)
        if queue in previous:
            after[2 * previous[queue] + 1].append(2 * task)
        previous[queue] = task
        if start_after[task]:
            after[2 * tasks + start_after[task] - 1].append(2 * task)
    holder: dict[int, int] = {}
    for row, barrier in enumerate(barriers):
        event = 2 * tasks + row
        if row:
            after[event - 1].append(event)
        if barrier.id in holder:
            for producer in rows.producers[holder[barrier.id]]:
                after[2 * producer + 1].append(event)
            for consumer in rows.consumers[holder[barrier.id]]:
                after[2 * consumer].append(event)
        holder[barrier.id] = row
        for producer in rows.producers[row]:
            for consumer in rows.consumers[row]:
                after[2 * producer + 1].append(2 * consumer)
    missing = np.zeros(len(after), np.int64)
    for successors in after:
        for event in successors:
            missing[event] += 1
    ready = [event for event in range(len(after)) if not missing[event]]
    done = 0
    while ready:
        event = ready.pop()
        done += 1
        for successor in after[event]:
            missing[successor] -= 1
            if not missing[successor]:
                ready.append(successor)
    if done == len(after):
        return []
    stuck = [task for task in range(tasks) if missing[2 * task]]
    return [Finding("deadlock", f"{len(stuck)} tasks can never start, the first are {stuck[:4]}")]


def forward(rows: Rows) -> list[Finding]:
    """Findings where a barrier orders two tasks against trace order."""
    findings = []
    for row, (producers, consumers) in enumerate(zip(rows.producers, rows.consumers, strict=True)):
        if producers and consumers and max(producers) >= min(consumers):
            text = (
                f"barrier {row}: task {max(producers)} posts it, task {min(consumers)} before it in trace order waits"
            )
            findings.append(Finding("backward", text))
    return findings


def complete_before(queues: Sequence[str], rows: Rows) -> tuple[list[str], np.ndarray, np.ndarray]:
    """(names of the queues, place [tasks], done [tasks, queues]), int64.

    place: the task's position in its queue. done[t, q]: how many tasks of queue q are surely complete when t starts, by
    queue order and barriers alone. Needs barriers that point forward in trace order.
    """
    names = sorted(set(queues))
    number = {name: at for at, name in enumerate(names)}
    place = np.zeros(len(queues), np.int64)
    done = np.zeros((len(queues), len(names)), np.int64)
    row_done = np.zeros((len(rows.producers), len(names)), np.int64)
    heads: list[int] = [-1] * len(names)
    counts = [0] * len(names)
    for task, queue in enumerate(queues):
        at = number[queue]
        place[task] = counts[at]
        if heads[at] >= 0:
            done[task] = done[heads[at]]
        for row in rows.waits[task]:
            np.maximum(done[task], row_done[row], out=done[task])
        done[task, at] = counts[at]
        for row in rows.posts[task]:
            np.maximum(row_done[row], done[task], out=row_done[row])
            row_done[row, at] = max(row_done[row, at], counts[at] + 1)
        counts[at] += 1
        heads[at] = task
    return names, place, done
