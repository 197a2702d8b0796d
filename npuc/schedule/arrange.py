"""The costly steps of a schedule: addresses, dependencies, barriers within the machine's limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuc.schedule.barriers import Virtual, in_order, legalise, simplify, virtual_barriers
from npuc.schedule.depend import depend
from npuc.schedule.place import Placement
from npuc.tasks.graph import TaskGraph

Waits = list[tuple[tuple[int, ...], ...]]
"""For each task the barriers that it waits for, each as the tasks that post it."""


@dataclass(frozen=True)
class Arranged:
    """Where every local buffer lies, and what every task waits for."""

    placement: Placement
    waits: Waits


def arrange(graph: TaskGraph, placement: Placement, queues: Sequence[str], barriers: int) -> Arranged:
    """Orders a placed graph, with at most `barriers` open at any task. queues: of each task."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(queues))}
    queue_of = [numbers[name] for name in queues]
    virtual = virtual_barriers(depend(graph, placement, queues).producers)
    waits: list[list[tuple[int, ...]]] = [[] for _ in queues]
    for barrier in simplify(legalise(virtual, queue_of, barriers), queue_of):
        for task in barrier.consumers:
            waits[task].append(barrier.producers)
    return Arranged(placement, [tuple(sorted(waited)) for waited in waits])


def barriers_of(waits: Waits) -> list[Virtual]:
    """The barriers in order of programming: tasks that wait for the same producers share one."""
    consumers: dict[tuple[int, ...], list[int]] = {}
    for task, waited in enumerate(waits):
        for producers in waited:
            consumers.setdefault(producers, []).append(task)
    return in_order(Virtual(producers, tuple(waiting)) for producers, waiting in consumers.items())
