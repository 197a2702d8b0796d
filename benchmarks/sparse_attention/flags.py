"""The task list as a program: addresses are the author's, and flags join tasks of different queues that share bytes.

A flag has one setter and one waiter. Hardware counts flags, so the same one is set again and again; here each setting
is a row of its own, and `flag_pairs` says how many flags the kernel needs.
"""

from __future__ import annotations

from npuc.schedule.depend import depend
from npuc.schedule.place import Placement
from npuc.tasks.graph import Buffer, Role, TaskGraph
from npuc.tasks.moves import kind_of
from npuc.tasks.program import Barrier, EntryProgram, Sync
from npurt.target import Target


def flagged(graph: TaskGraph, target: Target) -> EntryProgram:
    """The program of a list whose local buffers all are pinned."""
    offsets: dict[Buffer, int] = {}
    peaks: dict[str, int] = {}
    for buffer in graph.buffers():
        if buffer.role is Role.LOCAL:
            assert buffer.pinned is not None, buffer
            offsets[buffer] = buffer.pinned
            peaks[buffer.memory] = max(peaks.get(buffer.memory, 0), buffer.pinned + buffer.nbytes)
    queues = [queue_of(task.engine, target) for task in graph.tasks]
    producers = depend(graph, Placement(offsets, peaks), queues).producers
    waits: list[list[int]] = [[] for _ in graph.tasks]
    posts: list[list[int]] = [[] for _ in graph.tasks]
    rows: list[Barrier] = []
    for task, before in enumerate(producers):
        for producer in before:
            waits[task].append(len(rows))
            posts[producer].append(len(rows))
            rows.append(Barrier(len(rows), 1, 1))
    sync = [
        Sync(tuple(wait), tuple(post), max((*wait, *post), default=-1) + 1)
        for wait, post in zip(waits, posts, strict=True)
    ]
    sizes = {name: target.memories[kind_of(name, target.memories)].bytes for name in peaks}
    return EntryProgram(graph.entry, graph.rows, 0, graph.tasks, queues, offsets, rows, sync, peaks, sizes)


def queue_of(engine: str, target: Target) -> str:
    """The queue of an engine's unit: vector.1 -> v.1"""
    kind = kind_of(engine, target.engines)
    return target.engines[kind].queue + engine[len(kind) :]


def flag_pairs(program: EntryProgram) -> dict[str, int]:
    """For each vector unit, how many flags join it with the cube in hardware: one for each stage that waits, and for
    each queue that it waits for."""
    setters = {row: task for task, sync in enumerate(program.sync) for row in sync.post}
    found: dict[str, set[tuple[str, str, str]]] = {}
    for task, sync in enumerate(program.sync):
        for row in sync.wait:
            setter, waiter = program.tasks[setters[row]], program.tasks[task]
            units = {end.engine.rpartition(".")[2] if "." in end.engine else "" for end in (setter, waiter)}
            if "" in units and len(units) == 2:
                pair = program.queues[setters[row]], program.queues[task], waiter.origin.stage
                found.setdefault(max(units), set()).add(pair)
    return {unit: len(pairs) for unit, pairs in sorted(found.items())}
