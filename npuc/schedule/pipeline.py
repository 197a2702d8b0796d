"""The one door: a task graph becomes a program, in five steps that each can be looked at."""

from __future__ import annotations

from npuc.schedule.barriers import assign, legalise, simplify, virtual_barriers
from npuc.schedule.depend import depend
from npuc.schedule.errors import ScheduleBroken, ScheduleRefused
from npuc.schedule.limits import Limits, ScheduleOptions
from npuc.schedule.place import place
from npuc.schedule.program import EntryProgram
from npuc.schedule.simulate import run_to_completion
from npuc.tasks.graph import TaskGraph


def schedule_within(graph: TaskGraph, limits: Limits, options: ScheduleOptions) -> EntryProgram:
    """Places, orders and synchronises one entry on one tile; queues run in trace order.

    Raises OverflowRefused or PinRefused where buffers do not fit, ScheduleRefused for an engine that the machine does not
    have, ScheduleBroken for an internal error.
    """
    queues = task_queues(graph, limits)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(queues))}
    queue_of = [numbers[name] for name in queues]

    placement = place(graph, limits.memory_bytes, options.prefetch)
    dependencies = depend(graph, placement, queues)
    virtual = virtual_barriers(dependencies.producers)
    legal = simplify(legalise(virtual, queue_of, limits.barriers), queue_of)
    for barrier in legal:  # at most one task of each queue on either side, so this is a property of the machine
        sides = len(barrier.producers), len(barrier.consumers)
        if max(sides) > limits.slots or sum(sides) > limits.slots_total:
            raise ScheduleBroken(f"a barrier needs {sides} slots, the target has {limits.slots} a side, {limits.slots_total} in all")
    barriers, sync = assign(legal, len(graph.tasks), limits.barriers)

    program = EntryProgram(
        graph.entry, graph.rows, graph.capacity, graph.tasks, queues, placement.offsets, barriers, sync, placement.peaks,
        limits.memory_bytes,
    )
    run_to_completion(program)
    return program


def task_queues(graph: TaskGraph, limits: Limits) -> list[str]:
    """The queue of each task."""
    for index, task in enumerate(graph.tasks):
        if task.engine not in limits.queues:
            raise ScheduleRefused(
                f"entry {graph.entry}: task {index} ({task.origin.node or task.origin.kernel}) wants engine {task.engine}; "
                f"the target has {', '.join(limits.queues)}"
            )
    return [limits.queues[task.engine] for task in graph.tasks]
