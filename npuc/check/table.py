"""The barrier table against the tasks: which row each id of each task means, and whether the counts agree.

A task with start_after = s sees an id as held by the last row below s with this id: rows are programmed in order, and
a row cannot lose its id while one of its tasks has not run. So the meaning is fixed, and counts can be compared
exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from npuc.check.finding import Finding
from npuc.tasks.program import Barrier, Sync


@dataclass(frozen=True)
class Rows:
    """Rows of the barrier table by task: waits[t], posts[t]; and by row: producers[v], consumers[v] (task indices)."""

    waits: list[list[int]]
    posts: list[list[int]]
    producers: list[list[int]]
    consumers: list[list[int]]


def resolve(
    barriers: Sequence[Barrier], sync: Sequence[Sync], ids: int, slots: int, slots_total: int
) -> tuple[Rows, list[Finding]]:
    """Tasks and rows that belong together, and every disagreement between table and tasks."""
    findings: list[Finding] = []
    rows_of: dict[int, list[int]] = {}
    for row, barrier in enumerate(barriers):
        if not 0 <= barrier.id < ids:
            findings.append(
                Finding("barrier-id", f"barrier {row} has id {barrier.id}, the target has ids 0 to {ids - 1}")
            )
        if max(barrier.producers, barrier.consumers) > slots or barrier.producers + barrier.consumers > slots_total:
            text = f"barrier {row} has {barrier.producers} producers and {barrier.consumers} consumers"
            findings.append(Finding("barrier-slots", f"{text}, the limits are {slots} a side and {slots_total} in all"))
        rows_of.setdefault(barrier.id, []).append(row)
    tasks = len(sync)
    rows = Rows([[] for _ in range(tasks)], [[] for _ in range(tasks)], [[] for _ in barriers], [[] for _ in barriers])
    for task, entry in enumerate(sync):
        if not 0 <= entry.start_after <= len(barriers):
            findings.append(
                Finding("start-after", f"task {task} starts after {entry.start_after} of {len(barriers)} barriers")
            )
            continue
        for word, numbers, by_task, by_row in (
            ("waits for", entry.wait, rows.waits, rows.consumers),
            ("posts", entry.post, rows.posts, rows.producers),
        ):
            if list(numbers) != sorted(set(numbers)):
                findings.append(Finding("barrier-mask", f"task {task} {word} ids {numbers}, which do not rise"))
            for number in dict.fromkeys(numbers):
                held = rows_of.get(number, [])
                at = bisect_left(held, entry.start_after)
                if not at:
                    text = f"task {task} {word} id {number}, which none of the {entry.start_after} barriers below holds"
                    findings.append(Finding("barrier-id", text))
                    continue
                by_task[task].append(held[at - 1])
                by_row[held[at - 1]].append(task)
        highest = max([*rows.waits[task], *rows.posts[task]], default=-1)
        if entry.start_after != highest + 1:
            text = f"task {task} starts after {entry.start_after} barriers, its highest is row {highest}"
            findings.append(Finding("start-after", text))
    for row, barrier in enumerate(barriers):
        for word, count, members in (
            ("producers", barrier.producers, rows.producers[row]),
            ("consumers", barrier.consumers, rows.consumers[row]),
        ):
            if count != len(members) or not members:
                text = f"barrier {row} (id {barrier.id}) counts {count} {word}, tasks {members} are its {word}"
                findings.append(Finding("barrier-count", text))
    return rows, findings
