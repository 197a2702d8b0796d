"""The one door: a task graph becomes a program, by way of a few of its periods where its layers repeat."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from npuc.schedule.arrange import Arranged, arrange, barriers_of
from npuc.schedule.barriers import Virtual, assign
from npuc.schedule.errors import CodeRefused, OverflowRefused, ScheduleBroken, ScheduleRefused
from npuc.schedule.fit import place_or_spill, relieve_sums
from npuc.schedule.limits import Limits, ScheduleOptions, limits_of
from npuc.schedule.period import find_period
from npuc.schedule.place import place
from npuc.schedule.shorten import lengthen, shorten, together, unsteady
from npuc.schedule.simulate import run_to_completion
from npuc.tasks.graph import CallOp, TaskGraph
from npuc.tasks.program import Effort, EntryProgram
from npurt.target import Target

# Ways to schedule a few periods for all, tried in this order: how many periods, which of them is the model (it must
# come out as the one before it), and whether the buffers of all are told to lie at the same places. A period before
# the model sees what came before all of them, one behind it what follows.
ATTEMPTS = ((3, 2, False), (3, 2, True), (4, 2, False), (5, 3, False))


def schedule(graph: TaskGraph, target: Target, options: ScheduleOptions | None = None) -> EntryProgram:
    """The program of one entry on one tile of the target. Errors: as `schedule_within`."""
    return schedule_within(graph, limits_of(target), options or ScheduleOptions())


def schedule_within(graph: TaskGraph, limits: Limits, options: ScheduleOptions) -> EntryProgram:
    """Places, orders and synchronises one entry; each queue runs its tasks in trace order.

    Raises OverflowRefused or PinRefused where buffers do not fit, CodeRefused where a program does not, ScheduleRefused
    for an engine that the machine does not have, ScheduleBroken for an internal error.
    """
    check_code(graph, limits)
    sizes = {buffer.memory: limits.size(buffer.memory) for buffer in graph.buffers()}
    memory_bytes = {memory: size for memory, size in sizes.items() if size is not None}

    relieved, spills = relieve_sums(graph, memory_bytes, limits)
    arranged, effort = _by_period(relieved, memory_bytes, limits, options)
    if arranged is None:
        try:
            relieved, placement, more = place_or_spill(relieved, memory_bytes, limits, options)
        except OverflowRefused:
            place(graph, memory_bytes, options.prefetch, options.overlap)  # says what does not fit in the graph given
            raise
        spills, effort = spills + more, replace(effort, scheduled=len(relieved.tasks))
        arranged = arrange(relieved, placement, task_queues(relieved, limits), limits.barriers)
    virtual = barriers_of(arranged.waits)
    _check_slots(virtual, limits)
    barriers, sync = assign(virtual, len(relieved.tasks), limits.barriers)
    program = EntryProgram(
        graph.entry,
        graph.rows,
        graph.capacity,
        relieved.tasks,
        task_queues(relieved, limits),
        arranged.placement.offsets,
        barriers,
        sync,
        arranged.placement.peaks,
        memory_bytes,
        spills,
        effort,
    )
    run_to_completion(program)
    return program


def _by_period(
    graph: TaskGraph, memory_bytes: dict[str, int], limits: Limits, options: ScheduleOptions
) -> tuple[Arranged | None, Effort]:
    """The arranged graph where its layers repeat and their schedule does; else None and how it has to be done."""
    found = find_period(graph, min(kept for kept, _, _ in ATTEMPTS))
    if found is None:
        return None, Effort(len(graph.tasks))
    why = ""
    for period, (kept, model, fixed) in product(found.multiples(), ATTEMPTS):
        if kept >= period.count:
            continue
        short = shorten(graph, period, kept, model)
        if short is None:
            why = "buffers of several periods are used behind the last"
            break
        alike = together(short) if fixed else {}
        if alike is None:
            continue
        try:
            placement = place(short.graph, memory_bytes, options.prefetch, options.overlap, alike)
        except OverflowRefused:
            why = why or "one period does not fit without spilling"
            continue
        arranged = arrange(short.graph, placement, task_queues(short.graph, limits), limits.barriers)
        why = unsteady(short, arranged)
        if not why:
            return lengthen(short, arranged, graph), Effort(len(short.graph.tasks), short.dropped, period.count)
    return None, Effort(len(graph.tasks), 0, found.count, why)


def _check_slots(barriers: list[Virtual], limits: Limits) -> None:
    """At most one task of each queue is on either side of a barrier: what this finds is a property of the machine."""
    for barrier in barriers:
        sides = len(barrier.producers), len(barrier.consumers)
        if max(sides) > limits.slots or sum(sides) > limits.slots_total:
            raise ScheduleBroken(
                f"a barrier needs {sides} slots, the target has {limits.slots} a side, {limits.slots_total} in all"
            )


def check_code(graph: TaskGraph, limits: Limits) -> None:
    """CodeRefused, with a line for each program that is larger than its engine can hold."""
    found: dict[bytes, str] = {}
    for index, task in enumerate(graph.tasks):
        most = limits.program_code(task.engine) if isinstance(task.op, CallOp) else None
        if isinstance(task.op, CallOp) and most is not None and len(task.op.code) > most:
            where = ", ".join(filter(None, (task.origin.node, task.origin.kernel)))
            found.setdefault(
                task.op.code,
                f"entry {graph.entry}: task {index} ({where}): program {task.op.name} has {len(task.op.code)} bytes, "
                f"{task.engine} holds {most}; unroll less in one run (fewer turns of t.range, or t.end_run() between)",
            )
    if found:
        raise CodeRefused("\n".join(found.values()))


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
