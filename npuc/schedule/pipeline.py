"""The one door: a task graph becomes a program, in five steps that each can be looked at."""

from __future__ import annotations

from npuc.schedule.barriers import assign, legalise, simplify, virtual_barriers
from npuc.schedule.depend import depend
from npuc.schedule.errors import ScheduleBroken, ScheduleRefused
from npuc.schedule.fit import place_or_spill
from npuc.schedule.limits import Limits, ScheduleOptions, limits_of
from npuc.schedule.simulate import run_to_completion
from npuc.tasks.graph import TaskGraph
from npuc.tasks.program import EntryProgram
from npurt.target import Target


def schedule(graph: TaskGraph, target: Target, options: ScheduleOptions | None = None) -> EntryProgram:
    """The program of one entry on one tile of the target. Errors: as `schedule_within`."""
    return schedule_within(graph, limits_of(target), options or ScheduleOptions())


def schedule_within(graph: TaskGraph, limits: Limits, options: ScheduleOptions) -> EntryProgram:
    """Places, orders and synchronises one entry; each queue runs its tasks in trace order.

    Raises OverflowRefused or PinRefused where buffers do not fit, ScheduleRefused for an engine that the machine does
    not have, ScheduleBroken for an internal error.
    """
    sizes = {buffer.memory: limits.size(buffer.memory) for buffer in graph.buffers()}
    memory_bytes = {memory: size for memory, size in sizes.items() if size is not None}

    graph, placement, spills = place_or_spill(graph, memory_bytes, limits, options)
    queues = task_queues(graph, limits)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(queues))}
    queue_of = [numbers[name] for name in queues]

    dependencies = depend(graph, placement, queues)
    virtual = virtual_barriers(dependencies.producers)
    legal = simplify(legalise(virtual, queue_of, limits.barriers), queue_of)
    for barrier in legal:  # at most one task of each queue on either side, so this is a property of the machine
        sides = len(barrier.producers), len(barrier.consumers)
        if max(sides) > limits.slots or sum(sides) > limits.slots_total:
            raise ScheduleBroken(
                f"a barrier needs {sides} slots, the target has {limits.slots} a side, {limits.slots_total} in all"
            )
    barriers, sync = assign(legal, len(graph.tasks), limits.barriers)

    program = EntryProgram(
        graph.entry,
        graph.rows,
        graph.capacity,
        graph.tasks,
        queues,
        placement.offsets,
        barriers,
        sync,
        placement.peaks,
        memory_bytes,
        spills,
    )
    run_to_completion(program)
    return program


def task_queues(graph: TaskGraph, limits: Limits) -> list[str]:
    """The queue of each task."""
    queues = []
    for index, task in enumerate(graph.tasks):
        queue = limits.queue(task.engine)
        if queue is None:
            where = task.origin.node or task.origin.kernel
            raise ScheduleRefused(
                f"entry {graph.entry}: task {index} ({where}) wants engine {task.engine}; "
                f"the target has {', '.join(limits.queues)}"
            )
        queues.append(queue)
    return queues
